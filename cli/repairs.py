"""`cas repair`: good copies for what is damaged or lost."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .output import Output, count, short, visible
from .reports import report_lines, verdict
from .session import FINDINGS, Session, command

if TYPE_CHECKING:
    import cas


app = typer.Typer(rich_markup_mode=None)


@command(app, "repair")
def repair(
    session: Session,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="STORE|WORKSPACE|DIR",
            help="What has good copies: a store, or any directory whose files fit.",
        ),
    ],
) -> int:
    """Heal what is damaged or lost with good copies from elsewhere, and verify.

    Good copies take the place of bad ones. A damaged catalogue is made anew from what can be read
    of it, of a copy of the store, and from the objects. What cannot be healed is put into the
    store's quarantine folder. Exits with 1 if anything is still wrong.
    """
    return heal(session, source)


def heal(session: Session, source: str, budget: float | None = None) -> int:
    """Repair the store, say what was done, and return the exit code.

    Args:
        session: The run of the command.
        source: What has good copies.
        budget: Seconds to read for.
    """
    with session.progress() as progress:
        done = _open(session, source).repair(
            source, budget=budget, workers=session.workers, progress=progress
        )
    session.done(done, *_lines(done, session.out), notices=map(visible, done.notices))
    return 0 if done.report.ok else FINDINGS


def _open(session: Session, source: str) -> "cas.Store":
    """Open the store, also where it does not say any more which one it is."""
    import cas

    try:
        return session.store()
    except cas.FormatError as error:
        path = error.facts["path"]
        cas.Store.mend(os.path.dirname(path), source).close()
        session.note(f"{session.out.path(path)} was written anew")
    return session.store()


def _lines(done: "cas.Repaired", out: Output) -> Iterator[str]:
    healed, aside = out.paint("healed      ", "green"), out.paint("put aside   ", "red")
    for one in done.healed:
        what = short(one.digest) if one.digest is not None else "-"
        yield f"{healed}  {what:12}  {out.path(one.location)}  {visible(one.how)}"
    for key in done.quarantined:
        yield f"{aside}  {out.path(key)}"
    yield from report_lines(done.report, out)
    yield f"healed {count(len(done.healed), 'finding')}; {verdict(done.report)}"
