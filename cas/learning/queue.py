"""The queue: which candidates are to be claimed next, found without passing over what was claimed.

What is claimed or finished leaves gaps in an index until a compaction rewrites all of it. So the
state has *floors*, before which there is nothing to be found; each claim of the next raises them,
and the fold lowers them for what comes in below (`cas.learning.rows`). A floor often says all that
is to be known: an open candidate at it is the oldest, and no lease ends before it. Then no index
is looked through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cas.learning.keys import (
    LEASE,
    LEASE_FLOOR,
    PLACE_SIZE,
    count_prefix,
    kind_prefix,
    open_floor,
    row_key,
    status_prefix,
)
from cas.learning.rows import Row, read_row
from cas.learning.status import OPEN, SYNTHESIZING

if TYPE_CHECKING:
    from cas.eventlog import State


class Next(NamedTuple):
    """The candidates to claim next.

    Attributes:
        rows: Each with its place.
        floors: What was learnt on the way: the kind that was looked for; the place before which
            nothing of it is open once these are claimed, and the time in ns before which no lease
            ends, or None.
    """

    rows: list[tuple[bytes, Row]]
    floors: list[Any]


def next_rows(state: State, now: int, kind: str | None, count: int) -> Next:
    """Find the candidates to claim next: those whose lease is over, then the oldest open ones.

    Args:
        state: The state.
        now: The time in ns, by the store's clock.
        kind: Only candidates of this kind.
        count: How many, at most.
    """
    rows: list[tuple[bytes, Row]] = []
    opened = ends = None
    floor = state.get(LEASE_FLOOR) or b""
    if int.from_bytes(floor, "big") <= now and _any(state, SYNTHESIZING, kind):
        ends = _over(state, floor, now, kind, count, rows)
    if len(rows) < count:
        floor = state.get(open_floor(kind)) or b""
        oldest = _oldest(state, floor, kind) if count == 1 and floor else None
        if oldest is not None:
            rows.append((floor, oldest))
        elif _any(state, OPEN, kind):
            opened = _open(state, floor, kind, count, rows)
    return Next(rows, [kind, opened, ends])


def _over(
    state: State,
    floor: bytes,
    now: int,
    kind: str | None,
    count: int,
    rows: list[tuple[bytes, Row]],
) -> int | None:
    """Add candidates whose lease is over, and return when the first lease of all ends."""
    first = None
    for key, of_kind in state.scan(LEASE, start=LEASE + floor):
        ends = int.from_bytes(key[len(LEASE) : -PLACE_SIZE], "big")
        if first is None:
            first = ends
        if ends > now or len(rows) == count:
            break
        if kind is None or of_kind.decode() == kind:
            row = read_row(state, key[-PLACE_SIZE:])
            if row.intent is None:
                rows.append((key[-PLACE_SIZE:], row))
    return first


def _oldest(state: State, floor: bytes, kind: str | None) -> Row | None:
    """Return the candidate at a floor if it is open and has no draft; nothing older is open."""
    encoded = state.get(row_key(floor))
    row = None if encoded is None else Row.decode(encoded)
    if row is None or row.status != OPEN or row.draft_id is not None:
        return None
    return row if kind in (None, row.kind) else None


def _open(
    state: State, floor: bytes, kind: str | None, count: int, rows: list[tuple[bytes, Row]]
) -> bytes | None:
    """Add open candidates without a draft, and return the place of the first that stays open."""
    stays = place = None
    prefix = status_prefix(OPEN) if kind is None else kind_prefix(kind, OPEN)
    for key, _ in state.scan(prefix, start=prefix + floor):
        place = key[-PLACE_SIZE:]
        if len(rows) == count:
            return stays or place
        row = read_row(state, place)
        if row.draft_id is None:
            rows.append((place, row))
        else:
            stays = stays or place
    return stays or place


def _any(state: State, status: str, kind: str | None) -> bool:
    """Say whether there is a candidate of a status, and of a kind if one is given."""
    prefix = count_prefix(status)
    if kind is not None:
        return state.get(prefix + kind.encode()) is not None
    return next(state.scan(prefix), None) is not None
