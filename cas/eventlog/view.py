"""A view of a log: a snapshot, the records read after it, and what they fold into."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cas.errors import (
    ConflictError,
    DamagedLogError,
    FormatError,
    NewerFormatError,
    NotFoundError,
    RefusedError,
)
from cas.eventlog.record import IDENTITY_SIZE, MAX_RECORD, read_record
from cas.eventlog.segment import weight
from cas.eventlog.state import Draft, Layered, MutableState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.backends import Backend
    from cas.eventlog.keys import Keys
    from cas.eventlog.record import Record
    from cas.eventlog.snapshot import Snapshot

Fold = Callable[[MutableState, dict[str, Any], int, int], None]
"""Applies one event to the state, given its position and its index in the record.

It must do the same to the same state wherever and whenever it runs. What it raises refuses the
event: before the record is written, so that no record holds an event that cannot be folded.
"""


@dataclass(slots=True)
class View:
    """A log as it was read up to a position.

    Attributes:
        base: The snapshot that reading began with.
        newest: The newest snapshot that there was, whether it could be used or not.
        layers: The state.
        position: The last record read.
        digest: Its digest.
        identities: Those of the records after `base`.
        size: Bytes of the records after `base`, and of the keys and values that they changed.
        events: Events in them.
        durable: Up to here records are known to survive a power cut.
    """

    base: Snapshot
    newest: int
    layers: Layered
    position: int
    digest: bytes
    identities: list[bytes] = field(default_factory=list)
    size: int = 0
    events: int = 0
    durable: int = 0

    def identity(self, number: int) -> bytes | None:
        """Return the identity of the record at a position up to this view's.

        Returns:
            None where it is no longer known.

        Raises:
            DamagedLogError: Where it is kept is damaged.
        """
        if number > self.base.position:
            return self.identities[number - self.base.position - 1]
        for segment in self.layers.segments:
            if segment.info.first <= number <= segment.info.last:
                first, known = segment.identities()
                start = (number - first) * IDENTITY_SIZE
                return known[start : start + IDENTITY_SIZE] if start >= 0 else None
        return None

    def apply(self, record: Record, fold: Fold) -> None:
        """Fold the next record.

        Raises:
            DamagedLogError: It holds an event that cannot be folded.
        """
        draft = Draft(self.layers)
        try:
            fold_record(draft, record, fold)
        except NewerFormatError:
            raise
        except (RefusedError, ConflictError, NotFoundError) as error:
            raise record_damaged(
                record.number, f"an event of it is not valid there: {error}"
            ) from error
        self.absorb(record, draft)

    def absorb(self, record: Record, draft: Draft) -> None:
        """Take over a record that was folded into a draft above this view."""
        self.layers.changes.absorb(draft.changes)
        self.identities.append(record.identity)
        changed = draft.changes.table
        self.size += record.size + sum(itertools.starmap(weight, changed.items()))
        self.events += len(record.events)
        self.digest = record.digest
        self.position = record.number


def fold_record(draft: Draft, record: Record, fold: Fold) -> None:
    """Fold the events of a record into a draft."""
    for index, event in enumerate(record.events):
        fold(draft, event, record.number, index)


def read_records(backend: Backend, keys: Keys, position: int, digest: bytes) -> Iterator[Record]:
    """Give the records after a position until one is not there.

    Args:
        backend: Where they lie.
        keys: The log's keys.
        position: The record before the first.
        digest: Its digest.

    Raises:
        DamagedLogError: One is cut, changed, or does not continue the chain.
    """
    while True:
        position += 1
        try:
            sealed = backend.get(keys.record(position), max_bytes=MAX_RECORD)
        except NotFoundError:
            return
        except FormatError as error:
            raise record_damaged(position, str(error)) from None
        try:
            record = read_record(sealed, position)
        except FormatError as error:
            raise record_damaged(position, str(error)) from None
        if record.previous != digest:
            raise record_damaged(position, "it does not continue the record before it")
        digest = record.digest
        yield record


def record_damaged(position: int, detail: str) -> DamagedLogError:
    """Return the error for a record that cannot be used."""
    return DamagedLogError(
        f"record {position} of the log is damaged: {detail}; repair it from a copy of the store",
        position=position,
        detail=detail,
    )
