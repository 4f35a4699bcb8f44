"""`cas verify`: prove a store, a part of it, a workspace, or any copied directory."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from .arguments import duration, percentage
from .repairs import heal
from .reports import report_lines, verdict
from .session import FINDINGS, Session, command

if TYPE_CHECKING:
    import cas


app = typer.Typer(rich_markup_mode=None)


@command(app, "verify")
def verify(
    session: Session,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="SPEC|WORKSPACE", help="Only this; else the whole store.", show_default=False
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Structure and sizes only; contents are not read.")
    ] = False,
    sample: Annotated[
        str | None,
        typer.Option("--sample", metavar="PERCENT", help="Read so much of it, by chance."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Stop reading after TIME, such as 10m; the next run goes on from there.",
        ),
    ] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", metavar="DIR", help="Prove a copy made by any tool.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="SPEC", help="What DIR shall be equal to.")
    ] = None,
    repair_from: Annotated[
        str | None,
        typer.Option(
            "--repair-from",
            metavar="STORE|WORKSPACE|DIR",
            help="Heal what is found with good copies from there, as cas repair does.",
        ),
    ] = None,
) -> int:
    """Read everything and compare it with its digests.

    Exits with 1 if anything is wrong. A WORKSPACE is proven without its store. With --dir, any
    directory is compared with what --against names: missing, extra and changed files are found.
    """
    if repair_from is not None:
        if quick or any(one is not None for one in (target, sample, directory, against)):
            raise typer.BadParameter("goes with --budget alone", param_hint="--repair-from")
        seconds = None if budget is None else duration(budget, "--budget")
        return heal(session, repair_from, seconds)
    report = _prove(session, target, quick, sample, budget, directory, against)
    if session.json:
        session.out.document(report.to_json())
    else:
        for line in report_lines(report, session.out):
            session.out.line(line)
        session.say(verdict(report))
    return 0 if report.ok else FINDINGS


def _prove(
    session: Session,
    target: str | None,
    quick: bool,
    sample: str | None,
    budget: str | None,
    directory: str | None,
    against: str | None,
) -> "cas.VerifyReport":
    import cas

    if (directory is None) != (against is None):
        raise typer.BadParameter("each needs the other", param_hint="--dir / --against")
    partial = quick or sample is not None or budget is not None
    offline = target is not None and os.path.isdir(target)
    if directory is not None and (target is not None or partial):
        raise typer.BadParameter("goes with --against alone", param_hint="--dir")
    if offline and partial:
        raise typer.BadParameter(
            "a workspace is proven whole", param_hint="--quick / --sample / --budget"
        )
    share = None if sample is None else percentage(sample, "--sample")
    seconds = None if budget is None else duration(budget, "--budget")
    with session.progress() as progress:
        if directory is not None and against is not None:
            return session.store().verify_directory(
                directory, against=against, workers=session.workers, progress=progress
            )
        if target is not None and offline:
            return cas.verify_workspace(target, workers=session.workers, progress=progress)
        try:
            store = session.store()
        except cas.DamagedError as error:
            return cas.VerifyReport.of_unopenable(error)
        return store.verify(
            target,
            quick=quick,
            sample=share,
            budget=seconds,
            workers=session.workers,
            progress=progress,
        )
