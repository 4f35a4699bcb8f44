"""Saving what is left of a damaged log, and what a copy of it has, as a log of its own.

A log is a chain, so two copies of one log hold the same records up to where they parted. The new
log begins with the best snapshot that can be read whole, or with record 1, and goes on with every
record that continues it, from wherever it can be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cas.errors import CasError
from cas.eventlog.blocks import BlockCache
from cas.eventlog.copying import copy_snapshot
from cas.eventlog.head import read_head
from cas.eventlog.keys import Keys, numbers
from cas.eventlog.log import EventLog
from cas.eventlog.record import MAX_RECORD, Record, read_record
from cas.eventlog.segment import Segment
from cas.eventlog.snapshot import BEGINNING, Snapshot, read_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cas.backends import Backend
    from cas.eventlog.record import Event
    from cas.eventlog.view import Fold


@dataclass(slots=True)
class Salvaged:
    """What was saved of a log.

    Attributes:
        log: The new log, which lies under another name; None where nothing was saved.
        lost: Whether the damaged log had reached further.
        reach: How far it is known to have reached.
        leftover: Events of records behind a gap, in order: what they build on is not known.
    """

    log: EventLog | None
    lost: bool
    reach: int
    leftover: list[Event]


@dataclass(slots=True)
class _Chain:
    """A snapshot, and the records that continue it."""

    backend: Backend
    base: Snapshot
    records: list[tuple[Record, bytes]] = field(default_factory=list)

    @property
    def end(self) -> tuple[int, bytes]:
        if self.records:
            return self.records[-1][0].number, self.records[-1][0].digest
        return self.base.position, self.base.digest


def salvage(
    backend: Backend, name: str, fold: Fold, copies: Sequence[Backend], target: str
) -> Salvaged:
    """Make a new log out of what is left of a damaged one.

    Args:
        backend: Where it lies, and where the new one goes.
        name: Its name.
        fold: What its events do.
        copies: Where other copies of the same log lie.
        target: The name of the new log; there is none.

    Raises:
        EnvironmentFailure: The new log cannot be written.
    """
    keys = Keys(name)
    seen = _evidence(backend, keys)
    chain = _longest(keys, [backend, *copies], backend)
    known = {record.number: record.digest for record, _ in chain.records}
    known[chain.base.position] = chain.base.digest
    if any(known.get(number, digest) != digest for number, digest in seen.items()):
        # The copy went another way since.
        chain = _longest(keys, [backend], backend)
    end, _ = chain.end
    leftover: list[Event] = [
        event
        for number in numbers(backend, keys.records)
        if number > end and (record := _record(backend, keys, number)) is not None
        for event in record[0].events
    ]
    reach = max([1, *seen, *numbers(backend, keys.records)])
    lost = end < reach
    if not end:
        return Salvaged(None, True, reach, leftover)
    new = Keys(target)
    copy_snapshot(chain.backend, backend, keys, chain.base, new)
    for kept, sealed in chain.records:
        backend.put_if_absent(new.record(kept.number), sealed)
    log = EventLog(backend, target, fold)
    log.refresh()
    # Twice, so that the snapshot before the newest is one that is there.
    while chain.base.sequence and log.compact(full=True):
        pass
    return Salvaged(log, lost, reach, leftover)


def _longest(keys: Keys, backends: Sequence[Backend], own: Backend) -> _Chain:
    """Return the chain that reaches furthest; of equal ones the log's own, with the newest base."""
    bases = [(backend, snapshot) for backend in backends for snapshot in _snapshots(backend, keys)]
    best = _Chain(own, BEGINNING)
    for backend, base in [*bases, (own, BEGINNING)]:
        chain = _Chain(backend, base)
        while (found := _next(backends, keys, *chain.end)) is not None:
            chain.records.append(found)
        if chain.end[0] > best.end[0]:
            best = chain
    return best


def _snapshots(backend: Backend, keys: Keys) -> list[Snapshot]:
    """Return the snapshots that can be read whole, newest first."""
    found = []
    for sequence in reversed(numbers(backend, keys.snapshots)):
        try:
            snapshot = read_snapshot(backend, keys, sequence)
            if all(_is_whole(backend, keys, snapshot, at) for at in range(len(snapshot.segments))):
                found.append(snapshot)
        except (CasError, OSError):
            continue
    return found


def _is_whole(backend: Backend, keys: Keys, snapshot: Snapshot, at: int) -> bool:
    info = snapshot.segments[at]
    segment = Segment(backend.open(keys.segment(info.name)), info, BlockCache())
    return not list(segment.check())


def _next(
    backends: Sequence[Backend], keys: Keys, position: int, digest: bytes
) -> tuple[Record, bytes] | None:
    """Return the record that continues a chain, and its bytes, from whoever has it."""
    for backend in backends:
        found = _record(backend, keys, position + 1)
        if found is not None and found[0].previous == digest:
            return found
    return None


def _record(backend: Backend, keys: Keys, number: int) -> tuple[Record, bytes] | None:
    try:
        sealed = backend.get(keys.record(number), max_bytes=MAX_RECORD)
        return read_record(sealed, number), sealed
    except (CasError, OSError):
        return None


def _evidence(backend: Backend, keys: Keys) -> dict[int, bytes]:
    """Return the digests of records that a damaged log is known to have had, by position."""
    seen: dict[int, bytes] = {}
    head = read_head(backend, keys)
    if head is not None:
        seen[head.position] = head.digest
    for snapshot in _snapshots(backend, keys):
        seen[snapshot.position] = snapshot.digest
    for number in numbers(backend, keys.records):
        found = _record(backend, keys, number)
        if found is not None:
            seen[number] = found[0].digest
    return seen
