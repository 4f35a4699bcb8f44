"""The audit: what was done to candidates, in the order in which it took effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cas.codec import decode_sealed, encode_plain
from cas.learning.document import decode_document
from cas.learning.keys import AUDIT, Place, trail_prefix
from cas.learning.model import AuditEvent
from cas.learning.rows import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.eventlog import MutableState, State

NOTHING: bytes = b"{}"
"""The document of an empty payload."""


class Entry(NamedTuple):
    """An audit event as the state holds it, without its place."""

    candidate_id: str
    event_type: str
    at: int | str
    """In ns since 1970 by the store's clock; text of an event that came with a time."""
    actor: str
    from_status: str | None = None
    to_status: str | None = None
    token: int | None = None
    forced: bool = False
    payload: bytes = NOTHING
    event_id: str | None = None
    """Of an event that came with one."""
    extra: bytes = NOTHING

    def event(self, place: Place) -> AuditEvent:
        """Return the event that stands at a place."""
        at, event_id = self.at, self.event_id
        return AuditEvent(
            event_id=f"{place.position}.{place.ordinal}" if event_id is None else event_id,
            candidate_id=self.candidate_id,
            event_type=self.event_type,
            created_at=at if isinstance(at, str) else iso(at),
            actor=self.actor,
            payload=decode_document(self.payload),
            from_status=self.from_status,
            to_status=self.to_status,
            token=self.token,
            forced=self.forced,
            extra=decode_document(self.extra),
        )


def put_entry(state: MutableState, place: Place, entry: Entry) -> None:
    """Write an audit event, once by its place and once in the trail of its candidate."""
    key = place.key
    state.put(AUDIT + key, encode_plain(entry))
    state.put(trail_prefix(entry.candidate_id) + key, b"")


def entry_at(state: State, place: Place) -> AuditEvent:
    """Return the audit event that stands at a place."""
    key = AUDIT + place.key
    encoded = state.get(key)
    assert encoded is not None, "its event was appended there"
    return _read(key, encoded)[1]


def entries(
    state: State, candidate_id: str | None = None, after: Place | None = None
) -> Iterator[tuple[Place, AuditEvent]]:
    """Give the audit events of one candidate, or of all, in the order of the log.

    Args:
        state: The state.
        candidate_id: The only candidate to give events of.
        after: Begin behind this place.
    """
    start = None if after is None else after._replace(ordinal=after.ordinal + 1).key
    if candidate_id is None:
        for key, encoded in state.scan(AUDIT, start=start and AUDIT + start):
            yield _read(key, encoded)
        return
    prefix = trail_prefix(candidate_id)
    for trail, _ in state.scan(prefix, start=start and prefix + start):
        key = AUDIT + trail[-12:]
        found = state.get(key)
        assert found is not None, "the fold writes both together"
        yield _read(key, found)


def _read(key: bytes, encoded: bytes) -> tuple[Place, AuditEvent]:
    place = Place.of_key(key)
    fields: list[Any] = decode_sealed(encoded)
    return place, Entry(*fields).event(place)
