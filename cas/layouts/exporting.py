"""Exporting an old layout: whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cas import fs
from cas.catalogue.seed import seed_from_ref
from cas.catalogue.version import version_from_ref
from cas.checkout import preflight
from cas.checkout.modes import mode_used, notices
from cas.checkout.stage import Stage
from cas.checkout.writers import Writers
from cas.checkout.writing import AUTO
from cas.errors import ConflictError, RefusedError, UnsupportedError
from cas.layouts.board import write_board
from cas.layouts.laying import Layout
from cas.layouts.results import Exported
from cas.learning import Learning
from cas.manifests import DIR
from cas.progress import Meter
from cas.workspace.handles import Handles
from cas.workspace.runs import runs, without

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.catalogue.context import Context
    from cas.layouts.laying import Note
    from cas.progress import Progress
    from cas.workspace.runs import Run


def export_layout(
    context: Context, directory: str | os.PathLike[str], *, progress: Progress | None
) -> Exported:
    """Write all versions and seeds as an old version store; see `Store.export_layout`."""
    _check_free(Path(directory))
    refs = context.refs
    refs.refresh()
    layout = Layout(
        context.objects.read,
        (version_from_ref(ref) for resource in refs.resources() for ref in refs.versions(resource)),
        (seed_from_ref(ref) for ref in refs.seeds()),
    )
    learning = Learning(context)
    if not layout.versions and not layout.seeds and learning.is_empty():
        raise RefusedError(
            f"the store {context.root} has no versions, seeds or candidates to export"
        )
    tree = layout.tree()
    context.heed_purges()
    left_out: dict[bytes, str] = {}

    def found() -> Iterator[Run]:
        return without(runs(layout.read, tree.digest), context.objects.purged, left_out)

    with Stage(directory) as stage:
        abilities = preflight.probe(stage.fd)
        if not (abilities.names and abilities.symlinks):
            preflight.check_tree(stage.fd, found(), abilities)
        meter = Meter(progress, "export", total_files=tree.files, total_bytes=tree.bytes)
        with Writers(
            context.objects,
            stage.fd,
            stage.path,
            AUTO,
            sync=True,
            expected=(tree.files, tree.bytes),
        ) as writers:
            for _, entries, _ in writers.write(found()):
                written = [entry for entry in entries if entry[1] != DIR]
                meter.add(len(written), sum(entry[2] for entry in written))
            tally = writers.tally
        meter.finish()
        _tell(stage.fd, layout)
        with Handles(stage.fd) as handles:
            board = write_board(handles, learning)
        fs.sync_filesystem(stage.fd)
        stage.place(sync=True)
    told = [*layout.notices, *notices(abilities, AUTO, stage.dest, left_out=left_out)]
    tags = sum(1 for _ in refs.tags())
    if tags:
        told.append(f"an old version store has no tags: {tags} of them stay here")
    if layout.left_out:
        told.append(f"an old version store has no place for {', '.join(layout.left_out)}")
    return Exported(
        directory=stage.dest,
        versions=tuple(layout.versions),
        seeds=tuple(layout.seeds),
        left_out=tuple(layout.left_out),
        files=tally.files,
        bytes=tally.bytes,
        mode=mode_used(AUTO, tally),
        notices=tuple(told),
        learning=board,
    )


def _check_free(directory: Path) -> None:
    """Refuse a destination that is in use, before anything else is done.

    Raises:
        ConflictError: Something is there.
    """
    if os.path.lexists(directory) and (
        not os.path.isdir(directory) or os.path.islink(directory) or os.listdir(directory)
    ):
        raise ConflictError(
            f"{directory} is there already; export into a directory that is empty or does not "
            "exist",
            path=os.fspath(directory),
        )


def _tell(stage: int, layout: Layout) -> None:
    """Write what tells about versions and seeds, and the times that tell about plain folders."""
    with Handles(stage) as handles:
        for note in layout.notes:
            _write(handles, note)
        for bare in layout.bare:
            fd = handles.get(bare.folder)
            fs.set_times(fd, bare.time_ns)
            if os.fstat(fd).st_mtime_ns != bare.time_ns:
                _write(handles, bare.note)


def _write(handles: Handles, note: Note) -> None:
    try:
        fd = fs.create_excl(note.name, 0o666, handles.get(note.folder))
    except FileExistsError:
        name = os.fsdecode(note.folder + b"/" + note.name)
        raise UnsupportedError(
            f"{name!r} is taken: the destination's filesystem does not tell names apart as "
            "the store does; export to another one",
            path=name,
        ) from None
    try:
        fs.write_all(fd, note.content)
    finally:
        os.close(fd)
