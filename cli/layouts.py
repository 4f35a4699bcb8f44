"""`cas import`, `cas export`: old version stores and learning folders, in and out."""

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from .output import count, files_and_size, visible
from .session import Session, command

if TYPE_CHECKING:
    import cas


app = typer.Typer(rich_markup_mode=None)


@command(app, "import")
def import_layout(
    session: Session,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The old folder.")],
) -> None:
    """Take in an old version store, a learning folder, or both in one, without changing it.

    Numbers, gaps, metadata and times stay as they are. All names come in, or none. What is damaged
    there is skipped and said; what the store has already is left alone.
    """
    store = session.store()
    with session.progress() as progress:
        done = store.import_layout(directory, progress=progress)
    skipped = [f"skipped {visible(_path(one))}: {one.reason}" for one in done.skipped]
    session.done(done, *_imported(done), notices=[*skipped, *map(visible, done.notices)])


def _path(skipped: "cas.Skipped") -> str:
    return skipped.path.decode("utf-8", "surrogateescape")


def _imported(done: "cas.Imported") -> Iterator[str]:
    for resource, versions in groupby(done.versions, key=lambda version: version.resource):
        made = list(versions)
        which = made[0].version if len(made) == 1 else f"{made[0].version} to {made[-1].version}"
        yield f"{resource}: {count(len(made), 'version')}, {which}"
    for seed in done.seeds:
        yield seed.spec
    learned = done.learning
    if learned is not None:
        brought = _learned(
            learned.candidates, learned.audit_events, learned.performance, learned.reports
        )
        yield f"learning: {brought}" + (f"; {learned.known:,} here already" * bool(learned.known))
    what = f"{count(len(done.versions), 'version')} and {count(len(done.seeds), 'seed')}"
    yield f"imported {what}, {files_and_size(done.files, done.bytes)}" + "".join(
        f"; {count(number, 'name')} {how}"
        for number, how in (
            (len(done.present), "here already"),
            (len(done.skipped), "skipped"),
        )
        if number
    )


def _learned(candidates: int, events: int, snapshots: int, reports: int) -> str:
    return (
        f"{count(candidates, 'candidate')}, {count(events, 'audit event')}, "
        f"{count(snapshots, 'snapshot')}, {count(reports, 'report')}"
    )


@command(app, "export")
def export_layout(
    session: Session,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The directory to make.")],
) -> None:
    """Write versions, seeds and candidates into DIR in the old layouts, whole or not at all.

    DIR must not exist or be empty. An import of it gives the same versions and seeds.
    """
    store = session.store()
    with session.progress() as progress:
        done = store.export_layout(directory, progress=progress)
    what = f"{count(len(done.versions), 'version')} and {count(len(done.seeds), 'seed')}"
    laid = f"{what}, {files_and_size(done.files, done.bytes)} ({done.mode})"
    lines = [f"{session.out.path(str(done.directory))}: {laid}"]
    if any(done.learning.values()):
        lines.append(f"learning: {_learned(*done.learning.values())}")
    session.done(
        done,
        *lines,
        notices=map(visible, done.notices),
    )
