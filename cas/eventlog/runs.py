"""Sorted runs of keys and values, and how runs of several layers become one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Run = tuple[list[bytes], list[bytes | None]]
"""Ascending keys and their values; None says that the key was deleted."""


class _Cursor:
    """The rest of one layer: the part of its current run that was not given yet."""

    __slots__ = ("keys", "source", "start", "stop", "values")

    def __init__(self, source: Iterator[Run]) -> None:
        self.source = source
        self.start = self.stop = 0
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []

    def fill(self) -> bool:
        """Have something to give; False at the end of the layer."""
        while self.start == self.stop:
            run = next(self.source, None)
            if run is None:
                return False
            self.keys, self.values = run
            self.start, self.stop = 0, len(self.keys)
        return True

    def take(self, start: int, stop: int) -> Run:
        return self.keys[start:stop], self.values[start:stop]


def merge(layers: Sequence[Iterator[Run]], *, reverse: bool = False) -> Iterator[Run]:
    """Merge layers, each sorted, into one sequence of runs in which every key comes once.

    Every step takes whole slices up to the key that the first of the current runs ends with, so
    that its cost lies in the sorting and hashing of built-in types, however the keys interleave.

    Args:
        layers: The newest first; where several have a key, the newest's value counts.
        reverse: Give the runs in descending order; inside a run keys ascend all the same. The
            layers must come in that order too.
    """
    # Oldest first, so that newer layers overwrite.
    cursors = [cursor for cursor in map(_Cursor, reversed(layers)) if cursor.fill()]
    while len(cursors) > 1:
        parts: list[Run] = []
        if reverse:
            bound = max(cursor.keys[cursor.start] for cursor in cursors)
            for cursor in cursors:
                cut = bisect_left(cursor.keys, bound, cursor.start, cursor.stop)
                if cut < cursor.stop:
                    parts.append(cursor.take(cut, cursor.stop))
                    cursor.stop = cut
        else:
            bound = min(cursor.keys[cursor.stop - 1] for cursor in cursors)
            for cursor in cursors:
                cut = bisect_right(cursor.keys, bound, cursor.start, cursor.stop)
                if cut > cursor.start:
                    parts.append(cursor.take(cursor.start, cut))
                    cursor.start = cut
        yield parts[0] if len(parts) == 1 else _overlay(parts)
        cursors = [cursor for cursor in cursors if cursor.fill()]
    for cursor in cursors:
        yield cursor.take(cursor.start, cursor.stop)
        yield from cursor.source


def _overlay(parts: Iterable[Run]) -> Run:
    table: dict[bytes, bytes | None] = {}
    for keys, values in parts:
        table.update(zip(keys, values, strict=True))
    ordered = sorted(table)
    return ordered, [table[key] for key in ordered]


def live(runs: Iterable[Run], *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """Give the pairs of merged runs, without deleted keys; descending if the runs are."""
    for keys, values in runs:
        pairs = zip(keys, values, strict=True)
        if reverse:
            pairs = zip(reversed(keys), reversed(values), strict=True)
        for key, value in pairs:
            if value is not None:
                yield key, value


def after(prefix: bytes) -> bytes | None:
    """Return the least key above all that begin with `prefix`; None if there is no such key."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
