"""Tiers: which segments become one, so that few stay and bytes are rewritten seldom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

FAN: Final = 4
"""So many segments of one tier become one of the next."""
_SMALLEST: Final = 16 << 10


def tier(size: int) -> int:
    """Return the tier of a segment by the bytes in it: each is `FAN` times the one below."""
    return (max(size, _SMALLEST) // _SMALLEST).bit_length() // (FAN.bit_length() - 1)


def plan(sizes: Sequence[int], fresh: int, limit: int | None = None) -> int:
    """Say which segments a new one is merged with.

    Every byte is then rewritten about once for each tier, and `FAN` - 1 segments at most stay in
    each, so both grow with the logarithm of the state.

    Args:
        sizes: Bytes that the segments hold, oldest first.
        fresh: Bytes that the new one would hold alone.
        limit: Bytes that may come together; what is left undone shows as `crowded`.

    Returns:
        Where the ones to merge begin, which always reach to the newest.
    """
    start = len(sizes)
    total = fresh
    while True:
        first = start
        while first and tier(sizes[first - 1]) <= tier(total):
            first -= 1
        more = sum(sizes[first:start])
        if start - first + 1 < FAN or (limit is not None and total + more > limit):
            return start
        total += more
        start = first


def crowded(sizes: Sequence[int], busy: Collection[int] = ()) -> tuple[int, int, int] | None:
    """Find segments that `plan` would have merged had there been no limit.

    Args:
        sizes: Bytes that the segments hold, oldest first.
        busy: Places of segments to leave alone.

    Returns:
        The smallest that there are: where they begin, where they end, and how many came together,
        without those that what they become is merged with at once. None if there are none.
    """
    found = None
    for stop in range(FAN, len(sizes) + 1):
        free = max((place + 1 for place in busy if place < stop), default=0)
        if stop - free < FAN:
            continue
        start = free + plan(sizes[free : stop - 1], sizes[stop - 1])
        if start < stop - 1 and (not found or tier(sizes[stop - 1]) <= tier(sizes[found[1] - 1])):
            found = start, stop
    if found is None:
        return None
    start, stop = found
    first = stop - 1
    while first > start and tier(sizes[first - 1]) <= tier(sizes[stop - 1]):
        first -= 1
    return start, stop, stop - first
