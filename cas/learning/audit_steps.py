"""The step of the fold that adds an audit event which is no change of state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cas.learning.audit import NOTHING, Entry, put_entry
from cas.learning.document import MAX_DOCUMENT
from cas.learning.fields import id_of, map_of, number_of, text_of
from cas.learning.keys import event_key
from cas.learning.rows import find_row
from cas.learning.status import check_status

if TYPE_CHECKING:
    from cas.eventlog import MutableState
    from cas.learning.keys import Place


def add_audit(state: MutableState, event: dict[str, Any], place: Place) -> None:
    """Add an event about a candidate; one that came from elsewhere brings more of its own.

    Such an event, which has an ``event_id``, may be about a candidate that is not there.
    """
    candidate_id = id_of(event, "id", "candidate")
    came = event.get("event_id") is not None
    if not came:
        find_row(state, candidate_id)
    for field in ("payload", "extra"):
        if field in event:
            map_of(event, field, max_bytes=MAX_DOCUMENT)
    told = text_of(event, "created_at") if came else ""
    entry = Entry(
        candidate_id,
        id_of(event, "event_type", "event type"),
        told or number_of(event, "now"),
        text_of(event, "actor") if came else id_of(event, "actor", "actor"),
        from_status=_status(event, "from"),
        to_status=_status(event, "to"),
        token=None if event.get("token") is None else number_of(event, "token"),
        forced=event.get("forced") is True,
        payload=event.get("payload", NOTHING),
        event_id=id_of(event, "event_id", "audit event") if came else None,
        extra=event.get("extra", NOTHING),
    )
    put_entry(state, place, entry)
    if entry.event_id is not None:
        state.put(event_key(entry.event_id), place.key)


def _status(event: dict[str, Any], field: str) -> str | None:
    value = event.get(field)
    return None if value is None else check_status(value)
