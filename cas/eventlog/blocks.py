"""Blocks: the pieces that a segment is read in, each with its own digest.

A block is one byte that says how the rest is stored, and a flat list: of keys and values in a
leaf, of first keys, offsets, lengths and digests of blocks in a node.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas.codec import decode_trusted, encode_plain
from cas.digest import raw_hash
from cas.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK: Final = 32 << 10
"""A block is closed when it holds so many bytes, before compression."""
MAX_BLOCK: Final = 24 << 20
"""Bytes that a block may claim to hold: one of the largest entry there is, and more."""
LEVEL: Final = 3
"""The level of zstd."""

_RAW: Final = b"\x00"
_ZSTD: Final = b"\x01"
_WORTH: Final = 512
_local = threading.local()


class Pointer(NamedTuple):
    """Where a block lies in its segment, and its digest."""

    offset: int
    length: int
    digest: bytes


def pack_block(flat: list[Any]) -> tuple[bytes, bytes]:
    """Return the stored form of a flat list, compressed where that saves, and its digest."""
    plain = encode_plain(flat)
    stored = _RAW + plain
    if len(plain) >= _WORTH:
        packed = _ZSTD + _codecs()[0](plain)
        if len(packed) < len(stored):
            stored = packed
    return stored, raw_hash(stored)


def unpack_block(stored: bytes, pointer: Pointer) -> list[Any]:
    """Return the flat list of a stored block.

    Raises:
        FormatError: The bytes are not those that the pointer names.
    """
    if len(stored) != pointer.length or raw_hash(stored) != pointer.digest:
        raise FormatError(f"the block at {pointer.offset} does not have its digest")
    encoding, plain = stored[:1], stored[1:]
    if encoding == _ZSTD:
        plain = _codecs()[1](plain)
    elif encoding != _RAW:
        raise FormatError(f"the block at {pointer.offset} has an unknown encoding")
    flat = decode_trusted(plain)
    if not isinstance(flat, list):
        raise FormatError(f"the block at {pointer.offset} holds no list")
    return flat


def _codecs() -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
    """Return compress and decompress for this thread; zstd's contexts serve one at a time."""
    found: tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]] | None
    found = getattr(_local, "codecs", None)
    if found is None:
        import zstandard  # only when there is a segment: start-up time

        decompressor = zstandard.ZstdDecompressor()

        def decompress(packed: bytes) -> bytes:
            try:
                size = zstandard.frame_content_size(packed)
                if not 0 <= size <= MAX_BLOCK:
                    raise FormatError(f"a block claims to hold {size} bytes")
                return decompressor.decompress(packed, max_output_size=size or 1)
            except zstandard.ZstdError as error:
                raise FormatError(f"a block cannot be decompressed: {error}") from None

        found = (zstandard.ZstdCompressor(level=LEVEL).compress, decompress)
        _local.codecs = found
    return found


class BlockCache:
    """The blocks that were looked into last, read and split, within a bound.

    Args:
        limit: Bytes of stored blocks whose contents are kept.
    """

    def __init__(self, limit: int = 4 << 20) -> None:
        """Begin empty."""
        self._limit = limit
        self._size = 0
        self._blocks: dict[tuple[bytes, int], tuple[int, Any]] = {}
        self._lock = threading.Lock()

    def get(self, pointer: Pointer, depth: int) -> Any:
        """Return what is kept of a block that was read as one of a level, or None."""
        with self._lock:
            found = self._blocks.pop((pointer.digest, depth), None)
            if found is None:
                return None
            self._blocks[pointer.digest, depth] = found
            return found[1]

    def put(self, pointer: Pointer, depth: int, block: Any) -> None:
        """Keep a block, and let the ones go that were not asked for longest."""
        with self._lock:
            self._size += pointer.length
            self._size -= self._blocks.pop((pointer.digest, depth), (0,))[0]
            self._blocks[pointer.digest, depth] = (pointer.length, block)
            while self._size > self._limit and len(self._blocks) > 1:
                self._size -= self._blocks.pop(next(iter(self._blocks)))[0]
