"""The packs that are held open for reading, few at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.errors import FormatError
from cas.objects.entries import ENTRY, PLACE, Entries, Location, in_memory
from cas.objects.pack import Covered, pack_key, read_end, read_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.backends import Backend, Reader

LIMIT: Final = 48
"""Packs held open at once."""


class OpenPacks:
    """Packs opened on demand; the one used longest ago is closed for a new one.

    Args:
        backend: Where they lie.
    """

    def __init__(self, backend: Backend) -> None:
        """Open nothing yet."""
        self._backend = backend
        self._readers: dict[bytes, Reader] = {}

    def read(self, digest: bytes, offset: int, length: int) -> bytes:
        """Return bytes of a pack.

        Raises:
            Missing: There is no such pack.
            FormatError: The range is not inside it.
            EnvironmentFailure: It cannot be read.
        """
        reader = self._readers.get(digest) or self.reader(digest)
        # Before memory is taken: the length may come from a damaged or hostile index.
        if offset < 0 or length < 0 or offset + length > reader.size:
            raise _outside(digest, offset, length)
        data = reader.read_at(offset, length)
        if len(data) != length:
            raise _outside(digest, offset, length)
        return data

    def reader(self, digest: bytes) -> Reader:
        """Return an open pack, which stays open until others push it out.

        Raises:
            Missing: There is no such pack.
        """
        reader = self._readers.pop(digest, None)
        if reader is None:
            reader = self._backend.open(pack_key(digest))
            if len(self._readers) >= LIMIT:
                self._readers.pop(next(iter(self._readers))).close()
        self._readers[digest] = reader
        return reader

    def run(self, digest: bytes) -> Entries:
        """Return a pack's entries, to be searched where they lie; they are not checked.

        Raises:
            Missing: There is no such pack.
            FormatError: Its trailer is damaged.
        """
        reader = self.reader(digest)
        end = read_end(reader.read_at, reader.size, pack_key(digest))

        def read_at(offset: int, length: int) -> bytes:
            return self.read(digest, offset, length)

        return Entries(read_at, end.index_offset, end.entries)

    def index(self, digest: bytes) -> tuple[Covered, bytes]:
        """Return a pack as a table would list it, and its entries, checked.

        Raises:
            Missing: There is no such pack.
            FormatError: Its index or trailer is damaged.
        """
        reader = self.reader(digest)
        key = pack_key(digest)
        end = read_end(reader.read_at, reader.size, key)
        index = read_index(reader.read_at, end, key)
        total = sum(fields[4] for fields in ENTRY.iter_unpack(index))
        return Covered(digest, reader.size, end.entries, total), index

    def close(self) -> None:
        """Close all."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


class PackRun:
    """The entries of one pack that no table covers, searched like a table.

    Args:
        covered: The pack.
        entries: Its entries.
    """

    def __init__(self, covered: Covered, entries: Entries) -> None:
        """Take note."""
        self.packs = (covered,)
        self.entries = entries

    def find_all(self, digest: bytes) -> Iterator[Location]:
        """Give the places of an object."""
        return matching(self.entries, self.packs[0].digest, digest)


def held_run(covered: Covered, index: bytes) -> PackRun:
    """Return a run whose entries are held in memory."""
    return PackRun(covered, in_memory(index))


def matching(entries: Entries, pack: bytes, prefix: bytes) -> Iterator[Location]:
    """Give the places in one pack of the objects whose digest begins with `prefix`."""
    for entry in entries.matching(prefix):
        _, *place = PLACE.unpack_from(entry, 32)
        yield Location(pack, *place)


def _outside(digest: bytes, offset: int, length: int) -> FormatError:
    key = pack_key(digest)
    return FormatError(f"{key} has no {length} bytes at {offset}", location=key)
