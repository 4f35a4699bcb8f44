"""Steps of the fold that take in what came from elsewhere: all of it in one moment.

What does not fit into one record is written in parts, which nothing sees until the record that
names them all. A part of an import that never came to its end is dropped by a later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cas.codec import decode_trusted
from cas.errors import FormatError, RefusedError
from cas.learning.audit import find_event
from cas.learning.audit_steps import add_audit
from cas.learning.candidate_steps import record
from cas.learning.fields import id_of, number_of
from cas.learning.keys import (
    PENDING,
    Place,
    id_key,
    pending_key,
    performance_key,
    report_id_key,
)
from cas.learning.knowledge_steps import add_report, set_performance

if TYPE_CHECKING:
    from collections.abc import Callable

    from cas.eventlog import MutableState, State

_STEPS: Final[dict[str, Callable[[MutableState, dict[str, Any], Place], None]]] = {
    "recorded": record,
    "audited": add_audit,
    "performance": set_performance,
    "report": add_report,
}


def keep_part(state: MutableState, event: dict[str, Any], _place: Place) -> None:
    """Keep a part of an import for its end."""
    began = number_of(event, "now").to_bytes(8, "big")
    encoded = event.get("events")
    if not isinstance(encoded, bytes):
        raise RefusedError("a part of an import has events")
    state.put(pending_key(id_of(event, "id", "import"), number_of(event, "part")), began + encoded)


def drop_parts(state: MutableState, event: dict[str, Any], _place: Place) -> None:
    """Let the parts of an import go that never came to its end."""
    prefix = pending_key(id_of(event, "id", "import"))
    for key, _ in list(state.scan(prefix)):
        state.delete(key)


def take_in(state: MutableState, event: dict[str, Any], place: Place) -> None:
    """Take in an import: its parts in order, then its own events; what is there already stays."""
    import_id = id_of(event, "id", "import")
    ordinal = 0
    for part in range(number_of(event, "parts")):
        key = pending_key(import_id, part)
        encoded = state.get(key)
        if encoded is None:
            raise RefusedError(f"part {part} of import {import_id} is not there; import again")
        state.delete(key)
        ordinal = _take_in(state, encoded[8:], place, ordinal)
    encoded = event.get("events")
    if not isinstance(encoded, bytes):
        raise RefusedError("an import has events")
    _take_in(state, encoded, place, ordinal)


def is_there(state: State, event: dict[str, Any]) -> bool:
    """Say whether what an event of an import brings is there already, whatever it is by now."""
    kind = event.get("type")
    if kind == "recorded":
        key = id_key(event["id"])
    elif kind == "audited":
        return find_event(state, event["event_id"]) is not None
    elif kind == "report":
        names = (event["kind"], event["skill_name"], event["draft_id"])
        key = report_id_key(*names, event["id"])
    else:
        key = performance_key(event["skill_name"], event["version"])
    return state.get(key) is not None


def _take_in(state: MutableState, encoded: bytes, place: Place, ordinal: int) -> int:
    try:
        events = decode_trusted(encoded)
        for event in events:
            if not is_there(state, event):
                _STEPS[event["type"]](state, event, place._replace(ordinal=ordinal))
            ordinal += 1
    except (FormatError, AttributeError, KeyError, TypeError) as error:
        raise RefusedError(f"an import holds something else than events: {error}") from None
    return ordinal


def stale(state: State, before_ns: int) -> set[str]:
    """Return the imports with parts that were begun before a time and never came to an end."""
    return {
        key[len(PENDING) : -5].decode()
        for key, value in state.scan(PENDING)
        if int.from_bytes(value[:8], "big") < before_ns
    }
