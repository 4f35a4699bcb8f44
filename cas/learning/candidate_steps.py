"""Steps of the fold that record candidates, change them, and set which changes are allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cas.codec import encode_plain
from cas.errors import ConflictError, RefusedError
from cas.learning.audit import NOTHING, Entry, put_entry
from cas.learning.document import MAX_DOCUMENT, decode_document, encode_document
from cas.learning.draft_steps import DRAFT_DIGEST, PUBLISHED_AS
from cas.learning.fields import id_of, map_of, number_of, text_of
from cas.learning.ids import check_id
from cas.learning.keys import CONFIG, CONFIGURED, body_key, id_key
from cas.learning.model import CANDIDATE, check_field
from cas.learning.rows import IN_ROW, Row, find_row, iso, put_row
from cas.learning.rules import check_leaving, check_token, check_transition
from cas.learning.status import check_status, check_transitions

if TYPE_CHECKING:
    from cas.eventlog import MutableState
    from cas.learning.keys import Place

NOT_SET = frozenset(
    {"candidate_id", "status", "created_at", "updated_at", DRAFT_DIGEST, PUBLISHED_AS}
)
"""Fields that are never set as such: the store sets them."""


def configure(state: MutableState, event: dict[str, Any], place: Place) -> None:
    """Replace the configuration: ``transitions``, a table or nothing for any transition."""
    config = map_of(event, "config", max_bytes=MAX_DOCUMENT)
    if config.keys() - {"transitions"}:
        raise RefusedError("the configuration of a learning log has transitions and nothing else")
    if config.get("transitions") is not None:
        check_transitions(config["transitions"])
    state.put(CONFIG, event["config"])
    if event.keys() & {"actor", "now"}:  # the first logs did not say
        told = [number_of(event, "now"), id_of(event, "actor", "actor"), event["config"]]
        state.put(CONFIGURED + place.key, encode_plain(told))


def record(state: MutableState, event: dict[str, Any], place: Place) -> None:
    """Add a candidate; ``quiet`` leaves the audit alone, for one that brings its own."""
    candidate_id = id_of(event, "id", "candidate")
    key = id_key(candidate_id)
    if state.get(key) is not None:
        raise ConflictError(
            f"candidate {candidate_id} exists; record it under another id, or update it",
            candidate_id=candidate_id,
        )
    now = number_of(event, "now")
    created_at = text_of(event, "created_at") or iso(now)
    row = Row(
        candidate_id=candidate_id,
        kind=id_of(event, "kind", "kind"),
        status=check_status(event.get("status")),
        draft_skill_name=_optional_id(event, "draft_skill_name"),
        draft_id=_optional_id(event, "draft_id"),
        created_at=created_at,
        updated_at=text_of(event, "updated_at") or created_at,
        held=None,
        intent=None,
    )
    body = map_of(event, "body", max_bytes=MAX_DOCUMENT)
    if not {"reason", "last_error"} <= body.keys() or body.keys() & IN_ROW:
        raise RefusedError("the document of a candidate has reason and last_error")
    state.put(key, place.key)
    state.put(body_key(place.key), event["body"])
    put_row(state, place.key, row)
    if event.get("quiet") is not True:
        entry = Entry(
            candidate_id,
            "candidate_recorded",
            now,
            id_of(event, "actor", "actor"),
            to_status=row.status,
        )
        put_entry(state, place, entry)


def change(state: MutableState, event: dict[str, Any], place: Place) -> None:
    """Change the status of a candidate, other fields of it, or both."""
    candidate_id = id_of(event, "id", "candidate")
    at, row = find_row(state, candidate_id)
    now, forced = number_of(event, "now"), event.get("forced") is True
    token = None if event.get("token") is None else number_of(event, "token")
    if token is not None and not forced:
        check_token(row, token)
    to = row.status if event.get("to") is None else check_status(event["to"])
    held = row.held
    if to != row.status:
        check_leaving(row, to, now, token=token, forced=forced)
        check_transition(state, row, to, forced=forced)
        held = None
    after = row._replace(status=to, held=held, updated_at=iso(now))
    if event.get("set") is not None:
        after = _set(state, at, after, map_of(event, "set", max_bytes=MAX_DOCUMENT))
    put_row(state, at, after, row)
    map_of(event, "payload", max_bytes=MAX_DOCUMENT)
    entry = Entry(
        candidate_id,
        id_of(event, "event_type", "event type"),
        now,
        id_of(event, "actor", "actor"),
        from_status=row.status,
        to_status=to,
        token=token,
        forced=forced,
        payload=NOTHING if event["payload"] == NOTHING else event["payload"],
    )
    put_entry(state, place, entry)


def _set(state: MutableState, at: bytes, row: Row, fields: dict[str, Any]) -> Row:
    """Change fields in the document of a candidate, and return its row with those of the row."""
    if kept := sorted(fields.keys() & NOT_SET):
        raise RefusedError(f"{', '.join(kept)} of candidate {row.candidate_id} cannot be set")
    encoded = state.get(body_key(at))
    assert encoded is not None, "the fold writes row and document together"
    body = decode_document(encoded)
    for name, value in fields.items():
        kept = check_field(name, value) if name in CANDIDATE else value
        if name in IN_ROW:
            row = row._replace(**{name: kept})
        else:
            body[name] = kept
    if fields.keys() - IN_ROW:
        what = f"candidate {row.candidate_id}"
        state.put(body_key(at), encode_document(body, what))
    return row


def _optional_id(event: dict[str, Any], field: str) -> str | None:
    value = event.get(field)
    return None if value is None else check_id(value, field.replace("_", " "))
