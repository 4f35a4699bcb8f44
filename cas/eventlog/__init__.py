"""The event log: one engine for the catalogue and for learning.

A log is a sequence of records, each created only if its number is free; they fold into a state,
an ordered map, which compaction keeps in snapshots. See `docs/format.md`, "The event log".
"""

from cas.eventlog.check import LogFinding
from cas.eventlog.log import Appended, Decide, EventLog
from cas.eventlog.record import MAX_RECORD, Event, Record
from cas.eventlog.state import MutableState, State
from cas.eventlog.upkeep import COMPACT_AFTER
from cas.eventlog.view import Fold

__all__ = [
    "COMPACT_AFTER",
    "MAX_RECORD",
    "Appended",
    "Decide",
    "Event",
    "EventLog",
    "Fold",
    "LogFinding",
    "MutableState",
    "Record",
    "State",
]
