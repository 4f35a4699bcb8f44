"""`cas learn …`: candidates for changes of skills, recorded, listed and moved on."""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import learn_claims, learn_drafts, learn_perf, learn_reports, learn_watch
from .arguments import natural, pairs, wrong
from .inputs import opened, parsed
from .learn_drafts import Actor, Id, Token
from .output import table, title, visible, when
from .session import Session, command, group

if TYPE_CHECKING:
    import cas

Status = Annotated[
    str | None, typer.Option("--status", metavar="S", help="Only those that have it now.")
]
Kind = Annotated[str | None, typer.Option("--kind", metavar="K", help="Only of this kind.")]

app = typer.Typer(rich_markup_mode=None)
_learn = group("learn", "Candidates for changes of skills: recorded, claimed, drafted, published.")
for part in (learn_claims, learn_drafts, learn_watch):
    _learn.add_typer(part.app)
_learn.add_typer(learn_perf.app)
_learn.add_typer(learn_reports.app)
app.add_typer(_learn)


@command(_learn, "record")
def record(
    session: Session,
    candidate_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The candidate's name.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="K", help="What kind of proposal.")
    ] = None,
    status: Annotated[
        str, typer.Option("--status", metavar="S", help="What it begins as.")
    ] = "open",
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why it is made.")] = "",
    field: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="K=V", help="One more text; may be repeated."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE-or-", help="Candidates as JSON lines; - is stdin."),
    ] = None,
    if_absent: Annotated[
        bool, typer.Option("--if-absent", help="One that is there already is no conflict.")
    ] = False,
    actor: Actor = None,
) -> None:
    """Record a candidate, or all of a file of JSON lines."""
    from cas import Candidate

    if source is not None:
        if candidate_id is not None or kind is not None or field:
            raise wrong("--from", "the file says it all; give no --id, --kind or --field with it")
        _record_all(session, source, if_absent=if_absent, actor=actor)
        return
    if candidate_id is None or kind is None:
        raise wrong("--id", "name the candidate with --id and --kind, or a file with --from")
    texts = pairs(field or (), "--field")
    given = {"candidate_id": candidate_id, "kind": kind, "status": status, "reason": reason}
    doubled = sorted(given.keys() & texts.keys())
    if doubled:
        raise wrong("--field", f"{doubled[0]!r} has an option of its own")
    candidate, created = _record(
        session, Candidate.from_dict(given | texts), if_absent=if_absent, actor=actor
    )
    if session.json:
        session.out.document({**candidate.to_dict(), "created": created})
    done = "recorded" if created else "is there already"
    session.say(f"{visible(candidate.candidate_id)}: {done}, {candidate.status}")


def _record(
    session: Session, candidate: "cas.Candidate", *, if_absent: bool, actor: str | None
) -> tuple["cas.Candidate", bool]:
    learning = session.store().learning
    if if_absent:
        return learning.record_if_absent(candidate, actor=actor)
    return learning.record(candidate, actor=actor), True


def _record_all(session: Session, source: str, *, if_absent: bool, actor: str | None) -> None:
    candidates = list(_read_lines(source))
    if if_absent:
        created = sum(
            _record(session, candidate, if_absent=True, actor=actor)[1] for candidate in candidates
        )
    else:
        created = len(session.store().learning.record_all(candidates, actor=actor))
    present = len(candidates) - created
    if session.json:
        session.out.document({"recorded": created, "present": present})
    session.say(f"recorded {created:,}" + (f"; {present:,} were there already" if present else ""))


def _read_lines(source: str) -> Iterator["cas.Candidate"]:
    from cas import Candidate, RefusedError

    with opened(source) as (file, name):
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield Candidate.from_dict(parsed(line))
                except ValueError as error:
                    raise RefusedError(
                        f"line {number} of {name} is no candidate: {error}", line=number
                    ) from None


@command(_learn, "list")
def list_(session: Session, status: Status = None, kind: Kind = None) -> None:
    """List the candidates, oldest first."""
    found = session.store().learning.each(status, kind)
    if session.json:
        session.out.documents(candidate.to_dict() for candidate in found)
        return
    for line in _lines(found):
        session.out.line(line)


def _lines(found: Iterable["cas.Candidate"]) -> Iterator[str]:
    return table(
        (
            visible(candidate.candidate_id),
            candidate.status,
            visible(candidate.kind),
            when(candidate.updated_at),
            title(candidate.reason),
        )
        for candidate in found
    )


@command(_learn, "show")
def show(session: Session, candidate_id: Id) -> None:
    """Show all that is known of a candidate, and who holds it."""
    learning = session.store().learning
    candidate, lease = learning.get(candidate_id), learning.lease(candidate_id)
    held = None if lease is None else lease._asdict()
    if session.json:
        session.out.document({**candidate.to_dict(), "lease": held})
        return
    for name, value in candidate.to_dict().items():
        if value not in (None, ""):
            text = value if isinstance(value, str) else json.dumps(value)
            session.out.line(f"{name:<18} {visible(text)}")
    if lease is not None:
        until = "until" if lease.live else "lapsed"
        session.out.line(
            f"{'held by':<18} {visible(lease.owner)}, {until} {when(lease.expires_at)}"
        )


@command(_learn, "transition")
def transition(
    session: Session,
    candidate_id: Id,
    status: Annotated[str, typer.Argument(metavar="STATUS", help="What it becomes.")],
    token: Token = None,
    actor: Actor = None,
    event: Annotated[
        str | None,
        typer.Option(
            "--event", metavar="TYPE", help="The audit's word for it.", show_default=False
        ),
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON", help="What the audit keeps with it.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="K=V", help="Set a field to a text; may be repeated."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Against the rules; the audit says so.")
    ] = False,
) -> None:
    """Move a candidate to another status, with its audit event."""
    candidate = session.store().learning.change(
        candidate_id,
        status,
        pairs(set_ or (), "--set"),
        event_type=event,
        payload=_document(payload),
        token=None if token is None else natural(token, "--token"),
        actor=actor,
        force=force,
    )
    if session.json:
        session.out.document(candidate.to_dict())
    session.say(f"{visible(candidate_id)}: {candidate.status}")


def _document(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = parsed(text)
    except ValueError as error:
        raise wrong("--payload", f"it is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise wrong("--payload", "it is a JSON object, such as '{\"score\": 1}'")
    return value


@command(_learn, "audit")
def audit(
    session: Session,
    candidate_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Only of this candidate.", show_default=False),
    ] = None,
) -> None:
    """Show what was done, by whom and when, in the order of the log."""
    found = session.store().learning.audit_events(candidate_id)
    if session.json:
        session.out.documents(event.to_dict() for event in found)
        return
    for line in _audit_lines(found):
        session.out.line(line)


def _audit_lines(found: Iterable["cas.AuditEvent"]) -> Iterator[str]:
    return table(
        (
            when(event.created_at),
            visible(event.candidate_id),
            visible(event.event_type),
            "" if event.to_status is None else f"{event.from_status or '-'} -> {event.to_status}",
            visible(event.actor) + (" (forced)" if event.forced else ""),
        )
        for event in found
    )


@command(_learn, "compact")
def compact(session: Session) -> None:
    """Fold the learning log into a snapshot; its audit stays."""
    compacted = session.store().learning.compact(full=True)
    if session.json:
        session.out.document({"compacted": compacted})
    session.say("compacted" if compacted else "there was nothing to compact")
