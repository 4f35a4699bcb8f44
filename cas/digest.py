"""The digest, and how bytes, streams and files get theirs. The only import of blake3."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from blake3 import blake3

from cas.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

DIGEST_SIZE = 32
"""Bytes in a digest."""

_HEX = frozenset("0123456789abcdef")
# Below a mebibyte, waking other cores costs more than they save. In blocks of this size a core
# finds in its cache what it just read.
_PARALLEL = 1 << 20
_BLOCK = 1 << 20
# A file of this size is hashed as fast as a mapped one, if a thread reads the next block of several
# mebibytes meanwhile.
_AHEAD = 16 << 20
_AHEAD_BLOCK = 4 << 20


class Digest(bytes):
    """The BLAKE3 of exact content: 32 raw bytes whose text form is 64 lowercase hex digits.

    Being bytes, it equals and hashes like the raw digest, so hot loops may carry plain bytes.

    Args:
        raw: The 32 bytes.

    Raises:
        RefusedError: Not 32 bytes.
    """

    __slots__ = ()

    def __new__(cls, raw: bytes) -> Self:
        """Check the length; nothing else can be wrong with raw bytes."""
        if len(raw) != DIGEST_SIZE:
            raise RefusedError(f"a digest has {DIGEST_SIZE} bytes, not {len(raw)}")
        return super().__new__(cls, raw)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form: exactly 64 lowercase hexadecimal digits.

        Raises:
            RefusedError: Anything else.
        """
        if len(text) != 2 * DIGEST_SIZE or not _HEX.issuperset(text):
            shown = text if len(text) <= 80 else text[:77] + "..."
            raise RefusedError(
                f"{shown!r} is not a digest: one is 64 lowercase hexadecimal digits", text=shown
            )
        return cls(bytes.fromhex(text))

    def __str__(self) -> str:
        """Return the 64 hex digits."""
        return self.hex()

    def __repr__(self) -> str:
        """Return a call of `parse` that makes an equal one."""
        return f"Digest.parse('{self.hex()}')"


known_digest: Callable[[bytes], Digest] = partial(bytes.__new__, Digest)
"""Return 32 bytes that are known to be 32 as a `Digest`: the fast path for listings."""


def raw_hash(data: bytes) -> bytes:
    """Return the digest of `data` as plain bytes: the fast path for loops over small values."""
    return blake3(data).digest()


def hash_bytes(data: bytes | bytearray | memoryview) -> Digest:
    """Return the digest of `data`, on all cores when it is large."""
    if len(data) < _PARALLEL:
        return Digest(blake3(data).digest())
    return Digest(blake3(data, max_threads=blake3.AUTO).digest())


class Hasher:
    """Digest of bytes that come in pieces.

    Args:
        parallel: Hash large pieces on all cores; False where other work keeps those busy.
    """

    __slots__ = ("_state",)

    def __init__(self, *, parallel: bool = True) -> None:
        """Start with no bytes."""
        self._state = blake3(max_threads=blake3.AUTO if parallel else 1)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next piece."""
        self._state.update(data)

    def digest(self) -> Digest:
        """Return the digest of what came so far."""
        return Digest(self._state.digest())


def hash_fd(
    fd: int, *, offset: int = 0, length: int | None = None, parallel: bool = True
) -> Digest:
    """Return the digest of what an open file holds, in bounded memory.

    The file is read, never mapped: one that others cut short while it is hashed gives the digest
    of what was still there, not a signal. The position of `fd` does not move.

    Args:
        fd: A file open for reading.
        offset: Where to begin, in bytes.
        length: How many bytes at most; None reads to the end.
        parallel: Whether to use all cores; False where each is busy with a file of its own.

    Raises:
        OSError: Reading failed.
    """
    left = max(os.fstat(fd).st_size - offset, 0) if length is None else length
    state = blake3(max_threads=blake3.AUTO if parallel and left >= _PARALLEL else 1)
    if parallel and left >= _AHEAD:
        blocks = _read_ahead(fd, offset, length)
    else:
        blocks = _read(fd, offset, length, min(max(left, 1), _BLOCK))
    for block in blocks:
        state.update(block)
    return Digest(state.digest())


def _read(fd: int, offset: int, length: int | None, size: int) -> Iterator[memoryview]:
    """Give the bytes of a file in blocks of a size, each valid until the next is asked for."""
    view = memoryview(bytearray(size))
    while got := os.preadv(fd, [view if length is None else view[:length]], offset):
        yield view[:got]
        offset += got
        if length is not None:
            length -= got


def _read_ahead(fd: int, offset: int, length: int | None) -> Iterator[memoryview]:
    """Do as `_read`, and read the next block while the caller is busy with the last one."""
    from concurrent.futures import ThreadPoolExecutor  # late: start-up time

    last = None if length is None else offset + length
    block, other = (memoryview(bytearray(_AHEAD_BLOCK)) for _ in range(2))

    def read(into: memoryview, offset: int) -> int:
        return os.preadv(fd, [into if last is None else into[: last - offset]], offset)

    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(read, block, offset)
        while got := reading.result():
            offset += got
            reading = reader.submit(read, other, offset)
            yield block[:got]
            block, other = other, block
