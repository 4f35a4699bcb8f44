"""Making trees, and the next stat index, out of a walk whose digests come in later."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from cas import codec
from cas.digest import raw_hash
from cas.ingest.walk import Chunk, Enter
from cas.manifests import DIR, TreeBuilder
from cas.manifests.tree import LEAF_ENTRIES
from cas.objects import TREE
from cas.statindex import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from cas.ingest.walk import Event
    from cas.manifests import TreeRef
    from cas.objects import ObjectWriter
    from cas.progress import Meter
    from cas.statindex import StatIndexWriter

_PENDING_ENTRIES: Final = 1 << 14
"""Entries that are held, at most, until the one before them is known."""
_PENDING_EVENTS: Final = 1 << 12


class StaleIndex(Exception):  # noqa: N818 - a fact about the index; the ingest goes on without it
    """The stat index names content that the store does not have any more."""


class _Folder:
    """A folder whose tree is being built."""

    __slots__ = ("builder", "count", "unproven")

    def __init__(self, builder: TreeBuilder) -> None:
        self.builder = builder
        self.count = 0
        # One for each entry that is in no stored page yet: its digest if only the index vouches
        # for it, else nothing.
        self.unproven: list[bytes] = []


class Assembly:
    """Puts trees together in walk order.

    A digest that comes from the stat index is believed only if the store has its content. The index
    was saved when everything that it speaks of was durable, and gc forgets stat indexes before it
    removes anything, and trees before content (`docs/format.md`, 'Caches'). So where the store has
    a page of a tree it has what the page names, and one look is enough for all of its files. Where
    the page is new, each digest is looked up.

    Args:
        writer: Where trees go.
        index: The stat index that is being written; None for none.
        meter: Told what is done.
        wait: Waits until some digests have come in.
    """

    def __init__(
        self,
        writer: ObjectWriter,
        index: StatIndexWriter | None,
        meter: Meter,
        wait: Callable[[], None],
    ) -> None:
        """Begin with nothing."""
        self._writer = writer
        self._index = index
        self._meter = meter
        self._wait = wait
        self._pending: deque[Event] = deque()
        self._pending_entries = 0
        self._folders: list[_Folder] = []
        self.tree: TreeRef | None = None
        self.changed = False
        """Whether the new index says anything that the old one did not."""

    def add(self, event: Event, *, names: list[bytes] | None = None) -> None:
        """Take the next event of the walk, and build what can be built.

        Args:
            event: The event.
            names: What the entries of a chunk are called in the tree, if not by their names.

        Raises:
            StaleIndex: See there.
            EnvironmentFailure: A tree could not be stored.
        """
        if isinstance(event, Chunk):
            if not event.names:
                return
            self._pending_entries += len(event.names)
            if names is not None:
                event.entries = names
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
            if isinstance(event, Chunk):
                if event.waiting:
                    return
                self._take(event)
                self._pending_entries -= len(event.names)
            elif isinstance(event, Enter):
                self._folders.append(self._open())
            else:
                self._close(event.name)
            pending.popleft()

    def _open(self) -> _Folder:
        folder: _Folder
        folder = _Folder(TreeBuilder(lambda page: self._put(folder, page)))
        return folder

    def _take(self, chunk: Chunk) -> None:
        folder = self._folders[-1]
        digests: Any = chunk.digests  # all known by now
        folder.count += len(chunk.names)
        folder.builder.extend(zip(chunk.entries, chunk.kinds, chunk.sizes, digests, strict=True))
        folder.unproven += digests if chunk.unchanged else chunk.vouched
        self._meter.add(len(chunk.names), sum(chunk.sizes))
        if not chunk.unchanged:
            self.changed = True
        if self._index is not None:
            self._index.add_run(
                Run(
                    chunk.folder,
                    chunk.at_ns,
                    chunk.names,
                    "".join(chunk.kinds),
                    chunk.stats,
                    b"".join(digests),
                )
            )

    def _close(self, name: bytes) -> None:
        folder = self._folders.pop()
        tree = folder.builder.finish()
        if not self._folders:
            self.tree = tree
            return
        above = self._folders[-1]
        above.builder.add(name, DIR, tree.bytes, tree.digest, tree.files)
        above.count += 1
        above.unproven.append(b"")

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
