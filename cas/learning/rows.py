"""Rows: what the log knows of a candidate besides its document, and the indexes over them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas.codec import decode_sealed, encode_plain
from cas.errors import RefusedError, UnknownCandidateError
from cas.learning.document import decode_document
from cas.learning.fields import MOST
from cas.learning.keys import (
    LEASE_FLOOR,
    body_key,
    count_prefix,
    id_key,
    kind_prefix,
    lease_key,
    open_floor,
    row_key,
    status_prefix,
)
from cas.learning.model import Candidate
from cas.learning.status import OPEN, SYNTHESIZING

if TYPE_CHECKING:
    from cas.eventlog import MutableState, State

IN_ROW: Final = frozenset(
    {
        "candidate_id",
        "kind",
        "status",
        "draft_skill_name",
        "draft_id",
        "created_at",
        "updated_at",
    }
)
"""Fields of a candidate that its row has; the rest is in its document."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Held(NamedTuple):
    """A claim on a candidate."""

    token: int
    owner: str
    expires_ns: int
    before: str
    """The status that a release goes back to."""


class Row(NamedTuple):
    """One candidate, without its document."""

    candidate_id: str
    kind: str
    status: str
    draft_skill_name: str | None
    draft_id: str | None
    created_at: str
    updated_at: str
    held: Held | None
    intent: Any
    """What is being published of it; None if nothing is. Made of plain lists and scalars."""

    def encode(self) -> bytes:
        """Return what is stored."""
        return encode_plain(self)

    @classmethod
    def decode(cls, encoded: bytes) -> Row:
        """Read what is stored."""
        row = cls._make(decode_sealed(encoded))
        return row if row.held is None else row._replace(held=Held._make(row.held))


def find_row(state: State, candidate_id: str) -> tuple[bytes, Row]:
    """Return the place of a candidate and its row.

    Raises:
        UnknownCandidateError: There is none.
    """
    place = state.get(id_key(candidate_id))
    if place is None:
        raise UnknownCandidateError(
            f"candidate {candidate_id} not found; `cas learn list` shows those that there are",
            candidate_id=candidate_id,
        )
    return place, read_row(state, place)


def read_row(state: State, place: bytes) -> Row:
    """Return the row at a place."""
    encoded = state.get(row_key(place))
    assert encoded is not None, "the fold writes id and row together"
    return Row.decode(encoded)


def put_row(state: MutableState, place: bytes, row: Row, before: Row | None = None) -> None:
    """Store a row, and keep what is counted and indexed right.

    Args:
        state: The state.
        place: The candidate's place.
        row: What it is now.
        before: What it was; None for a new one.
    """
    state.put(row_key(place), row.encode())
    new, old = _index(place, row), _index(place, before) if before else {}
    if new == old:
        return
    for key in old.keys() - new.keys():
        state.delete(key)
    for key, value in new.items():
        if old.get(key) != value:
            state.put(key, value)
    _lower_floors(state, place, row, before)
    if before is None or (before.status, before.kind) != (row.status, row.kind):
        if before is not None:
            _count(state, before, -1)
        _count(state, row, 1)


def _index(place: bytes, row: Row) -> dict[bytes, bytes]:
    kind = row.kind.encode()
    index = {
        status_prefix(row.status) + place: kind,
        kind_prefix(row.kind, row.status) + place: b"",
    }
    if row.status == SYNTHESIZING:
        index[lease_key(row.held.expires_ns if row.held else 0, place)] = kind
    return index


def _count(state: MutableState, row: Row, change: int) -> None:
    key = count_prefix(row.status) + row.kind.encode()
    count = int.from_bytes(state.get(key) or b"", "big") + change
    if count:
        state.put(key, count.to_bytes(8, "big"))
    else:
        state.delete(key)


def _lower_floors(state: MutableState, place: bytes, row: Row, before: Row | None) -> None:
    """Let no floor lie above what is to be found from it; a new candidate is above all."""
    if row.status == OPEN and before is not None:
        for key in (open_floor(None), open_floor(row.kind)):
            lower_floor(state, key, place)
    elif row.status == SYNTHESIZING:
        lower_floor(state, LEASE_FLOOR, (row.held.expires_ns if row.held else 0).to_bytes(8, "big"))


def lower_floor(state: MutableState, key: bytes, low: bytes) -> None:
    """See to it that a floor is not above a place or time."""
    floor = state.get(key)
    if floor is not None and low < floor:
        state.put(key, low)


def candidate_of(row: Row, body: bytes | None) -> Candidate:
    """Put a candidate together from its row and its document."""
    assert body is not None, "the fold writes row and document together"
    rest = decode_document(body)
    fields = {name: getattr(row, name) for name in IN_ROW}
    return Candidate(
        **fields,
        reason=rest.pop("reason"),
        last_error=rest.pop("last_error"),
        extra=rest,
    )


def read_candidate(state: State, place: bytes) -> Candidate:
    """Return the candidate at a place."""
    return candidate_of(read_row(state, place), state.get(body_key(place)))


def iso(ns: int) -> str:
    """Return a time in ns since 1970 as UTC, ISO 8601 with microseconds."""
    return (_EPOCH + timedelta(microseconds=ns // 1000)).isoformat(timespec="microseconds")


def ns_of(moment: str) -> int:
    """Return the ns since 1970 of a time that `iso` gives this text of.

    Raises:
        RefusedError: There is none.
    """
    try:
        ns = (datetime.fromisoformat(moment) - _EPOCH) // timedelta(microseconds=1) * 1000
        if 0 <= ns <= MOST and iso(ns) == moment:
            return ns
    except (TypeError, ValueError, OverflowError):
        pass
    raise RefusedError(
        f"{ascii(moment)[:80]} is no time: write it as {iso(0)}, in UTC, from 1970 to 2262"
    )
