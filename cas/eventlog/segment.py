"""Segments: sorted keys with their values, written once, read a block at a time.

A segment is a search tree: leaves hold keys and values, nodes the first key, place and digest of
the blocks below them. Whoever holds the pointer to the root, as a snapshot does, can prove every
byte. Finding a key reads one block a level; giving a range reads only the leaves that hold it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas.errors import CasError, DamagedLogError, FormatError
from cas.eventlog.blocks import BLOCK, Pointer, pack_block, unpack_block
from cas.eventlog.record import IDENTITY_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.backends import Reader, Staging
    from cas.eventlog.blocks import BlockCache
    from cas.eventlog.runs import Run

MAGIC: Final = b"casseg\x00\x01"
"""The first bytes of a segment."""
KNOWN: Final = 10_000
"""Identities of so many records before a position are kept."""
MAX_DEPTH: Final = 16
"""Levels of nodes in a segment, at most."""

_KEY: Final[frozenset[type]] = frozenset({bytes})
_INT: Final[frozenset[type]] = frozenset({int})
_VALUE: Final[frozenset[type]] = frozenset({bytes, type(None)})
_ENTRY_COST: Final = 8
_POINTER_COST: Final = 48


class _Absent:
    """Says that a segment has no entry for a key, where None says that the key was deleted."""


ABSENT: Final = _Absent()


class SegmentInfo(NamedTuple):
    """What a snapshot says of a segment.

    Attributes:
        name: Its name below the log's segments.
        size: Its bytes.
        entries: How many keys it has, deleted ones included.
        plain: Bytes of its keys and values before compression, with 8 for each entry.
        first: The first record whose changes it holds.
        last: The last one.
        depth: Levels of nodes above the leaves.
        root: The root's pointer; zeros where there are no entries.
        identities: The pointer to the identities; of length 0 where none are kept.
    """

    name: str
    size: int
    entries: int
    plain: int
    first: int
    last: int
    depth: int
    root: Pointer
    identities: Pointer

    def to_fields(self) -> list[Any]:
        """Return it as a snapshot holds it."""
        *plain, root, identities = self
        return [*plain, *root, *identities]

    @classmethod
    def from_fields(cls, fields: Any) -> SegmentInfo:
        """Read what a snapshot holds.

        Raises:
            FormatError: It is not that of a segment.
        """
        if not isinstance(fields, list) or list(map(type, fields)) != _FIELDS:
            raise FormatError("it describes a segment in another way")
        name, size, entries, plain, first, last, depth, *pointers = fields
        if min(size, entries, plain, first, last, depth, *pointers[:2], *pointers[3:5]) < 0:
            raise FormatError("it describes a segment with negative numbers")
        root, identities = Pointer(*pointers[:3]), Pointer(*pointers[3:])
        if depth > MAX_DEPTH:
            raise FormatError(f"it describes a segment of {depth} levels")
        if max(root.offset + root.length, identities.offset + identities.length) > size:
            raise FormatError("it points beyond the end of a segment")
        return cls(name, size, entries, plain, first, last, depth, root, identities)


_FIELDS: Final = [str, int, int, int, int, int, int, int, int, bytes, int, int, bytes]


class Segment:
    """A segment held open.

    Args:
        reader: Its bytes; closed when nothing refers to the segment any more, so that whoever
            still gives a range of it comes to the end.
        info: What the snapshot says of it.
        cache: Where blocks are kept that keys were looked up in.

    Raises:
        DamagedLogError: It is cut.
    """

    def __init__(self, reader: Reader, info: SegmentInfo, cache: BlockCache) -> None:
        """Take over the reader."""
        self._reader = reader
        self.info = info
        self._cache = cache
        if reader.size != info.size:
            raise self._damaged(f"it has {reader.size} bytes instead of {info.size}")

    def __del__(self) -> None:
        """Close the reader."""
        self._reader.close()

    def get(self, key: bytes) -> bytes | _Absent | None:
        """Return the value of a key, None for a deleted one, ABSENT for one without an entry.

        Raises:
            DamagedLogError: What had to be read is damaged.
        """
        if not self.info.entries:
            return ABSENT
        pointer = self.info.root
        for depth in range(self.info.depth, 0, -1):
            keys, pointers = self._block(pointer, depth, keep=True)
            place = bisect_right(keys, key) - 1
            if place < 0:
                return ABSENT
            pointer = pointers[place]
        keys, values = self._block(pointer, 0, keep=True)
        place = bisect_left(keys, key)
        if place == len(keys) or keys[place] != key:
            return ABSENT
        value: bytes | None = values[place]
        return value

    def runs(self, low: bytes, high: bytes | None, *, reverse: bool = False) -> Iterator[Run]:
        """Give what it has from `low` up to, not including, `high`.

        Raises:
            DamagedLogError: What had to be read is damaged.
        """
        if self.info.entries:
            yield from self._runs(self.info.root, self.info.depth, low, high, reverse)

    def identities(self) -> tuple[int, bytes]:
        """Return the first position whose identity is kept, and the identities from there on.

        Raises:
            DamagedLogError: They are damaged.
        """
        pointer = self.info.identities
        if not pointer.length:
            return self.info.last + 1, b""
        flat = self._read(pointer)
        if len(flat) != 1 or type(flat[0]) is not bytes or len(flat[0]) % IDENTITY_SIZE:
            raise self._damaged("its identities are none")
        known: bytes = flat[0]
        return self.info.last + 1 - len(known) // IDENTITY_SIZE, known

    def check(self) -> Iterator[str]:
        """Read every byte and say what is wrong, in sentences without a subject."""
        try:
            if self._reader.read_at(0, len(MAGIC)) != MAGIC:
                yield "it does not begin as a segment does"
            self.identities()
            entries = 0
            before: bytes | None = None
            for keys, _ in self.runs(b"", None):
                if (before is not None and keys[0] <= before) or keys != sorted(set(keys)):
                    yield "its keys are out of order"
                before = keys[-1]
                entries += len(keys)
            if entries != self.info.entries:
                yield f"it has {entries} entries instead of {self.info.entries}"
        except CasError as error:
            yield str(error.facts.get("detail", error))

    def _runs(
        self, pointer: Pointer, depth: int, low: bytes, high: bytes | None, reverse: bool
    ) -> Iterator[Run]:
        keys, below = self._block(pointer, depth, keep=depth > 0)
        stop = len(keys) if high is None else bisect_left(keys, high)
        if depth == 0:
            start = bisect_left(keys, low)
            if start < stop:
                yield keys[start:stop], below[start:stop]
            return
        start = max(bisect_right(keys, low) - 1, 0)
        inside = below[start:stop]
        for child in reversed(inside) if reverse else inside:
            yield from self._runs(child, depth - 1, low, high, reverse)

    def _block(self, pointer: Pointer, depth: int, *, keep: bool) -> tuple[list[bytes], list[Any]]:
        """Return a block's keys, and its values or pointers."""
        found: tuple[list[bytes], list[Any]] | None
        found = self._cache.get(pointer, depth)
        if found is not None:
            return found
        flat = self._read(pointer)
        width = 4 if depth else 2
        if not flat or len(flat) % width:
            raise self._damaged(f"the block at {pointer.offset} holds no entries")
        keys = flat[::width]
        if depth:
            found = keys, list(map(Pointer, flat[1::4], flat[2::4], flat[3::4]))
            kinds = [(keys, _KEY), (flat[1::4], _INT), (flat[2::4], _INT), (flat[3::4], _KEY)]
        else:
            found = keys, flat[1::2]
            kinds = [(keys, _KEY), (found[1], _VALUE)]
        if any(not allowed.issuperset(map(type, column)) for column, allowed in kinds):
            raise self._damaged(f"the block at {pointer.offset} holds other things than entries")
        if keep:
            self._cache.put(pointer, depth, found)
        return found

    def _read(self, pointer: Pointer) -> list[Any]:
        stored = self._reader.read_at(pointer.offset, pointer.length)
        try:
            return unpack_block(stored, pointer)
        except FormatError as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, detail: str) -> DamagedLogError:
        return DamagedLogError(
            f"segment {self.info.name} is damaged: {detail}; repair it from a copy of the store",
            location=self.info.name,
            detail=detail,
        )


def weight(key: bytes, value: bytes | None) -> int:
    """Return what an entry counts for in the size of a block and in `SegmentInfo.plain`."""
    return len(key) + _ENTRY_COST + (len(value) if value is not None else 0)


class SegmentWriter:
    """Writes a segment in order of its keys, in bounded memory.

    Args:
        staging: Where to; the caller puts it in place.
    """

    def __init__(self, staging: Staging) -> None:
        """Write the beginning."""
        self._staging = staging
        self._entries = 0
        self._plain = 0
        # Level 0 is the leaf being filled, level n the node above level n - 1.
        self._open: list[list[Any]] = [[]]
        self._sizes = [0]
        staging.write(MAGIC)

    def add(self, run: Run) -> None:
        """Take entries whose keys are above all before."""
        size = self._sizes[0]
        flat = self._open[0]
        for key, value in zip(*run, strict=True):
            flat.append(key)
            flat.append(value)
            size += weight(key, value)
            if size >= BLOCK:
                self._sizes[0] = size
                self._close(0)
                size = 0
                flat = self._open[0]
        self._sizes[0] = size
        self._entries += len(run[0])

    def finish(self, name: str, first: int, last: int, identities: bytes) -> SegmentInfo:
        """Write the rest and return what a snapshot says of the segment.

        Args:
            name: What it will be called.
            first: The first record whose changes it holds.
            last: The last one.
            identities: Those of the records up to `last`; the last 10,000 are kept.
        """
        nothing = Pointer(0, 0, b"")
        known = self._write([identities[-KNOWN * IDENTITY_SIZE :]]) if identities else nothing
        depth = 0
        root = nothing
        if self._entries:
            self._close(0)
            while len(self._open) > depth + 2 or len(self._open[depth + 1]) > 4:
                depth += 1
                self._close(depth)
            root = Pointer(*self._open[depth + 1][1:])
        return SegmentInfo(
            name,
            self._staging.tell(),
            self._entries,
            self._plain,
            first,
            last,
            depth,
            root,
            known,
        )

    def _close(self, level: int) -> None:
        flat = self._open[level]
        if not flat:
            return
        if level == 0:
            self._plain += self._sizes[0]
        self._open[level], self._sizes[level] = [], 0
        pointer = self._write(flat)
        if level + 1 == len(self._open):
            self._open.append([])
            self._sizes.append(0)
        self._open[level + 1] += (flat[0], *pointer)
        self._sizes[level + 1] += len(flat[0]) + _POINTER_COST
        if self._sizes[level + 1] >= BLOCK:
            self._close(level + 1)

    def _write(self, flat: list[Any]) -> Pointer:
        stored, digest = pack_block(flat)
        offset = self._staging.tell()
        self._staging.write(stored)
        return Pointer(offset, len(stored), digest)
