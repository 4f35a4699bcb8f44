"""Checking a log: every byte that it needs, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cas.errors import DamagedLogError, FormatError, NotFoundError
from cas.eventlog.blocks import BlockCache
from cas.eventlog.head import read_head
from cas.eventlog.keys import exists, numbers
from cas.eventlog.record import MAX_RECORD, read_record
from cas.eventlog.segment import Segment
from cas.eventlog.snapshot import BEGINNING, read_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.eventlog.loading import Loader
    from cas.eventlog.snapshot import Snapshot


class LogFinding(NamedTuple):
    """Something that is wrong with a log.

    Attributes:
        position: The record that is hit; None where it is a snapshot or a segment.
        location: The key that the damage lies under.
        detail: What is wrong, as a sentence.
    """

    position: int | None
    location: str
    detail: str


def check(loader: Loader) -> Iterator[LogFinding]:
    """Give what is wrong with a log.

    It may run beside appends and compactions: what is found while a compaction went on is looked
    at again. What only a dead compaction left behind is not a part of the log.

    Args:
        loader: Of the log; what it remembers is not used.
    """
    fresh = type(loader)(loader.backend, loader.keys, loader.fold)
    while True:
        newest = fresh.newest_snapshot()
        findings = list(_check(fresh))
        if not findings:
            # Whether the events can be folded shows only when they are.
            try:
                fresh.load()
            except DamagedLogError as error:
                position = error.facts.get("position")
                where = fresh.keys.record(position) if position else fresh.keys.snapshots
                findings.append(LogFinding(position, where, str(error.facts["detail"])))
        if not findings or fresh.newest_snapshot() == newest:
            yield from findings
            return


def _check(loader: Loader) -> Iterator[LogFinding]:
    sequences = numbers(loader.backend, loader.keys.snapshots)
    head = read_head(loader.backend, loader.keys)
    newest = previous = None
    if sequences:
        newest, wrong = _read(loader, sequences[-1])
        yield from wrong
        before = newest.previous if newest else [0, *sequences][-2]
        if before:
            previous, wrong = _read(loader, before)
            yield from wrong
        else:
            previous = BEGINNING
    else:
        newest = previous = BEGINNING
    if head is not None and head.snapshot > (sequences[-1] if sequences else 0):
        key = loader.keys.snapshot(head.snapshot)
        yield LogFinding(None, key, f"snapshot {head.snapshot} is missing")
    checked: set[str] = set()
    for snapshot in (newest, previous):
        if snapshot is not None:
            yield from _check_segments(loader, snapshot, checked)
    yield from _check_records(loader, previous or newest, newest)


def _read(loader: Loader, sequence: int) -> tuple[Snapshot | None, list[LogFinding]]:
    key = loader.keys.snapshot(sequence)
    try:
        return read_snapshot(loader.backend, loader.keys, sequence), []
    except NotFoundError:
        return None, [LogFinding(None, key, f"snapshot {sequence} is missing")]
    except DamagedLogError as error:
        detail = f"snapshot {sequence} is damaged: {error.facts['detail']}"
        return None, [LogFinding(None, key, detail)]


def _check_segments(loader: Loader, snapshot: Snapshot, checked: set[str]) -> Iterator[LogFinding]:
    for info in snapshot.segments:
        if info.name in checked:
            continue
        checked.add(info.name)
        key = loader.keys.segment(info.name)
        try:
            segment = Segment(loader.backend.open(key), info, BlockCache())
        except NotFoundError:
            yield LogFinding(None, key, f"segment {info.name} is missing")
        except DamagedLogError as error:
            yield LogFinding(None, key, f"segment {info.name} is damaged: {error.facts['detail']}")
        else:
            for detail in segment.check():
                yield LogFinding(None, key, f"segment {info.name} is damaged: {detail}")


def _check_records(
    loader: Loader, start: Snapshot | None, newest: Snapshot | None
) -> Iterator[LogFinding]:
    """Check the records after `start`: each one, their chain, and that none is missing."""
    backend, keys = loader.backend, loader.keys
    listed = numbers(backend, keys.records)
    head = read_head(backend, keys)
    ends = {snapshot.position: snapshot.digest for snapshot in (start, newest) if snapshot}
    if head is not None:
        ends.setdefault(head.position, head.digest)
    last = max([*listed, *ends, 1])
    if start is None:
        # Neither snapshot can be read: what is there can only be compared with itself.
        position, digest = (min(listed) - 1 if listed else 0), None
    else:
        position, digest = start.position, start.digest
    missing = 0
    while position < last:
        position += 1
        key = keys.record(position)
        try:
            record = read_record(backend.get(key, max_bytes=MAX_RECORD), position)
        except NotFoundError:
            missing = missing or position
            digest = None
            continue
        except FormatError as error:
            yield from _missing(loader, missing, position - 1)
            yield LogFinding(position, key, f"record {position} is damaged: {error}")
            missing, digest = 0, None
            continue
        yield from _missing(loader, missing, position - 1)
        missing = 0
        if digest is not None and record.previous != digest:
            yield LogFinding(position, key, f"record {position} does not continue the one before")
        digest = record.digest
        if ends.get(position, digest) != digest:
            detail = f"record {position} is not the one that was acknowledged"
            yield LogFinding(position, key, detail)
    yield from _missing(loader, missing, last)


def _missing(loader: Loader, first: int, last: int) -> Iterator[LogFinding]:
    if first and not exists(loader.backend, loader.keys.record(first)):
        key = loader.keys.record(first)
        what = f"record {first} is" if first == last else f"records {first} to {last} are"
        yield LogFinding(first, key, f"{what} missing")
