"""Moving a workspace to another tree, file by file, touching only what differs.

Unlike a checkout it is not all or nothing: each file is replaced whole, an intent is remembered
before the first one, and whoever runs the update again after a crash finishes it.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from cas import fs
from cas.checkout import preflight
from cas.checkout.applying import Applier
from cas.checkout.indexing import Reindex
from cas.checkout.merging import pairs
from cas.checkout.modes import check_mode, check_mode_name, mode_used, notices
from cas.checkout.recording import CLOCK, INDEX, IndexFile, now
from cas.checkout.removal import remove_tree
from cas.checkout.result import CheckedOut
from cas.checkout.stage import lock_if_possible
from cas.checkout.writers import Writers
from cas.checkout.writing import AUTO, HARDLINK, Tally
from cas.digest import Digest
from cas.errors import (
    BusyError,
    CasError,
    DamagedError,
    RefusedError,
    environment_failure,
)
from cas.names import MEMORY
from cas.progress import Meter
from cas.workspace.changes import open_index
from cas.workspace.handles import scan
from cas.workspace.memory import (
    INCOMING,
    LOCK,
    STATE,
    Intent,
    Opened,
    WorkspaceState,
)
from cas.workspace.registry import register
from cas.workspace.runs import runs, without

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cas.checkout.preflight import Abilities
    from cas.objects import ObjectStore
    from cas.progress import Progress
    from cas.workspace.runs import Run


def update(
    objects: ObjectStore,
    workspace: str | os.PathLike[str],
    tree: bytes,
    *,
    memory: WorkspaceState,
    mode: str = AUTO,
    only: Sequence[str] = (),
    sync: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> CheckedOut:
    """Move a workspace to another tree.

    What a person edited, deleted or put where something new would go stays as it is and comes back
    in `kept`. Everything that was written is read back and hashed.

    Args:
        objects: Where content comes from.
        workspace: The workspace's directory.
        tree: Digest of the tree to move to.
        memory: Where that tree comes from: store, spec and manifest.
        mode: As for a checkout; `auto` stays with hard links in a workspace of them.
        only: The globs of the checkout, or nothing to keep them.
        sync: Make every file durable before it replaces another, and all of it in the end.
        workers: How many processes write; by default as many as pay.
        progress: Called with what was done so far.

    Raises:
        NotFoundError: There is no workspace.
        DamagedError: Its memory is damaged, or the store does not hold what a digest names.
        BusyError: Another update of it is running.
        RefusedError: Other globs than those of the checkout, or a tree that cannot be written.
        UnsupportedError: The filesystem cannot hold a name or type, or cannot do the mode.
        EnvironmentFailure: The system refused. Running it again goes on from there.
    """
    check_mode_name(mode)
    try:
        with Opened(workspace) as opened, _locked(opened):
            opened.reload()
            if only and tuple(only) != opened.state.only:
                raise RefusedError(
                    f"{opened.path} was checked out with other --only globs, which an update "
                    "keeps; check out anew to change them"
                )
            _clear(opened)
            goal = _goal(opened.state.intent, memory, Digest(tree))
            return _Update(objects, opened, mode, sync, workers, progress).run(memory, goal)
    except OSError as error:
        if isinstance(error, CasError):
            raise
        raise environment_failure(error, f"updating {workspace}") from error


def _goal(started: Intent | None, memory: WorkspaceState, tree: Digest) -> Intent:
    """Return where to go, and what the disk may have of updates that were cut short."""
    via: list[Digest] = []
    if started is not None:
        via = [one for one in (*started.via, started.tree) if one != tree]
    return Intent(
        spec=memory.spec, manifest=memory.manifest, tree=tree, via=tuple(dict.fromkeys(via))
    )


@contextmanager
def _locked(opened: Opened) -> Iterator[None]:
    """Keep other updates out; on a filesystem without locks, nobody can."""
    try:
        fd = fs.create_excl(LOCK, dir_fd=opened.memory)
    except FileExistsError:
        fd = fs.open_write(LOCK, dir_fd=opened.memory)
    try:
        if lock_if_possible(fd) is False:
            raise BusyError(
                f"another update of {opened.path} is running; try again when it is done",
                path=str(opened.path),
            )
        yield
    finally:
        os.close(fd)


def _clear(opened: Opened) -> None:
    """Remove what an update that was cut short left in the memory."""
    current = opened.state.index.encode()
    with scan(opened.memory) as listing:
        names = [os.fsencode(entry.name) for entry in listing]
    for name in names:
        if name == INCOMING:
            remove_tree(opened.memory, name)
        elif name == CLOCK or (name.startswith((INDEX, STATE + b".")) and name != current):
            fs.unlink(name, dir_fd=opened.memory)


class _Update:
    """One update of an open and locked workspace."""

    def __init__(
        self,
        objects: ObjectStore,
        opened: Opened,
        mode: str,
        sync: bool,
        workers: int | None,
        progress: Progress | None,
    ) -> None:
        self.opened = opened
        self._objects = objects
        self._mode = HARDLINK if mode == AUTO and opened.state.mode == HARDLINK else mode
        self._sync = sync
        self._workers = workers
        self._progress = progress
        self._left_out: dict[bytes, str] = {}

    def run(self, origin: WorkspaceState, goal: Intent) -> CheckedOut:
        """Go from what the index says to `goal`, and remember it.

        Args:
            origin: Where the goal's tree comes from.
            goal: Where to go.
        """
        opened = self.opened
        for _ in self._runs(goal.tree):
            pass  # a tree that cannot be walked to its end is refused before anything is changed
        fs.mkdir(INCOMING, dir_fd=opened.memory)
        incoming = fs.open_dir(INCOMING, dir_fd=opened.memory)
        try:
            check_mode(self._objects, incoming, self._mode)
            abilities = preflight.probe(incoming)
            if not (abilities.names and abilities.symlinks):
                preflight.check_tree(incoming, self._runs(goal.tree), abilities)
            state = replace(
                opened.state,
                store_path=origin.store_path,
                store_id=origin.store_id,
                intent=goal,
                exec_bits=abilities.exec_bits,
            )
            state = register(self._objects.backend, opened.path, state)
            opened.save(state, durable=self._sync)
            kept, tally = self._apply(incoming, goal, abilities)
        finally:
            os.close(incoming)
            remove_tree(opened.memory, INCOMING)  # after an error it may hold much
        files, size = self._remember(state, goal, tally)
        return CheckedOut(
            dest=opened.path,
            files=files,
            bytes=size,
            mode=opened.state.mode,
            proof="stat" if tally.cloned or tally.linked else "content",
            spec=goal.spec,
            kept=tuple(sorted(kept)),
            notices=notices(abilities, self._mode, opened.path, left_out=self._left_out),
        )

    def _runs(self, tree: Digest) -> Iterator[Run]:
        found = runs(self._objects.read, tree, self.opened.state.only)
        return without(found, self._objects.purged, self._left_out)

    def _via(self, goal: Intent) -> list[Iterator[Run]]:
        """Return the runs of trees that were gone to before, of those that can be read."""
        found = []
        for tree in goal.via:
            try:
                for _ in self._runs(tree):
                    pass
            except (DamagedError, RefusedError):
                continue  # what it had put in place will look like a person's work
            found.append(self._runs(tree))
        return found

    def _apply(
        self, incoming: int, goal: Intent, abilities: Abilities
    ) -> tuple[list[bytes], Tally]:
        """Change the files, and return the paths that were kept and what was written."""
        opened = self.opened
        path = opened.path / os.fsdecode(MEMORY) / os.fsdecode(INCOMING)
        with (
            open_index(opened) as index,
            Writers(
                self._objects,
                incoming,
                path,
                self._mode,
                sync=self._sync,
                workers=self._workers,
            ) as writers,
        ):
            applier = Applier(
                opened.root,
                incoming,
                writers,
                Meter(self._progress, "update"),
                exec_bits=abilities.exec_bits,
                sync=self._sync,
            )
            applier.run(pairs(index, self._runs(goal.tree), self._via(goal)))
            return applier.kept, writers.tally

    def _remember(self, state: WorkspaceState, goal: Intent, tally: Tally) -> tuple[int, int]:
        """Write the new index and state; return how many files and bytes the tree has."""
        opened = self.opened
        former = opened.state.index.encode()
        new = IndexFile(opened.memory)
        try:
            with open_index(opened) as index:
                reindex = Reindex(opened.root, opened.memory, new, exec_bits=state.exec_bits)
                reindex.run(pairs(index, self._runs(goal.tree)))
            new.finish(durable=False)
        finally:
            new.close()
        if self._sync:
            fs.sync_filesystem(opened.memory)
        state = replace(
            state,
            spec=goal.spec,
            manifest=goal.manifest,
            tree=goal.tree,
            mode=mode_used(self._mode, tally) if tally.files else state.mode,
            created_at=now(),
            index=new.name.decode(),
            intent=None,
        )
        opened.save(state, durable=self._sync)
        register(self._objects.backend, opened.path, state)
        fs.unlink(former, dir_fd=opened.memory)
        return reindex.files, reindex.bytes
