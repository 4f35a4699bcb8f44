"""Steps of the fold that give a candidate its draft and publish it: intent, outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas.codec import decode_sealed, encode_plain
from cas.errors import ConflictError, RefusedError
from cas.learning.audit import Entry, put_entry
from cas.learning.document import encode_document
from cas.learning.fields import digest_of, id_of, number_of, text_of
from cas.learning.ids import check_file_id
from cas.learning.keys import body_key, draft_key, held_key, publishing_key
from cas.learning.rows import IN_ROW, Row, find_row, iso, put_row, read_candidate
from cas.learning.rules import check_leaving, check_published, check_token, check_transition
from cas.learning.status import PUBLISHED, check_status
from cas.names import MAX_NUMBER, check_path, check_resource, check_text
from cas.refs import PUBLICATION_SIZE

if TYPE_CHECKING:
    from cas.eventlog import MutableState, State
    from cas.learning.keys import Place

DRAFT_DIGEST: Final = "draft_digest"
"""The field of a candidate that says which draft it has."""
PUBLISHED_AS: Final = "published_as"
"""The field of a candidate that says which version it was published as."""

_TYPES: Final = ("d", "f", "x")


class Draft(NamedTuple):
    """The draft of a candidate, what it is made from, and the version that it became."""

    type: str
    """Entry type: `d` a directory, `f` a file, `x` an executable file."""
    size: int
    digest: bytes
    files: int
    resource: str
    number: int
    path: bytes
    base_type: str
    base_size: int
    base_digest: bytes
    published: list[Any] | None
    """Resource and number of the version; None if it was not published."""

    @property
    def base(self) -> str:
        """What it is made from, as text for people."""
        return f"{self.resource}@v{self.number}:{self.path.decode('utf-8', 'backslashreplace')}"


class Intent(NamedTuple):
    """The intent to publish a draft."""

    identity: bytes
    at_ns: int
    actor: str
    description: str
    reports: list[str]
    token: int | None


def find_draft(state: State, at: bytes) -> Draft | None:
    """Return the draft of the candidate at a place, None if it has none."""
    encoded = state.get(draft_key(at))
    return None if encoded is None else Draft._make(decode_sealed(encoded))


def attach(state: MutableState, event: dict[str, Any], place: Place) -> None:
    """Give a candidate a draft in place of the one that it had; its content is held from here."""
    candidate_id = id_of(event, "id", "candidate")
    at, row = find_row(state, candidate_id)
    before = find_draft(state, at)
    check_unpublished(candidate_id, before)
    now, token, to = number_of(event, "now"), event.get("token"), check_status(event.get("to"))
    check_published(row)
    _check_hold(state, row, to, now, token)
    draft = _draft_of(event)
    if before is not None:
        for key, _ in _holds(candidate_id, before):
            state.delete(key)
    for key, kind in _holds(candidate_id, draft):
        state.put(key, kind)
    state.put(draft_key(at), encode_plain(draft))
    _set_body(state, at, {DRAFT_DIGEST: draft.digest.hex(), "last_error": None})
    skill = event.get("skill")
    after = row._replace(
        status=to,
        held=row.held if to == row.status else None,
        updated_at=iso(now),
        draft_id=check_file_id(event.get("draft_id"), "draft"),
        draft_skill_name=row.draft_skill_name if skill is None else check_file_id(skill, "skill"),
    )
    put_row(state, at, after, row)
    facts = {
        DRAFT_DIGEST: draft.digest.hex(),
        "draft_id": after.draft_id,
        "base": draft.base,
    }
    entry = Entry(
        candidate_id,
        f"candidate_{to}",
        now,
        id_of(event, "actor", "actor"),
        from_status=row.status,
        to_status=to,
        token=token,
        payload=encode_document(facts, "payload"),
    )
    put_entry(state, place, entry)


def intend(state: MutableState, event: dict[str, Any], place: Place) -> None:
    """Say that the draft of a candidate is about to be published; nothing else happens to it."""
    candidate_id = id_of(event, "id", "candidate")
    at, row = find_row(state, candidate_id)
    draft = find_draft(state, at)
    if draft is None:
        raise RefusedError(f"candidate {candidate_id} has no draft to publish")
    check_unpublished(candidate_id, draft)
    now, token = number_of(event, "now"), event.get("token")
    check_published(row)
    _check_hold(state, row, PUBLISHED, now, token)
    reports = event.get("reports")
    if not isinstance(reports, list):
        raise RefusedError("an intent to publish has a list of reports")
    intent = Intent(
        _identity(event),
        now,
        id_of(event, "actor", "actor"),
        check_text(text_of(event, "description"), "description"),
        [check_text(report, "report") for report in reports],
        token,
    )
    put_row(state, at, row._replace(intent=list(intent), updated_at=iso(now)), row)
    state.put(publishing_key(at), b"")
    entry = Entry(
        candidate_id,
        "candidate_publishing",
        now,
        intent.actor,
        from_status=row.status,
        to_status=row.status,
        token=token,
    )
    put_entry(state, place, entry)


def conclude(state: MutableState, event: dict[str, Any], place: Place) -> None:
    """End an intent as the catalogue decided it: ``published``, or ``publication-refused``."""
    candidate_id = id_of(event, "id", "candidate")
    at, row = find_row(state, candidate_id)
    draft = find_draft(state, at)
    if draft is None or row.intent is None or row.intent[0] != _identity(event):
        raise ConflictError(f"candidate {candidate_id} is not being published by this intent")
    intent, now = Intent._make(row.intent), number_of(event, "now")
    after = row._replace(intent=None, updated_at=iso(now))
    if event["type"] == "published":
        resource, number = check_resource(text_of(event, "resource")), number_of(event, "number")
        if not 0 < number <= MAX_NUMBER:
            raise RefusedError("a version's number is 1 or more")
        spec = f"{resource}@v{number}"
        after = after._replace(status=PUBLISHED, held=None)
        state.put(draft_key(at), encode_plain(draft._replace(published=[resource, number])))
        _note(state, at, {PUBLISHED_AS: spec, "last_error": None})
        what, actor = f"candidate_{PUBLISHED}", intent.actor
        facts: dict[str, Any] = {"version": spec, "reports": intent.reports}
        if intent.description:
            facts["description"] = intent.description
    else:
        reason = text_of(event, "reason")
        _note(state, at, {"last_error": reason})
        what, actor = "publication_refused", id_of(event, "actor", "actor")
        facts = {"reason": reason}
    put_row(state, at, after, row)
    state.delete(publishing_key(at))
    entry = Entry(
        candidate_id,
        what,
        now,
        actor,
        from_status=row.status,
        to_status=after.status,
        token=intent.token,
        payload=encode_document(facts, "payload"),
    )
    put_entry(state, place, entry)


def check_unpublished(candidate_id: str, draft: Draft | None) -> None:
    """See that a candidate was not published.

    Raises:
        ConflictError: It was.
    """
    if draft is not None and draft.published is not None:
        resource, number = draft.published
        raise ConflictError(
            f"candidate {candidate_id} was published as {resource}@v{number}; "
            "record another candidate for what is to follow",
            candidate_id=candidate_id,
            version=f"{resource}@v{number}",
        )


def _check_hold(state: State, row: Row, to: str, now: int, token: Any) -> None:
    """See that whoever changes a candidate holds it, if anybody does, and may do so."""
    if token is not None:
        check_token(row, token)
    check_leaving(row, to, now, token=token, forced=False)
    if to != row.status:
        check_transition(state, row, to, forced=False)


def _draft_of(event: dict[str, Any]) -> Draft:
    path = event.get("path")
    if not isinstance(path, bytes) or not check_path(path):
        raise RefusedError("a draft is of a path in a version")
    draft = Draft(
        event.get("draft_type", ""),
        number_of(event, "size"),
        digest_of(event),
        number_of(event, "files"),
        check_resource(text_of(event, "resource")),
        number_of(event, "number"),
        path,
        event.get("base_type", ""),
        number_of(event, "base_size"),
        digest_of(event, "base_digest"),
        None,
    )
    if draft.type not in _TYPES or draft.base_type not in _TYPES:
        raise RefusedError("a draft is a directory or a file")
    if (draft.type == "d") != (draft.base_type == "d"):
        raise RefusedError("a draft is a directory where its base is one, and a file where not")
    if (draft.type, draft.digest) == (draft.base_type, draft.base_digest):
        raise RefusedError("a draft is not what it is made from")
    return draft


def _holds(candidate_id: str, draft: Draft) -> list[tuple[bytes, bytes]]:
    """Return the keys that keep a draft and its base, with what they keep."""
    return [
        (held_key(draft.digest, f"learn:{candidate_id}"), _kind(draft.type)),
        (held_key(draft.base_digest, f"learn-base:{candidate_id}"), _kind(draft.base_type)),
    ]


def _kind(entry_type: str) -> bytes:
    return b"tree" if entry_type == "d" else b"blob"


def _identity(event: dict[str, Any]) -> bytes:
    identity = event.get("publication")
    if not isinstance(identity, bytes) or len(identity) != PUBLICATION_SIZE:
        raise RefusedError(f"the event {event['type']} has no publication")
    return identity


def _note(state: MutableState, at: bytes, fields: dict[str, Any]) -> None:
    """Set fields in the document of a candidate, if they fit; the audit has them in any case.

    What was begun comes to its end whatever the document holds.
    """
    try:
        _set_body(state, at, fields)
    except RefusedError:
        pass


def _set_body(state: MutableState, at: bytes, fields: dict[str, Any]) -> None:
    """Set fields in the document of a candidate."""
    candidate = read_candidate(state, at).to_dict() | fields
    body = {name: value for name, value in candidate.items() if name not in IN_ROW}
    state.put(body_key(at), encode_document(body, f"candidate {candidate['candidate_id']}"))
