"""`cas learn watch`: what happens to the candidates, as JSON lines."""

import json
import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from .session import Session, command

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
            now = (learning.get(candidate_id) for candidate_id in come)
            _print(session, (found.to_dict() for found in now if found.status == status))
        if not follow:
            return
        time.sleep(_PAUSE)


def _print(session: Session, values: Iterable[dict[str, Any]]) -> None:
    for value in values:
        session.out.line(json.dumps(value))
    session.out.flush()
