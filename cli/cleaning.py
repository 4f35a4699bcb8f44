"""`cas gc` and `cas repack`: what nothing needs goes, and what stays lies well."""

from typing import Annotated

import typer

from .arguments import duration, natural
from .output import count, short, size, visible
from .session import Session, command

app = typer.Typer(rich_markup_mode=None)


@command(app, "gc")
def gc(
    session: Session,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    grace: Annotated[
        str | None,
        typer.Option(
            "--grace",
            metavar="TIME",
            help="Keep what lost its name, or was placed, less than TIME ago; else 14d.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", help="Begin to remove nothing more after TIME."),
    ] = None,
) -> None:
    """Remove content that nothing needs any more.

    Needed is what versions, seeds and tags name, what learning candidates and remembered workspaces
    hold, and all of it that was removed within the grace. Others may go on reading and writing.
    """
    seconds = None if grace is None else duration(grace, "--grace")
    limit = None if budget is None else duration(budget, "--budget")
    with session.progress() as progress:
        done = session.store().gc(grace=seconds, dry_run=dry_run, budget=limit, progress=progress)
    does = "would remove" if done.dry_run else "removed"
    removed = count(done.removed_objects, "object")
    session.done(
        done,
        f"{does} {removed}, {size(done.removed_bytes)}; {count(done.kept_objects, 'object')} stay",
        notices=map(visible, done.notices),
    )


@command(app, "purge")
def purge(
    session: Session,
    spec: Annotated[
        str, typer.Argument(metavar="SPEC:PATH|DIGEST", help="The file.", show_default=False)
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why: others are told.")],
) -> None:
    """Take the content of a file out of every version, at once and for good.

    For a secret that leaked, or a video that was withdrawn. It cannot be stored again, and a
    checkout of what held it leaves it out. Workspaces, other stores and backups are not reached.
    """
    done = session.store().purge(spec, reason=reason)
    session.done(
        done,
        *(f"purged {session.out.path(place)}" for place in done.affects),
        f"{short(done.digest)} is gone for good: {count(done.copies, 'copy', 'copies')}, "
        f"{size(done.bytes)}",
        notices=map(visible, done.notices),
    )


@command(app, "repack")
def repack(
    session: Session,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            metavar="1..19",
            help="Write all packs anew, compressed at this level of zstd.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would write, and the space for it.")
    ] = False,
) -> None:
    """Write small packs anew as fewer and fuller ones.

    No object changes. Others may go on reading and adding, and it may be interrupted.
    """
    wanted = None if level is None else natural(level, "--level")
    store = session.store()
    if not dry_run:
        session.note(f"needs up to {size(store.repack(level=wanted, dry_run=True).needed_bytes)}")
    with session.progress() as progress:
        done = store.repack(level=wanted, dry_run=dry_run, progress=progress)
    if done.dry_run:
        text = f"would write {size(done.rewritten_bytes)} anew, with {size(done.needed_bytes)} free"
    else:
        packs = f"{count(done.packs_before, 'pack')}, {size(done.bytes_before)}"
        text = f"{packs} -> {count(done.packs_after, 'pack')}, {size(done.bytes_after)}"
    session.done(done, text)
