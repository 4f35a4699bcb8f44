"""Copying a whole log, history and all, while others append to it and compact it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.errors import BusyError, DamagedLogError, FormatError, NotFoundError
from cas.eventlog.check import check
from cas.eventlog.head import Head, read_head, write_head
from cas.eventlog.keys import Keys, exists, numbers
from cas.eventlog.loading import Loader
from cas.eventlog.record import MAX_RECORD, read_record
from cas.eventlog.snapshot import BEGINNING, Snapshot, read_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.backends import Backend
    from cas.eventlog.record import Record

_TRIES: Final = 20
_PIECE: Final = 4 << 20


def log_names(backend: Backend) -> list[str]:
    """Return the names of the logs of a store, sorted; one that is being repaired has a dot."""
    names = {entry.key.split("/")[1] for entry in backend.list("log/")}
    return sorted(name for name in names if "." not in name)


def copy_log(source: Backend, target: Backend, name: str) -> None:
    """Copy a log to where there is none, as it is at some moment of the call.

    What its events mean does not matter: the copy has the same snapshots, segments and records.

    Args:
        source: Where it is; only read.
        target: Where it goes; what is left there of an earlier copy is deleted.
        name: The log's name.

    Raises:
        DamagedLogError: The log is damaged.
        BusyError: It was compacted faster than it could be copied.
        EnvironmentFailure: It cannot be read, or the copy not be written.
    """
    keys = Keys(name)
    for _ in range(_TRIES):
        for entry in list(target.list(f"log/{name}/")):
            target.delete(entry.key)
        newest = _newest(source, keys)
        try:
            end = _copy(source, target, keys, newest)
        except NotFoundError as error:
            if _newest(source, keys) == newest:
                raise DamagedLogError(
                    f"log {name} lacks a part: {error}; repair it from a copy of the store",
                    detail=str(error),
                ) from None
            continue
        beyond = _beyond(source, keys, end)
        if _newest(source, keys) == newest:
            if beyond:
                raise DamagedLogError(
                    f"record {end + 1} of log {name} is missing: it reached {beyond}; "
                    "repair it from a copy of the store",
                    position=end + 1,
                    detail="it is missing",
                )
            for finding in check(Loader(target, keys, lambda *_: None)):
                raise DamagedLogError(
                    f"log {name} is damaged: {finding.detail}; repair it from a copy of the store",
                    location=finding.location,
                    detail=finding.detail,
                )
            return
    raise BusyError(f"log {name} was compacted again and again while it was copied; try again")


def _newest(backend: Backend, keys: Keys) -> int:
    return (numbers(backend, keys.snapshots) or [0])[-1]


def _beyond(backend: Backend, keys: Keys, end: int) -> int:
    """Return how far a log goes where the record behind `end` is missing; 0 where it ends there."""
    head = read_head(backend, keys)
    last = max([0 if head is None else head.position, *numbers(backend, keys.records)])
    return last if last > end and not exists(backend, keys.record(end + 1)) else 0


def _copy(source: Backend, target: Backend, keys: Keys, newest: int) -> int:
    """Copy what a log needs: segments before the snapshots that name them, records last.

    Returns:
        The last record.
    """
    first = last = BEGINNING
    if newest:
        last = read_snapshot(source, keys, newest)
        if last.previous:
            first = read_snapshot(source, keys, last.previous)
    for snapshot in (first, last):
        copy_snapshot(source, target, keys, snapshot)
    end = first.position, first.digest
    for record, sealed in sealed_records(source, keys, *end):
        target.put_if_absent(keys.record(record.number), sealed)
        end = record.number, record.digest
    write_head(target, keys, Head(*end, newest))
    return end[0]


def copy_snapshot(
    source: Backend, target: Backend, keys: Keys, snapshot: Snapshot, new: Keys | None = None
) -> None:
    """Copy a snapshot and its segments, unless they are there.

    Args:
        source: Where it is.
        target: Where it goes.
        keys: The keys of its log.
        snapshot: The snapshot; nothing is done for the beginning of a log.
        new: The keys of the log that it goes to, if they are others.
    """
    new = keys if new is None else new
    if not snapshot.sequence:
        return
    for info in snapshot.segments:
        key = keys.segment(info.name)
        with source.open(key) as reader, target.stage() as staging:
            for offset in range(0, reader.size, _PIECE):
                staging.write(reader.read_at(offset, _PIECE))
            target.put_if_absent(new.segment(info.name), staging)
    target.put_if_absent(new.snapshot(snapshot.sequence), snapshot.to_bytes())


def sealed_records(
    backend: Backend, keys: Keys, position: int, digest: bytes
) -> Iterator[tuple[Record, bytes]]:
    """Give the records that follow a position, and their bytes, until one is missing.

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
        try:
            record = read_record(sealed, position)
            if record.previous != digest:
                raise FormatError("it does not continue the record before it")
        except FormatError as error:
            raise DamagedLogError(
                f"record {position} of log {keys.name} is damaged: {error}; "
                "repair it from a copy of the store",
                position=position,
                detail=str(error),
            ) from None
        digest = record.digest
        yield record, sealed
