"""Records: what is appended, one at a time, each naming the digest of the one before it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas.digest import DIGEST_SIZE
from cas.errors import FormatError, RefusedError
from cas.eventlog.sealed import seal, unseal

if TYPE_CHECKING:
    from collections.abc import Sequence

Event = Mapping[str, Any]
"""What happened: a map with a text `type`, of values that the codec knows."""

MAX_RECORD: Final = 8 << 20
"""Bytes of a record, at most."""
IDENTITY_SIZE: Final = 16
"""Bytes of a record's random identity."""
NO_DIGEST: Final = bytes(DIGEST_SIZE)
"""What record 1 names as the digest of the record before it."""


class Record(NamedTuple):
    """One record.

    Attributes:
        number: Its position, from 1.
        identity: 16 random bytes that tell it from any other that was meant for the position.
        previous: The digest of the record before it.
        at: When it was written, by its writer's clock: UTC, ISO 8601.
        events: What happened, together.
        digest: Its own digest, which the next record names.
        size: Its bytes.
    """

    number: int
    identity: bytes
    previous: bytes
    at: str
    events: list[dict[str, Any]]
    digest: bytes
    size: int


def write_record(number: int, previous: bytes, events: Sequence[Event]) -> tuple[bytes, Record]:
    """Make a record.

    Returns:
        Its bytes, and the record as every reader will see it.

    Raises:
        RefusedError: An event cannot be encoded, has no type, or the record is too large.
    """
    if not events:
        raise RefusedError("a record holds at least one event")
    for event in events:
        if not isinstance(event.get("type"), str):
            raise RefusedError("an event has a type, which is text")
    at = datetime.now(UTC).isoformat(timespec="microseconds")
    identity = os.urandom(IDENTITY_SIZE)
    sealed = seal("record", number, identity, previous, at, [dict(event) for event in events])
    if len(sealed) > MAX_RECORD:
        raise RefusedError(
            f"events of {len(sealed)} bytes do not fit into one record of at most "
            f"{MAX_RECORD}; append fewer at a time",
            size=len(sealed),
            limit=MAX_RECORD,
        )
    return sealed, read_record(sealed, number)


def read_record(sealed: bytes, number: int) -> Record:
    """Read the bytes of a record.

    Args:
        sealed: Its bytes.
        number: Its position, by the name that it lies under.

    Raises:
        FormatError: Cut, changed, or not the record of this position.
        NewerFormatError: Written by a newer version of this package.
    """
    own, identity, previous, at, events = unseal(sealed, "record", 5)
    if own != number:
        raise FormatError(f"it is record {own!r}")
    if not (
        isinstance(identity, bytes)
        and len(identity) == IDENTITY_SIZE
        and isinstance(previous, bytes)
        and len(previous) == DIGEST_SIZE
        and isinstance(at, str)
        and isinstance(events, list)
        and events
        and all(isinstance(event, dict) and isinstance(event.get("type"), str) for event in events)
    ):
        raise FormatError("its fields are not those of a record")
    return Record(number, identity, previous, at, events, sealed[-DIGEST_SIZE:], len(sealed))
