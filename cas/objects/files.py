"""Objects as seekable binary files."""

from __future__ import annotations

import io
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from cas.backends import Reader


class _ReadOnly(io.RawIOBase):
    """A file whose bytes come from `_read_at`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, as any file does."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"position {base + offset} is before the beginning")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as the object goes."""
        view = memoryview(buffer).cast("B")
        want = min(len(view), max(0, self._size - self._position))
        data = self._read_at(self._position, want) if want else b""
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _read_at(self, offset: int, length: int) -> bytes:
        raise NotImplementedError


class LooseFile(_ReadOnly):
    """A loose object.

    Args:
        reader: Its file; closed with this one.
    """

    def __init__(self, reader: Reader) -> None:
        """Begin at the start."""
        super().__init__(reader.size)
        self._reader = reader

    def close(self) -> None:
        """Close, also the reader."""
        if not self.closed:
            self._reader.close()
        super().close()

    def _read_at(self, offset: int, length: int) -> bytes:
        return self._reader.read_at(offset, length)


class ChunkedFile(_ReadOnly):
    """An object of chunks, each of which is read and checked when it is needed.

    Args:
        chunks: Digest and size of each, in order.
        read: Gives a chunk's checked bytes.
    """

    def __init__(
        self, chunks: Sequence[tuple[bytes, int]], read: Callable[[bytes, int], bytes]
    ) -> None:
        """Begin at the start."""
        self._chunks = chunks
        self._ends = list(accumulate(size for _, size in chunks))
        self._read = read
        self._held = -1
        self._content = b""
        super().__init__(self._ends[-1] if self._ends else 0)

    def _read_at(self, offset: int, length: int) -> bytes:
        number = bisect_right(self._ends, offset)
        if number != self._held:
            self._content = self._read(*self._chunks[number])
            self._held = number
        at = offset - (self._ends[number] - self._chunks[number][1])
        return self._content[at : at + length]
