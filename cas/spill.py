"""Sorting more byte strings than fit into memory."""

from __future__ import annotations

import heapq
import os
import struct
from typing import TYPE_CHECKING, Final, Self

from cas import fs
from cas.errors import environment_failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

_OVERHEAD: Final = 48
"""Bytes that a string takes in memory beside its own: the object and its place in a list."""
_MAX_RUNS: Final = 32
"""Runs that are merged at once; each keeps a read buffer and an open file."""
_BUFFER: Final = 128 << 10
_LENGTH: Final = struct.Struct(">I")


class Spill:
    """A sorted bag (or set) of byte strings in bounded memory.

    Small ones stay in memory. Past `max_bytes`, sorted runs go to temporary files without a
    name, which are gone when the spill is closed or its process dies.

    Args:
        max_bytes: About how much memory the strings may take.
        unique: Keep one of equal strings.
    """

    def __init__(self, max_bytes: int = 64 << 20, *, unique: bool = False) -> None:
        """Begin empty."""
        self._max_bytes = max_bytes
        self._unique = unique
        self._items: list[bytes] = []
        self._bytes = 0
        self._runs: list[int] = []

    def add(self, item: bytes) -> None:
        """Put a string in.

        Raises:
            EnvironmentFailure: The folder for temporary files is full or fails.
        """
        self._items.append(item)
        self._bytes += len(item) + _OVERHEAD
        if self._bytes > self._max_bytes:
            self._shrink()

    def extend(self, items: Iterable[bytes]) -> None:
        """Put strings in that fit in memory together: `add`, but faster.

        Raises:
            EnvironmentFailure: As for `add`.
        """
        before = len(self._items)
        self._items += items
        self._bytes += sum(map(len, self._items[before:])) + _OVERHEAD * (len(self._items) - before)
        if self._bytes > self._max_bytes:
            self._shrink()

    def __iter__(self) -> Iterator[bytes]:
        """Give the strings in order. It may be done again, also after more were added."""
        self._sort_items()
        if not self._runs:
            return iter(self._items)
        return self._merge([*map(_read_run, self._runs), iter(self._items)])

    def close(self) -> None:
        """Forget everything and free the disk."""
        self._items = []
        self._bytes = 0
        while self._runs:
            os.close(self._runs.pop())

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _sort_items(self) -> None:
        if self._unique:
            self._items = sorted(set(self._items))
            self._bytes = sum(map(len, self._items)) + _OVERHEAD * len(self._items)
        else:
            self._items.sort()

    def _merge(self, streams: list[Iterator[bytes]]) -> Iterator[bytes]:
        merged = heapq.merge(*streams)
        if not self._unique:
            yield from merged
            return
        last: bytes | None = None
        for item in merged:
            if item != last:
                yield item
                last = item

    def _shrink(self) -> None:
        """Move what is in memory to the disk."""
        self._sort_items()
        if self._bytes * 2 < self._max_bytes:
            return  # mostly duplicates: there is room again
        try:
            self._runs.append(_write_run(self._items))
            self._items = []
            self._bytes = 0
            if len(self._runs) >= _MAX_RUNS:
                merged = _write_run(self._merge([*map(_read_run, self._runs)]))
                while self._runs:
                    os.close(self._runs.pop())
                self._runs.append(merged)
        except OSError as error:
            raise environment_failure(error, "sorting in the folder for temporary files") from error


def _write_run(items: Iterable[bytes]) -> int:
    """Write strings to a new temporary file and return its descriptor."""
    import tempfile  # late: start-up time

    with tempfile.TemporaryFile(buffering=0) as file:
        fd = os.dup(file.fileno())
    try:
        parts: list[bytes] = []
        waiting = 0
        for item in items:
            parts.append(_LENGTH.pack(len(item)))
            parts.append(item)
            waiting += len(item) + _LENGTH.size
            if waiting >= _BUFFER:
                fs.write_all(fd, b"".join(parts))
                parts.clear()
                waiting = 0
        fs.write_all(fd, b"".join(parts))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _read_run(fd: int) -> Iterator[bytes]:
    """Give the strings of one run, a buffer at a time."""
    buffer = fs.pread(fd, _BUFFER, 0)
    offset = len(buffer)
    at = 0
    while buffer:
        while at + _LENGTH.size <= len(buffer):
            start = at + _LENGTH.size
            stop = start + _LENGTH.unpack_from(buffer, at)[0]
            if stop > len(buffer):
                break
            yield buffer[start:stop]
            at = stop
        rest = buffer[at:]
        wanted = _BUFFER
        if len(rest) >= _LENGTH.size:  # a string longer than the buffer comes whole
            wanted = max(wanted, _LENGTH.unpack_from(rest)[0] + _LENGTH.size - len(rest))
        more = fs.pread(fd, wanted, offset)
        offset += len(more)
        buffer = rest + more
        at = 0
