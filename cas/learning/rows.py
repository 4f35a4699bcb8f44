"""Rows: what the log knows of a candidate besides its document, and the indexes over them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas.codec import decode_sealed, encode_plain
from cas.errors import UnknownCandidateError
from cas.learning.document import decode_document
from cas.learning.keys import (
    body_key,
    id_key,
    kind_prefix,
    lease_key,
    row_key,
    status_prefix,
)
from cas.learning.model import Candidate
from cas.learning.status import SYNTHESIZING

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
    """Store a row, and keep the indexes right.

    Args:
        state: The state.
        place: The candidate's place.
        row: What it is now.
        before: What it was; None for a new one.
    """
    state.put(row_key(place), row.encode())
    new, old = set(_index_keys(place, row)), set(_index_keys(place, before) if before else ())
    for key in old - new:
        state.delete(key)
    for key in new - old:
        state.put(key, b"")
    key = status_prefix(row.status) + place
    if before is None or (before.status, before.kind) != (row.status, row.kind):
        state.put(key, row.kind.encode())


def _index_keys(place: bytes, row: Row) -> list[bytes]:
    keys = [status_prefix(row.status) + place, kind_prefix(row.kind, row.status) + place]
    if row.status == SYNTHESIZING:
        keys.append(lease_key(row.held.expires_ns if row.held else 0, place))
    return keys


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
