"""Checking out a tree into a directory, whole or not at all."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from cas import fs
from cas.checkout import preflight
from cas.checkout.modes import check_mode, check_mode_name, mode_used, notices
from cas.checkout.recording import IndexFile, now
from cas.checkout.result import CheckedOut
from cas.checkout.stage import Stage
from cas.checkout.writers import Writers
from cas.checkout.writing import AUTO, Tally
from cas.digest import Digest
from cas.errors import (
    CasError,
    ConflictError,
    CorruptObjectError,
    NotFoundError,
    environment_failure,
)
from cas.manifests import DIR, parse_tree
from cas.names import MEMORY
from cas.progress import Meter
from cas.workspace.changes import status_of
from cas.workspace.memory import (
    Opened,
    WorkspaceState,
    new_id,
    write_state,
)
from cas.workspace.registry import forget, register
from cas.workspace.runs import runs, without
from cas.workspace.verify import verify_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cas.checkout.writers import Written
    from cas.manifests import Entry
    from cas.objects import ObjectStore
    from cas.progress import Progress
    from cas.workspace.runs import Run


def checkout(
    objects: ObjectStore,
    tree: bytes,
    dest: str | os.PathLike[str],
    *,
    mode: str = AUTO,
    only: Sequence[str] = (),
    force: bool = False,
    verify: bool = False,
    sync: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
    memory: WorkspaceState | None = None,
) -> CheckedOut:
    """Write a tree into a directory, which is there whole afterwards, or as it was before.

    Args:
        objects: Where content comes from.
        tree: Digest of the tree.
        dest: A directory that does not exist or is empty; with `force` also a workspace that
            nobody changed, which is replaced.
        mode: `auto` (reflink where it can be had, else copy), `reflink`, `copy` or `hardlink`.
        only: Globs (gitignore grammar); only paths that match one, and their parents, are written.
        force: Replace a workspace at `dest`, if its status is clean.
        verify: Read back and hash every file before the directory gets its name.
        sync: Make everything durable before the directory gets its name, and the name too.
        workers: How many processes write; by default as many as pay.
        progress: Called with what was done so far.
        memory: What the workspace is to remember of where it came from; without it the directory
            is an ordinary one, and the store does not remember it either.

    Raises:
        ConflictError: Something else is at `dest`.
        UnsupportedError: The filesystem cannot hold a name or type, or cannot do the mode.
        RefusedError: A glob matches nothing, or the tree cannot be written.
        DamagedError: The store does not hold what a digest names.
        EnvironmentFailure: The system refused.
    """
    check_mode_name(mode)
    try:
        replaces = force and _check_replaceable(dest)
        with Stage(dest, occupied=replaces) as stage:
            job = _Checkout(objects, tree, stage, mode, tuple(only), workers, progress)
            state = job.write(memory, sync=sync)
            if verify:
                job.read_back()
            if sync:
                fs.sync_filesystem(stage.fd)
            _name(objects, stage, state, replaces=replaces, sync=sync)
            tally = job.tally
            return CheckedOut(
                dest=stage.dest,
                files=tally.files,
                bytes=tally.bytes,
                mode=mode_used(mode, tally),
                proof="stat" if tally.cloned or tally.linked else "content",
                spec="" if memory is None else memory.spec,
                notices=notices(
                    job.abilities,
                    mode,
                    stage.dest,
                    left_out=job.left_out,
                    replaced_cwd=stage.replaces_cwd,
                ),
            )
    except OSError as error:
        if isinstance(error, CasError):
            raise
        raise environment_failure(error, f"checking out into {dest}") from error


def _name(
    objects: ObjectStore,
    stage: Stage,
    state: WorkspaceState | None,
    *,
    replaces: bool,
    sync: bool,
) -> None:
    """Make the store remember the workspace, and then give it its name."""
    if state is not None:
        register(objects.backend, stage.path, state, at=stage.dest)
    try:
        if replaces:
            forget(objects.backend, _exchange(stage, sync=sync))
        else:
            stage.place(sync=sync)
    except BaseException:
        if state is not None and not stage.in_place:
            forget(objects.backend, state.id)
        raise


def _check_replaceable(dest: str | os.PathLike[str]) -> bool:
    """Tell whether there is a workspace to replace at `dest`.

    Raises:
        ConflictError: Something is there that no checkout made, or that a person changed.
    """
    try:
        if os.path.islink(dest) or not os.path.isdir(dest) or not os.listdir(dest):
            return False  # nothing to replace; what else is wrong, the stage says
        with Opened(dest) as opened:
            _check_clean(opened)
    except NotFoundError:
        raise ConflictError(
            f"{dest} is not empty and no checkout made it; choose another destination",
            path=os.fspath(dest),
        ) from None
    return True


def _check_clean(opened: Opened) -> None:
    found = status_of(opened)
    if not found.clean:
        path = os.fsdecode((*found.changed, *found.added, *found.deleted)[0])
        raise ConflictError(
            f"{opened.path} was changed since its checkout ({path!r} and maybe more; see "
            "'cas status'), so it is not replaced; use --update to keep the changes",
            path=str(opened.path),
        )


def _exchange(stage: Stage, *, sync: bool) -> str:
    """Put the new workspace in the place of the old, unless somebody changed that meanwhile.

    Returns:
        The old workspace's identity.
    """
    stage.exchange(sync=sync)
    try:
        with Opened(stage.path) as old:
            _check_clean(old)
            return old.state.id
    except BaseException:
        stage.exchange(sync=sync)
        raise


class _Checkout:
    """One checkout into a staging directory."""

    def __init__(
        self,
        objects: ObjectStore,
        tree: bytes,
        stage: Stage,
        mode: str,
        only: tuple[str, ...],
        workers: int | None,
        progress: Progress | None,
    ) -> None:
        self._objects = objects
        self._tree = tree
        self._stage = stage
        self._mode = mode
        self._only = only
        self._workers = workers
        self._progress = progress
        self.tally = Tally()
        self.left_out: dict[bytes, str] = {}
        self.abilities = preflight.Abilities(names=True, symlinks=True, exec_bits=True)

    def _runs(self) -> Iterator[Run]:
        found = runs(self._objects.read, self._tree, self._only)
        return without(found, self._objects.purged, self.left_out)

    def write(self, memory: WorkspaceState | None, *, sync: bool) -> WorkspaceState | None:
        """Fill the staging directory, and return the state that it remembers."""
        stage = self._stage
        root = parse_tree(self._objects.read(self._tree))
        known = not self._only
        meter = Meter(
            self._progress,
            "checkout",
            total_files=root.files if known else None,
            total_bytes=root.bytes if known else None,
        )
        with Writers(
            self._objects,
            stage.fd,
            stage.path,
            self._mode,
            sync=sync,
            workers=self._workers,
            expected=(root.files, root.bytes) if known else None,
        ) as writers:
            self.tally = writers.tally
            self._preflight()
            written = writers.write(self._runs())
            if memory is not None:
                return self._record(written, meter, memory)
            for _, entries, _ in written:
                _count(meter, entries)
            meter.finish()
            return None

    def _preflight(self) -> None:
        check_mode(self._objects, self._stage.fd, self._mode)
        self.abilities = preflight.probe(self._stage.fd)
        if not (self.abilities.names and self.abilities.symlinks):
            preflight.check_tree(self._stage.fd, self._runs(), self.abilities)

    def _record(
        self, written: Iterator[Written], meter: Meter, memory: WorkspaceState
    ) -> WorkspaceState:
        """Write the workspace's memory while its content is written."""
        fs.mkdir(MEMORY, dir_fd=self._stage.fd)
        folder = fs.open_dir(MEMORY, dir_fd=self._stage.fd)
        try:
            index = IndexFile(folder)
            try:
                for path, entries, stats in written:
                    index.add(path, entries, stats)
                    _count(meter, entries)
                index.finish(durable=False)
            finally:
                index.close()
            meter.finish()
            index.wait()
            state = replace(
                memory,
                tree=Digest(self._tree),
                mode=mode_used(self._mode, self.tally),
                only=self._only,
                created_at=now(),
                id=new_id(),
                index=index.name.decode(),
                exec_bits=self.abilities.exec_bits,
                intent=None,
            )
            write_state(folder, state, durable=False)
            return state
        finally:
            os.close(folder)

    def read_back(self) -> None:
        """Hash everything that was written.

        Raises:
            CorruptObjectError: Something does not read as it was written.
        """
        check = verify_directory(
            self._stage.path,
            self._runs(),
            exec_bits=self.abilities.exec_bits,
            workers=self._workers,
            progress=self._progress,
        )
        for wrong in check.differences:
            raise CorruptObjectError(
                f"{os.fsdecode(wrong.path)!r} does not read back as it was written "
                f"({wrong.detail}); the destination's disk or memory is not to be trusted",
                path=os.fsdecode(wrong.path),
            )


def _count(meter: Meter, entries: Sequence[Entry]) -> None:
    meter.add(
        len(entries) - (entries[-1][1] == DIR),
        sum([entry[2] for entry in entries if entry[1] != DIR]),
    )
