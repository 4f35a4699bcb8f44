"""Where things lie in the state of the learning log, and the places that order them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from cas.errors import RefusedError

if TYPE_CHECKING:
    from cas.eventlog import State

TOKENS: Final = 10_000
"""Tokens of claims that one record can give."""

PLACE_SIZE: Final = 12
"""Bytes of a place as a key ends with it."""

INIT: Final = b"init"
CONFIG: Final = b"config"
TOKEN_SHIFT: Final = b"token-shift"
CONFIGURED: Final = b"configured\x00"
ROW: Final = b"row\x00"
AUDIT: Final = b"audit\x00"
COUNT: Final = b"count\x00"
HELD: Final = b"held\x00"
PENDING: Final = b"pending\x00"
PUBLISHING: Final = b"publishing\x00"
PERFORMANCE: Final = b"performance\x00"
REPORT: Final = b"report\x00"
RECORDED: Final = (ROW, AUDIT, PERFORMANCE, REPORT)
"""Under these lies all that people and workers recorded."""


_MARK: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,10})")


class Place(NamedTuple):
    """Where an event stands in the log: the record and the ordinal in it."""

    position: int
    ordinal: int

    @property
    def key(self) -> bytes:
        """12 bytes, in the order of the log."""
        return self.position.to_bytes(8, "big") + self.ordinal.to_bytes(4, "big")

    def token(self, state: State) -> int:
        """Return the fencing token of a claim that is made here.

        A log that was made anew after a loss is shorter than it was: its tokens go on behind those
        that may have been given.
        """
        shift = int.from_bytes(state.get(TOKEN_SHIFT) or b"")
        return (self.position + shift) * TOKENS + self.ordinal

    @property
    def mark(self) -> str:
        """As text, to be kept by a caller."""
        return f"{self.position}.{self.ordinal}"

    @classmethod
    def of_mark(cls, mark: str) -> Place:
        """Return the place that a mark stands for.

        Raises:
            RefusedError: It is none.
        """
        match = _MARK.fullmatch(mark)
        if match is None:
            raise RefusedError(f"{ascii(mark)[:80]} is no mark in the audit", mark=mark)
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of_key(cls, key: bytes) -> Place:
        """Return the place that a key ends with."""
        return cls(int.from_bytes(key[-12:-4], "big"), int.from_bytes(key[-4:], "big"))


def id_key(candidate_id: str) -> bytes:
    """Key of a candidate's place."""
    return b"id\x00" + candidate_id.encode()


def row_key(place: bytes) -> bytes:
    """Key of a candidate's row."""
    return ROW + place


def body_key(place: bytes) -> bytes:
    """Key of a candidate's document."""
    return b"body\x00" + place


def draft_key(place: bytes) -> bytes:
    """Key of a candidate's draft."""
    return b"draft\x00" + place


def publishing_key(place: bytes) -> bytes:
    """Key that says that a candidate's draft is being published."""
    return PUBLISHING + place


def status_prefix(status: str) -> bytes:
    """What the keys of all candidates of a status begin with."""
    return b"status\x00" + status.encode() + b"\x00"


def kind_prefix(kind: str, status: str | None = None) -> bytes:
    """What the keys of all candidates of a kind, or of a kind and status, begin with."""
    prefix = b"kind\x00" + kind.encode() + b"\x00"
    return prefix if status is None else prefix + status.encode() + b"\x00"


LEASE: Final = b"lease\x00"
LEASE_FLOOR: Final = b"floor\x00lease"


def count_prefix(status: str) -> bytes:
    """What the keys of the numbers of candidates of a status begin with; they end with kinds."""
    return COUNT + status.encode() + b"\x00"


def open_floor(kind: str | None) -> bytes:
    """Key of the place before which nothing is open, at all or of a kind."""
    return b"floor\x00open" if kind is None else b"floor\x00open\x00" + kind.encode()


def lease_key(expires_ns: int, place: bytes) -> bytes:
    """Key of a candidate that is being synthesised, by when its lease ends; 0 for no lease."""
    return LEASE + expires_ns.to_bytes(8, "big") + place


def trail_prefix(candidate_id: str) -> bytes:
    """What the keys of the audit events of one candidate begin with."""
    return b"trail\x00" + candidate_id.encode() + b"\x00"


def event_key(event_id: str) -> bytes:
    """Key of the place of an audit event that came with an id of its own."""
    return b"event\x00" + event_id.encode()


def pending_key(import_id: str, part: int | None = None) -> bytes:
    """Key of a part of an import that is not done, or what the keys of all its parts begin with."""
    prefix = PENDING + import_id.encode() + b"\x00"
    return prefix if part is None else prefix + part.to_bytes(4, "big")


def performance_key(skill_name: str, version: str) -> bytes:
    """Key of a performance snapshot."""
    return PERFORMANCE + skill_name.encode() + b"\x00" + version.encode()


def report_prefix(kind: str, skill_name: str, draft_id: str) -> bytes:
    """What the keys of the reports on a draft begin with; they end with places."""
    return b"\x00".join((b"report", kind.encode(), skill_name.encode(), draft_id.encode(), b""))


def report_id_key(kind: str, skill_name: str, draft_id: str, report_id: str) -> bytes:
    """Key of a report's place."""
    names = (kind, skill_name, draft_id, report_id)
    return b"report-id\x00" + b"\x00".join(name.encode() for name in names)


def held_key(digest: bytes, label: str) -> bytes:
    """Key that says who holds an object of the store."""
    return HELD + digest + b"\x00" + label.encode()
