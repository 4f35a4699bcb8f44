"""Sorted runs of entries: the fixed-size records that say where in a pack an object lies.

A pack's own index and an index table hold the same records in the same order (`docs/format.md`),
so finding, slicing and merging them is written once.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from cas.digest import DIGEST_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOB: Final = 0
TREE: Final = 1
VERSION: Final = 2
SEED: Final = 3
KINDS: Final = ("blob", "tree", "version", "seed")

RAW: Final = 0
ZSTD: Final = 1
CHUNKS: Final = 2
ENCODINGS: Final = ("raw", "zstd", "chunks")

MAX_PACKED: Final = 64 << 20
"""Most bytes that an object in a pack may have, unless it is stored as chunks."""

ENTRY: Final = struct.Struct(">32sIQIQBBH")
"""Digest, pack ordinal, offset, stored bytes, size, encoding, kind, zero."""
ENTRY_SIZE: Final = ENTRY.size
DIGEST_AT: Final = slice(0, DIGEST_SIZE)
PLACE: Final = struct.Struct(">IQIQBB")
"""An entry without its digest and its zeros."""
DIGEST_AND_SIZE: Final = struct.Struct(">32s16x8s4x")
"""The two of them, the size as the bytes that it is."""

BLOCK: Final = 1 << 16
"""Entries that are read at once when a run is gone through."""


class Location(NamedTuple):
    """Where an object lies in a pack, and how."""

    pack: bytes
    """The pack's digest."""
    offset: int
    stored: int
    """Bytes in the pack."""
    size: int
    """Bytes of the object."""
    encoding: int
    kind: int


class Entries:
    """A run of entries sorted by digest, in memory or behind a reader.

    Args:
        read_at: Gives bytes at an offset.
        offset: Where the first entry begins.
        count: How many there are; the caller knows that so many bytes are there.
    """

    __slots__ = ("_offset", "_read_at", "count")

    def __init__(self, read_at: Callable[[int, int], bytes], offset: int, count: int) -> None:
        """Take note; nothing is read yet."""
        self._read_at = read_at
        self._offset = offset
        self.count = count

    def slice(self, start: int, stop: int) -> bytes:
        """Return the bytes of the entries from `start` up to but without `stop`."""
        return self._read_at(self._offset + start * ENTRY_SIZE, (stop - start) * ENTRY_SIZE)

    def bisect(self, prefix: bytes, start: int = 0) -> int:
        """Return the position of the first entry, from `start` on, not below `prefix`."""
        return bisect_left(range(self.count), prefix, lo=min(start, self.count), key=self._digest)

    def matching(self, prefix: bytes) -> Iterator[bytes]:
        """Give the entries whose digest begins with `prefix`."""
        at = self.bisect(prefix)
        while at < self.count:
            entry = self.slice(at, at + 1)
            if not entry.startswith(prefix):
                return
            yield entry
            at += 1

    def blocks(self) -> Iterator[bytes]:
        """Give all entries, many at a time."""
        for start in range(0, self.count, BLOCK):
            yield self.slice(start, min(start + BLOCK, self.count))

    def _digest(self, position: int) -> bytes:
        return self._read_at(self._offset + position * ENTRY_SIZE, DIGEST_SIZE)


def in_memory(data: bytes) -> Entries:
    """Return the run that `data` is."""
    return Entries(
        lambda offset, length: data[offset : offset + length], 0, len(data) // ENTRY_SIZE
    )


def split(block: bytes) -> list[bytes]:
    """Return the entries of a block one by one."""
    return [block[at : at + ENTRY_SIZE] for at in range(0, len(block), ENTRY_SIZE)]


def is_sorted(entries: list[bytes]) -> bool:
    """Say whether entries are in order and each is there once."""
    return all(map(bytes.__lt__, entries, entries[1:]))
