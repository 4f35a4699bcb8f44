"""Finding out what one store lacks of another's content, and bringing it.

Trees are compared top down, level by level. A tree that a name of the destination reaches is whole
there and is not looked into. That a tree lies in the destination says nothing of what is in it: an
interrupted transfer leaves trees without their content, and a gc may take that before them. So
everything else is gone through, and looked up in the destination's index.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from cas.errors import CasError, CorruptObjectError, FormatError, MissingObjectError
from cas.manifests import DIR, Leaf, parse_tree
from cas.objects import Consignment
from cas.progress import Meter
from cas.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

    from cas.manifests import Node
    from cas.objects import ObjectStore, ObjectWriter
    from cas.progress import Progress

_MEMORY: Final = 16 << 20
_BATCH: Final = 512


class Lacking:
    """What the destination lacks; a context manager.

    Args:
        source: Where the content is.
        destination: Where it is to be.
        writer: Of the destination; what is there already is relied on by it.
        progress: Called with how much was looked at, and then brought.
    """

    def __init__(
        self,
        source: ObjectStore,
        destination: ObjectStore,
        writer: ObjectWriter,
        progress: Progress | None,
    ) -> None:
        """Look at nothing yet."""
        self._source = source
        self._destination = destination
        self._writer = writer
        self._progress = progress
        self._meter = Meter(progress, "compare")
        self.purged: set[bytes] = set()
        """What is not lacking, because it was purged here or there."""
        self._consignment = Consignment(source)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Forget what was found."""
        self._consignment.close()

    @property
    def objects(self) -> int:
        """How many objects are lacking."""
        return self._consignment.objects

    def find(
        self,
        *,
        trees: Iterable[bytes],
        objects: Iterable[bytes] = (),
        whole: frozenset[bytes] = frozenset(),
        like: Iterable[bytes] = (),
    ) -> None:
        """Find what is lacking of some trees and objects.

        Args:
            trees: Digests of the trees.
            objects: Digests of further objects, which are not looked into.
            whole: Trees of which the destination has everything.
            like: Those of them that are compared with `trees`, level by level.

        Raises:
            MissingObjectError: Neither store has something of it.
            CorruptObjectError: The only copy of a tree is damaged.
        """
        for digest in objects:
            self._want(digest)
        with Spill(_MEMORY, unique=True) as files:
            for page in self._pages(trees, whole, like):
                if isinstance(page, Leaf):
                    for _, kind, size, digest in page.entries:
                        if kind != DIR:
                            files.add(digest + size.to_bytes(8))
            for item in files:
                self._want(item[:32], int.from_bytes(item[32:]))
        self._meter.finish()

    def bring(self) -> None:
        """Copy all that is lacking; it is not flushed.

        Raises:
            CasError: Something cannot be read, is not what it should be, or cannot be written.
        """
        sent = self._consignment
        meter = Meter(self._progress, "copy", total_files=sent.objects, total_bytes=sent.bytes)
        sent.send(self._writer, meter.add)
        meter.finish()

    # --- inside --------------------------------------------------------------------------------

    def _want(self, digest: bytes, size: int | None = None) -> None:
        self._meter.add()
        if self._writer.known_whole(digest, size):
            return
        if digest in self._source.purged or digest in self._destination.purged:
            self.purged.add(digest)
        else:
            self._consignment.add(digest)

    def _pages(
        self, trees: Iterable[bytes], whole: frozenset[bytes], like: Iterable[bytes]
    ) -> Iterator[Leaf | Node]:
        """Give the pages of trees and of those below that may not be whole, each level's once."""
        wanted, other = _level(trees), _level(like)
        while True:
            below, beside = _level(()), _level(())
            found = False
            with wanted, other, _Passed(other) as passed:
                try:
                    for batch in _batches(wanted):
                        new = [d for d in batch if d not in whole and not passed.holds(d)]
                        for page in self._read(new):
                            found = True
                            yield page
                            for child in children(page):
                                below.add(child)
                    if found:
                        for page in self._read_like(passed.unmatched()):
                            for child in children(page):
                                beside.add(child)
                except BaseException:
                    below.close()
                    beside.close()
                    raise
            if not found:
                below.close()
                beside.close()
                return
            wanted, other = below, beside

    def _read(self, digests: list[bytes]) -> Iterator[Leaf | Node]:
        """Read pages from where they are, and add those that the destination lacks."""
        here, there = [], []
        for digest in digests:
            self._meter.add()
            if self._writer.known(digest):
                here.append(digest)
            else:
                there.append(digest)
                self._consignment.add(digest)
        for store, others, asked in (
            (self._destination, self._source, here),
            (self._source, self._destination, there),
        ):
            try:
                encoded = list(store.read_many(asked))
            except CasError:
                encoded = [(digest, _read_either(digest, store, others)) for digest in asked]
            for digest, data in encoded:
                yield _parse(digest, data)

    def _read_like(self, digests: Spill) -> Iterator[Leaf | Node]:
        """Read pages of the destination, as far as that works: they only save work."""
        for batch in _batches(digests):
            try:
                for digest, data in self._destination.read_many(batch):
                    yield _parse(digest, data)
            except CasError:
                continue


class _Passed:
    """The digests of a level, passed by in step with another level that is sorted as well.

    Args:
        digests: The level.
    """

    def __init__(self, digests: Spill) -> None:
        self._rest = iter(digests)
        self._next = next(self._rest, None)
        self._left = _level(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._left.close()

    def holds(self, digest: bytes) -> bool:
        """Say whether a digest is in the level; those asked for ascend."""
        while self._next is not None and self._next < digest:
            self._left.add(self._next)
            self._next = next(self._rest, None)
        if self._next != digest:
            return False
        self._next = next(self._rest, None)
        return True

    def unmatched(self) -> Spill:
        """Return those that were not asked for."""
        while self._next is not None:
            self._left.add(self._next)
            self._next = next(self._rest, None)
        return self._left


def children(page: Leaf | Node) -> Iterator[bytes]:
    """Give the digests of the pages right below a page."""
    if isinstance(page, Leaf):
        return (entry[3] for entry in page.entries if entry[1] == DIR)
    return (child[4] for child in page.children)


def _level(digests: Iterable[bytes]) -> Spill:
    level = Spill(_MEMORY, unique=True)
    for digest in digests:
        level.add(digest)
    return level


def _batches(digests: Spill) -> Iterator[list[bytes]]:
    rest = iter(digests)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def _read_either(digest: bytes, first: ObjectStore, second: ObjectStore) -> bytes:
    try:
        return first.read(digest)
    except (CorruptObjectError, MissingObjectError) as error:
        try:
            return second.read(digest)
        except (CorruptObjectError, MissingObjectError):
            raise error from None


def _parse(digest: bytes, data: bytes) -> Leaf | Node:
    try:
        return parse_tree(data)
    except FormatError as error:
        raise FormatError(f"tree {digest.hex()}: {error}", digest=digest.hex()) from None
