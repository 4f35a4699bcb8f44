"""Making trees, and the next stat index, out of a walk whose digests come in later."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from cas import codec
from cas.digest import DIGEST_SIZE, Digest, raw_hash
from cas.ingest.walk import Chunk, Enter, Leave, Same
from cas.manifests import DIR, TreeBuilder, TreeRef
from cas.manifests.tree import LEAF_ENTRIES
from cas.objects import TREE
from cas.statindex import FIELDS, End, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cas.ingest.cache import StatCache
    from cas.ingest.walk import Event
    from cas.objects import ObjectWriter
    from cas.progress import Meter

_PENDING_ENTRIES: Final = 1 << 14
"""Entries that are held, at most, until the one before them is known."""
_PENDING_EVENTS: Final = 1 << 12
_HELD_ENTRIES: Final = 1 << 13
"""Entries of a folder that wait, at most, until it is known whether all of it is unchanged."""


class StaleIndex(Exception):  # noqa: N818 - a fact about the index; the ingest goes on without it
    """The stat index names content that the store does not have any more."""


class _Folder:
    """A folder whose tree is being built."""

    __slots__ = ("builder", "count", "held", "held_count", "unproven")

    def __init__(self, builder: TreeBuilder) -> None:
        self.builder = builder
        self.count = 0
        # What is as the index has it waits here: if all of the folder is, its tree is known.
        self.held: list[Run | tuple[bytes, End]] = []
        self.held_count = 0
        # One for each entry that is in no stored page yet: its digest if only the index vouches
        # for it, else nothing.
        self.unproven: list[bytes] = []


class Assembly:
    """Puts trees together in walk order.

    A digest that comes from the stat index is believed only if the store has its content. The index
    was saved when everything that it speaks of was durable, and gc forgets stat indexes before it
    removes anything (`docs/format.md`, 'Caches'), so one look at a page of a tree is enough for all
    of its files that the index speaks of. Where the page is new, each digest is looked up.

    Args:
        writer: Where trees go.
        known: Where the next stat index is written.
        meter: Told what is done.
        wait: Waits until some digests have come in.
        entry: For a source that is one file: what it is called in the tree.
    """

    def __init__(
        self,
        writer: ObjectWriter,
        known: StatCache,
        meter: Meter,
        wait: Callable[[], None],
        *,
        entry: bytes | None = None,
    ) -> None:
        """Begin with nothing."""
        self._writer = writer
        self._known = known
        self._meter = meter
        self._wait = wait
        self._entry = entry
        self._pending: deque[Event] = deque()
        self._pending_entries = 0
        self._folders: list[_Folder] = []
        self.tree: TreeRef | None = None

    def add(self, event: Event) -> None:
        """Take the next event of the walk, and build what can be built.

        Raises:
            StaleIndex: See there.
            EnvironmentFailure: A tree could not be stored.
        """
        if isinstance(event, Chunk):
            if not event.names:
                return
            self._pending_entries += len(event.names)
        elif isinstance(event, Same):
            self._pending_entries += len(event.run.names)
        self._pending.append(event)
        self._drain()
        while (
            self._pending_entries > _PENDING_ENTRIES or len(self._pending) > _PENDING_EVENTS
        ) and self._pending:
            self._wait()
            self._drain()

    def finish(self) -> TreeRef:
        """Build the rest, once every digest has come in, and return the tree of the root."""
        self._drain()
        assert self.tree is not None, "the walk has ended and every digest is known"
        return self.tree

    def _drain(self) -> None:
        pending = self._pending
        while pending:
            event = pending[0]
            if isinstance(event, Same):
                self._hold(event)
                self._pending_entries -= len(event.run.names)
            elif isinstance(event, Chunk):
                if event.waiting:
                    return
                self._take(event)
                self._pending_entries -= len(event.names)
            elif isinstance(event, Enter):
                self._folders.append(self._open())
            else:
                self._close(event)
            pending.popleft()

    def _open(self) -> _Folder:
        folder: _Folder
        folder = _Folder(TreeBuilder(lambda page: self._put(folder, page)))
        return folder

    def _hold(self, same: Same) -> None:
        """Take entries that are what they were."""
        run = same.run
        folder = self._folders[-1]
        folder.held.append(run)
        folder.held_count += len(run.names)
        self._known.keep(same.number, run)
        self._meter.add(len(run.names), sum(run.stats[::FIELDS]))
        if folder.held_count > _HELD_ENTRIES:
            self._build_held(folder)

    def _take(self, chunk: Chunk) -> None:
        """Take entries that changed, or may have."""
        folder = self._folders[-1]
        self._build_held(folder)
        names = chunk.names if self._entry is None else [self._entry]
        digests: Any = chunk.digests  # all known by now
        self._build(folder, names, chunk.kinds, chunk.sizes, digests, chunk.vouched)
        self._meter.add(len(names), sum(chunk.sizes))
        self._known.add(
            Run(
                chunk.folder,
                chunk.at_ns,
                chunk.names,
                "".join(chunk.kinds),
                chunk.stats,
                b"".join(digests),
            )
        )

    def _close(self, leave: Leave) -> None:
        folder = self._folders.pop()
        end = leave.end
        if end is not None and (not self._folders and not self._writer.known(end.tree)):
            end = None  # looked up only where no tree above it vouches for it
        if end is None:
            self._build_held(folder)
            tree = folder.builder.finish()
            end = End(leave.path, tree.files, tree.bytes, tree.digest)
            if self._entry is None:
                self._known.add(end)
            if self._folders:
                self._build_folder(self._folders[-1], leave.name, end, b"")
        else:
            self._known.keep(leave.number, end)
            if self._folders:
                above = self._folders[-1]
                above.held.append((leave.name, end))
                above.held_count += 1
                if above.held_count > _HELD_ENTRIES:
                    self._build_held(above)
        if not self._folders:
            self.tree = TreeRef(Digest(end.tree), end.files, end.size)

    # --- building ------------------------------------------------------------------------------

    def _build_held(self, folder: _Folder) -> None:
        """Build what was held, of a folder that is not wholly what it was."""
        for item in folder.held:
            if isinstance(item, Run):
                joined = item.digests
                digests = [
                    joined[at : at + DIGEST_SIZE] for at in range(0, len(joined), DIGEST_SIZE)
                ]
                names = item.names if self._entry is None else [self._entry]
                sizes = item.stats[::FIELDS]
                self._build(folder, names, item.types, sizes, digests, digests)
            else:
                name, end = item
                self._add_folder(folder, name, end, end.tree)
        folder.held.clear()
        folder.held_count = 0

    def _build(
        self,
        folder: _Folder,
        names: list[bytes],
        kinds: Iterable[str],
        sizes: list[int],
        digests: list[bytes],
        vouched: list[bytes],
    ) -> None:
        folder.count += len(names)
        folder.builder.extend(zip(names, kinds, sizes, digests, strict=True))
        folder.unproven += vouched

    def _build_folder(self, folder: _Folder, name: bytes, end: End, vouched: bytes) -> None:
        self._build_held(folder)
        self._add_folder(folder, name, end, vouched)

    def _add_folder(self, folder: _Folder, name: bytes, end: End, vouched: bytes) -> None:
        folder.count += 1
        folder.builder.add(name, DIR, end.size, end.tree, end.files)
        folder.unproven.append(vouched)

    def _put(self, folder: _Folder, page: bytes) -> bytes:
        """Store a page of a tree; all that is below it is stored, or waits in the same writers."""
        digest = raw_hash(page)
        if folder.count <= LEAF_ENTRIES:
            entries = folder.unproven
            folder.unproven = []
        else:
            kind, *fields = codec.decode_trusted(page)
            count = len(fields[-1]) if kind == "tree" else 0
            entries = folder.unproven[:count]
            del folder.unproven[:count]
        if not self._writer.known(digest):
            for entry in entries:
                if entry and not self._writer.known(entry):
                    raise StaleIndex
            self._writer.put(page, TREE, digest)
        return digest
