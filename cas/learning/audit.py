"""The audit: what was done to candidates, in the order in which it took effect."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from cas.codec import decode_sealed, encode_plain
from cas.learning.document import decode_document
from cas.learning.keys import AUDIT, INIT, Place, event_key, trail_prefix
from cas.learning.model import AuditEvent
from cas.learning.rows import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.eventlog import MutableState, State

NOTHING: bytes = b"{}"
"""The document of an empty payload."""

_OWN_ID = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})\.([0-9]{1,9})")


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

    def event(self, place: Place, origin: str) -> AuditEvent:
        """Return the event that stands at a place of the log of a store."""
        at, event_id = self.at, self.event_id
        return AuditEvent(
            event_id=own_id(place, origin) if event_id is None else event_id,
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


def own_id(place: Place, origin: str) -> str:
    """Return the id of an event that was made in a store: unlike any of another store."""
    return f"{origin[:16]}-{place.mark}"


def find_event(state: State, event_id: str) -> Place | None:
    """Return where the audit event of an id stands, None where there is none."""
    key = state.get(event_key(event_id))
    if key is not None:
        return Place.of_key(key)
    match = _OWN_ID.fullmatch(event_id)
    if match is None:
        return None
    place = Place(int(match[2]), int(match[3]))
    init = state.get(INIT)
    if init is None or decode_sealed(init)["store_id"][:16] != match[1]:
        return None
    return place if state.get(AUDIT + place.key) is not None else None


def put_entry(state: MutableState, place: Place, entry: Entry) -> None:
    """Write an audit event, once by its place and once in the trail of its candidate."""
    key = place.key
    state.put(AUDIT + key, encode_plain(entry))
    state.put(trail_prefix(entry.candidate_id) + key, b"")


def entry_at(state: State, place: Place, origin: str) -> AuditEvent:
    """Return the audit event that stands at a place of the log of a store."""
    key = AUDIT + place.key
    encoded = state.get(key)
    assert encoded is not None, "its event was appended there"
    return _read(key, encoded, origin)[1]


def entries(
    state: State, origin: str, candidate_id: str | None = None, after: Place | None = None
) -> Iterator[tuple[Place, AuditEvent]]:
    """Give the audit events of one candidate, or of all, in the order of the log.

    Args:
        state: The state.
        origin: The identity of the store.
        candidate_id: The only candidate to give events of.
        after: Begin behind this place.
    """
    start = None if after is None else after._replace(ordinal=after.ordinal + 1).key
    if candidate_id is None:
        for key, encoded in state.scan(AUDIT, start=start and AUDIT + start):
            yield _read(key, encoded, origin)
        return
    prefix = trail_prefix(candidate_id)
    for trail, _ in state.scan(prefix, start=start and prefix + start):
        key = AUDIT + trail[-12:]
        found = state.get(key)
        assert found is not None, "the fold writes both together"
        yield _read(key, found, origin)


def _read(key: bytes, encoded: bytes, origin: str) -> tuple[Place, AuditEvent]:
    place = Place.of_key(key)
    fields: list[Any] = decode_sealed(encoded)
    return place, Entry(*fields).event(place, origin)
