"""Packs: immutable files of many small objects, each with its own index at its end.

Layout (`docs/format.md` has every byte): header with a nonce, the stored bytes of the objects back
to back, the index, a trailer that carries a checksum. The name is the digest of the whole file.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from cas.digest import Digest, Hasher, raw_hash
from cas.errors import FormatError, NewerFormatError, RefusedError
from cas.objects.entries import ENTRY, ENTRY_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from cas.backends import Staging

FORMAT: Final = 1
PREFIX: Final = "packs/"
SUFFIX: Final = ".pack"

MAGIC: Final = b"CASPACK\x01"
END: Final = b"CASPEND\x01"
NONCE_SIZE: Final = 16
HEADER_SIZE: Final = len(MAGIC) + NONCE_SIZE
TRAILER: Final = struct.Struct(">QQII32s8s")
"""Entries, where they begin, format, zero, checksum, magic."""
_SEALED: Final = 24  # bytes of the trailer that its checksum covers

MAX_ENTRIES: Final = 1 << 20
"""Objects that a pack may hold at most; those that are written here hold fewer."""

_BUFFER: Final = 1 << 20


class Covered(NamedTuple):
    """A pack as an index table knows it."""

    digest: bytes
    size: int
    """Bytes of the file."""
    entries: int
    bytes: int
    """Bytes of the objects in it, before compression."""

    @property
    def stored(self) -> int:
        """Bytes of the objects in it as they are stored."""
        return self.size - HEADER_SIZE - TRAILER.size - self.entries * ENTRY_SIZE


def pack_key(digest: bytes) -> str:
    """Return the key of the pack with that digest."""
    return f"{PREFIX}{digest.hex()}{SUFFIX}"


def pack_digest(key: str) -> Digest | None:
    """Return the digest in a pack's key, or None if the key is not one of a pack."""
    if not key.startswith(PREFIX) or not key.endswith(SUFFIX):
        return None
    try:
        return Digest.parse(key[len(PREFIX) : -len(SUFFIX)])
    except RefusedError:
        return None


class PackBuilder:
    """Writes one pack into a staging file.

    Args:
        staging: Where the bytes go; empty, and this builder's from now on.
    """

    def __init__(self, staging: Staging) -> None:
        """Write the header."""
        self.staging = staging
        self.digests: set[bytes] = set()
        self.bytes = 0
        self.size = HEADER_SIZE
        self._header = MAGIC + os.urandom(NONCE_SIZE)
        self._entries: list[bytes] = []
        self._hasher = Hasher()
        self._buffer: list[bytes] = [self._header]
        self._buffered = 0

    @property
    def count(self) -> int:
        """How many objects it holds so far."""
        return len(self._entries)

    def add(self, digest: bytes, stored: bytes, size: int, encoding: int, kind: int) -> None:
        """Append an object that this pack does not hold yet.

        Args:
            digest: Of the object.
            stored: Its bytes as they are to be stored.
            size: Its size.
            encoding: How `stored` encodes it.
            kind: What it is.
        """
        length = len(stored)
        self._entries.append(ENTRY.pack(digest, 0, self.size, length, size, encoding, kind, 0))
        self.digests.add(digest)
        self._buffer.append(stored)
        self.size += length
        self.bytes += size
        self._buffered += length
        if self._buffered >= _BUFFER:
            self._write()

    def seal(self) -> tuple[Covered, bytes]:
        """Write index and trailer.

        Returns:
            What the pack now is, and its sorted entries. The staging is ready to be put in place.
        """
        self._entries.sort()
        index = b"".join(self._entries)
        count = len(self._entries)
        sealed = TRAILER.pack(count, self.size, FORMAT, 0, bytes(32), END)[:_SEALED]
        checksum = raw_hash(self._header + index + sealed)
        self._buffer += [index, sealed, checksum, END]
        self._write()
        size = self.size + len(index) + TRAILER.size
        return Covered(self._hasher.digest(), size, count, self.bytes), index

    def _write(self) -> None:
        data = b"".join(self._buffer)
        self._buffer = []
        self._buffered = 0
        self._hasher.update(data)
        self.staging.write(data)


class PackEnd(NamedTuple):
    """What a pack's trailer says, checked against the size of the file."""

    entries: int
    index_offset: int
    version: int
    """Not to be believed before the checksum was compared."""
    checksum: bytes
    sealed: bytes
    """What the checksum covers of the trailer."""


def read_end(read_at: Callable[[int, int], bytes], size: int, key: str) -> PackEnd:
    """Read a pack's trailer.

    Args:
        read_at: Gives bytes of the pack at an offset.
        size: How many bytes the pack has.
        key: For messages.

    Raises:
        FormatError: It is not the end of a pack of that size.
    """
    if size < HEADER_SIZE + TRAILER.size:
        raise FormatError(f"{key} has {size} bytes, too few for a pack", location=key)
    data = read_at(size - TRAILER.size, TRAILER.size)
    if len(data) != TRAILER.size:
        raise FormatError(f"{key} is shorter than it was", location=key)
    count, offset, version, zero, checksum, magic = TRAILER.unpack(data)
    if magic != END:
        raise FormatError(f"{key} does not end like a pack", location=key)
    fits = count <= MAX_ENTRIES and offset >= HEADER_SIZE
    fits = fits and offset + count * ENTRY_SIZE + TRAILER.size == size
    if zero != 0 or not fits:
        raise FormatError(f"{key} has a trailer that does not fit the file", location=key)
    return PackEnd(count, offset, version, checksum, data[:_SEALED])


def read_index(read_at: Callable[[int, int], bytes], end: PackEnd, key: str) -> bytes:
    """Return a pack's entries, checked against its trailer.

    Raises:
        FormatError: Header, index or trailer are not what was written.
        NewerFormatError: The pack is of a newer format.
    """
    header = read_at(0, HEADER_SIZE)
    index = read_at(end.index_offset, end.entries * ENTRY_SIZE)
    if header[: len(MAGIC)] != MAGIC or raw_hash(header + index + end.sealed) != end.checksum:
        raise FormatError(f"{key} has a damaged index", location=key)
    check_format(end.version, FORMAT, key)
    return index


def check_format(version: int, known: int, key: str) -> None:
    """See that a file is of a format that is known here.

    Args:
        version: What it says, after a check that it says what was written.
        known: The newest format of its sort that is known here.
        key: For messages.

    Raises:
        NewerFormatError: It is newer.
        FormatError: There never was such a format.
    """
    if version > known:
        raise NewerFormatError(
            f"{key} is of format {version}, this program knows up to {known}; update it",
            location=key,
        )
    if version != known:
        raise FormatError(f"{key} is of format {version}, which there never was", location=key)
