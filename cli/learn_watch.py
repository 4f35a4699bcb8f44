"""`cas learn watch`: what happens to the candidates, as JSON lines."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .session import Session, command

if TYPE_CHECKING:
    import cas

_PAUSE = 0.25
"""Seconds between two looks."""

app = typer.Typer(rich_markup_mode=None)


@command(app, "watch")
def watch(
    session: Session,
    status: Annotated[
        str | None,
        typer.Option("--status", metavar="S", help="The candidates that have it, not the events."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until stopped.")
    ] = False,
) -> None:
    """Print what was done to the candidates, or the candidates of one status, as JSON lines."""
    learning = session.store().learning
    place = _place(session)
    mark = ""
    if status is not None:
        mark = learning.audit_end()
        _print(session, (candidate.to_dict() for candidate in learning.each(status)))
    while True:
        events, mark = learning.audit_since(mark)
        if status is None:
            _print(session, (event.to_dict() for event in events))
        else:
            come = {event.candidate_id: 0 for event in events if event.to_status == status}
            _print(session, _still(learning, come, status))
        if not follow:
            return
        session.out.wait(_PAUSE)
        if _place(session) != place:
            raise _gone(session)


def _place(session: Session) -> tuple[int, int]:
    """Return what tells the store's directory from any other that gets its name."""
    try:
        found = os.stat(session.store().root)
    except FileNotFoundError:
        raise _gone(session) from None
    return found.st_dev, found.st_ino


def _gone(session: Session) -> Exception:
    from cas import NotFoundError

    root = session.store().root
    return NotFoundError(f"the store {root} is gone: it was moved or removed", path=str(root))


def _still(
    learning: "cas.Learning", candidates: Iterable[str], status: str
) -> Iterator[dict[str, Any]]:
    """Give the candidates that have a status now; an import may tell of some that are not there."""
    from cas import UnknownCandidateError

    for candidate_id in candidates:
        with contextlib.suppress(UnknownCandidateError):
            found = learning.get(candidate_id)
            if found.status == status:
                yield found.to_dict()


def _print(session: Session, values: Iterable[dict[str, Any]]) -> None:
    for value in values:
        session.out.line(json.dumps(value))
    session.out.flush()
