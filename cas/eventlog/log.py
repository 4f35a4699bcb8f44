"""The event log: numbered, chained records, each created only if its number is free."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cas.errors import (
    BusyError,
    CasError,
    ConflictError,
    DamagedLogError,
    DiskFullError,
    OutcomeUnknownError,
    environment_failure,
)
from cas.eventlog.check import LogFinding, check
from cas.eventlog.compaction import compact, garbage
from cas.eventlog.head import Head, write_head
from cas.eventlog.keys import Keys
from cas.eventlog.loading import Loader
from cas.eventlog.record import NO_DIGEST, Event, write_record
from cas.eventlog.snapshot import BEGINNING
from cas.eventlog.state import Draft, Layered, State, scan
from cas.eventlog.upkeep import COMPACT_AFTER, Upkeep, measure
from cas.eventlog.view import Fold, View, fold_record, record_damaged

if TYPE_CHECKING:
    from cas.backends import Backend
    from cas.eventlog.record import Record

Decide = Callable[[State, int], Sequence[Event]]
"""Given the state and its position, says what to append; raises to refuse, or returns nothing."""

_TRIES = 3
_STUCK = 20
"""Tries in a row that find a number taken, and no record there, before it is called damage."""
_PAUSE = 0.02
"""Seconds that the loser of a race waits, at most."""


class Appended(NamedTuple):
    """What an append did.

    Attributes:
        position: The record's, or the state's where nothing was to be appended.
        identity: The record's; empty where there is none.
        events: What was appended.
    """

    position: int
    identity: bytes
    events: tuple[Event, ...]


class EventLog:
    """One log. It is read when it is first used, and moves on by `refresh` and `append` only.

    Threads may share it; `append` and `refresh` wait for each other.

    Args:
        backend: Where it lies.
        name: Its name.
        fold: What its events do to the state.
        compact_after: Records after which `append` compacts.
    """

    def __init__(
        self, backend: Backend, name: str, fold: Fold, *, compact_after: int = COMPACT_AFTER
    ) -> None:
        """Look at nothing yet."""
        self._backend = backend
        self._keys = Keys(name)
        self._fold = fold
        self._loader = Loader(backend, self._keys, fold)
        self._upkeep = Upkeep(self._loader, compact_after)
        self._lock = threading.RLock()
        self._view: View | None = None

    @classmethod
    def create(
        cls,
        backend: Backend,
        name: str,
        fold: Fold,
        first_events: Sequence[Event],
        *,
        compact_after: int = COMPACT_AFTER,
    ) -> EventLog:
        """Make a log by writing its first record.

        Raises:
            ConflictError: There is one of this name.
            RefusedError: The fold or the size limit refuses the events.
        """
        log = cls(backend, name, fold, compact_after=compact_after)
        log._view = View(BEGINNING, 0, Layered(()), 0, NO_DIGEST)
        if log._try_append(log._view, lambda _state, _position: first_events) is None:
            raise ConflictError(f"log {name} exists already", log=name)
        return log

    @property
    def state(self) -> State:
        """The state at `position`, whenever it is looked at."""
        return _Now(self._current, self._recover)

    def close(self) -> None:
        """Let go of what is held open; it is read again when needed."""
        with self._lock:
            self._upkeep.drop()
            self._view = None

    @property
    def position(self) -> int:
        """The last record that was read."""
        return self._current().position

    def refresh(self) -> int:
        """Read what came since, and return the position.

        Raises:
            DamagedLogError: A record, or what must be read of a snapshot, is damaged or lost.
        """
        with self._lock:
            view = self._view
            self._view = self._loader.load() if view is None else self._loader.catch_up(view)
            return self._view.position

    def settle(self) -> None:
        """Return when all that was read is durable, whoever wrote it.

        An append does so by itself; this is for what builds on the log elsewhere.

        Raises:
            EnvironmentFailure: The medium fails.
        """
        with self._lock:
            self._loader.settle(self._current())

    def append(self, decide: Decide) -> Appended:
        """Append a record, if what it says is allowed at the position that it gets.

        Args:
            decide: Called with the newest state, and again after every race that was lost. It
                only looks at the state it is given.

        Returns:
            The record, durable. Where `decide` returned nothing, nothing was written.

        Raises:
            RefusedError: An event cannot be encoded, the record is too large, or the fold refuses.
            DiskFullError: No space; nothing was changed.
            OutcomeUnknownError: It cannot be known whether the record is there, or durable.
            EnvironmentFailure: The medium failed; nothing was changed.
            DamagedLogError: The log is damaged.
        """
        with self._lock:
            lost = stuck = 0
            while True:
                self.refresh()
                view = self._current()
                before, position = measure(view), view.position
                try:
                    appended = self._try_append(view, decide)
                except DiskFullError:
                    if self._upkeep.drop():
                        continue  # a merge that is under way took the space
                    raise
                if appended is not None:
                    break
                lost += 1
                stuck = stuck + 1 if self.refresh() == position else 0
                if stuck == _STUCK:
                    raise record_damaged(position + 1, "it is there and cannot be read")
                # Who lost more often waits less: so nobody starves, and fewer sync in vain.
                time.sleep(random.uniform(0, _PAUSE) / lost)  # noqa: S311 - no secret
            if appended.events:
                self._keep_up(before)
            return appended

    def compact(self, *, full: bool = False) -> bool:
        """Publish a snapshot of the state, and delete the records that the previous one holds.

        Args:
            full: Merge all segments into one. What only the previous snapshot needs goes with the
                next compaction, so a second call, with nothing appended, leaves the least.

        Returns:
            Whether there is a new snapshot: not where there was nothing to do, or another process
            was quicker.

        Raises:
            DamagedLogError: The log is damaged.
            EnvironmentFailure: The medium is full or fails; the log is whole all the same.
        """
        with self._lock:
            self.refresh()
            view = self._current()
            compacted = compact(self._loader, view, full=full)
            if compacted is None:
                return False
            self._upkeep.drop()
            self._adopt(compacted)
            for key in garbage(self._loader, compacted.base, view.base):
                self._backend.delete(key)
            return True

    def check(self) -> Iterator[LogFinding]:
        """Read every byte that the log needs, and give what is wrong with it."""
        return check(self._loader)

    def records(self, after: int = 0) -> Iterator[Record]:
        """Give the records that are still there, in order, as far as `position`.

        Args:
            after: Begin behind this position. Records that were compacted away are passed over.

        Raises:
            DamagedLogError: One is damaged or missing.
        """
        return self._loader.records(self._current(), after)

    def _current(self) -> View:
        view = self._view
        if view is None:
            self.refresh()
            view = self._view
            assert view is not None
        return view

    def _recover(self, view: View, error: DamagedLogError) -> View:
        """Read the log from an older snapshot, after a part of this one was found damaged.

        Raises:
            DamagedLogError: `error`, where no older snapshot can take its place.
        """
        with self._lock:
            if self._view is not None and self._view is not view:
                return self._view
            if "position" in error.facts or not view.base.sequence:
                raise error
            self._loader.distrusted.add(view.base.sequence)
            try:
                self._view = self._loader.load(view)
            except DamagedLogError:
                self._loader.distrusted.discard(view.base.sequence)
                raise error from None
            return self._view

    def _try_append(self, view: View, decide: Decide) -> Appended | None:
        """Append behind a view; None where it has to be tried again with a newer one."""
        try:
            position = view.position
            events = tuple(decide(Draft(view.layers), position))
            if self._view is not view or view.position != position:
                return None  # it refreshed the log: what it decided on is the past
            if not events:
                return Appended(view.position, b"", ())
            sealed, record = write_record(view.position + 1, view.digest, events)
            # Folded before it is written: no record holds what cannot be folded.
            draft = Draft(view.layers)
            fold_record(draft, record, self._fold)
        except DamagedLogError as error:
            self._recover(view, error)
            return None
        self._loader.settle(view)
        if not self._create(view, record, sealed):
            return None
        if self._view is view and view.position < record.number:
            view.absorb(record, draft)
        view = self._current()
        view.durable = max(view.durable, record.number)
        self._write_head(record.number, record.digest)
        return Appended(record.number, record.identity, events)

    def _create(self, view: View, record: Record, sealed: bytes) -> bool:
        """Create a record behind a view.

        Returns:
            True: it took effect at its position and is durable. False: another did.
        """
        key = self._keys.record(record.number)
        error: OSError | None = None
        for attempt in range(_TRIES):
            created = False
            try:
                created = self._backend.put_if_absent(key, sealed)
                error = None
            except OSError as failed:
                error = failed
            try:
                if created and self._loader.newest_snapshot() == view.newest:
                    return True
                fate = self._look(view, record)
            except (CasError, OSError) as failed:
                if created or error is not None:
                    raise self._unknown(record, str(failed)) from failed
                raise
            if fate is not None:
                if fate and not created:
                    self._settle(record)
                return fate
            if created:
                raise self._unknown(record, "it was written and is not there")
            if error is not None and (self._backend.local or isinstance(error, DiskFullError)):
                # Nothing is under way to a local disk any more: what is not there was not done.
                raise environment_failure(error, f"appending to log {self._keys.name}") from error
            time.sleep(random.uniform(0, _PAUSE * 4**attempt))  # noqa: S311 - no secret
        if error is None:
            return False
        raise self._unknown(record, str(error)) from error

    def _look(self, view: View, record: Record) -> bool | None:
        """Say whether the record at a position is this one; None where there is none yet.

        Raises:
            OutcomeUnknownError: It was compacted away too long ago.
        """
        self._view = current = self._loader.catch_up(view)
        if current.position < record.number:
            return None
        identity = current.identity(record.number)
        if identity is None:
            raise self._unknown(record, "it was overtaken by too many others")
        return identity == record.identity

    def _settle(self, record: Record) -> None:
        """Make durable what was created by a call that did not say so."""
        if record.number <= self._current().base.position:
            return  # a snapshot holds it
        try:
            self._backend.settle([self._keys.record(record.number)])
        except OSError as error:
            raise self._unknown(record, str(error)) from error

    def _unknown(self, record: Record, cause: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"whether record {record.number} of log {self._keys.name} is there for good is "
            f"unknown: {cause}; look before trying again",
            position=record.number,
            identity=record.identity.hex(),
        )

    def _keep_up(self, before: tuple[int, ...]) -> None:
        """Do a bounded piece of what keeps the log quick to open."""
        view = self._current()
        try:
            self._adopt(self._upkeep.after_append(view, before, max(view.size - before[2], 0)))
        except (CasError, OSError):
            self._upkeep.drop()  # the record is there; a later append begins anew

    def _adopt(self, view: View) -> None:
        """Go on with the same state on a snapshot that this process has published."""
        if view is not self._view:
            self._view = view
            self._loader.published = view.base.sequence
            self._write_head(view.position, view.digest)

    def _write_head(self, position: int, digest: bytes) -> None:
        """Say how far the log reaches for good; others may have gone further."""
        write_head(self._backend, self._keys, Head(position, digest, self._loader.published))


class _Now:
    """The state of a log as it was read last."""

    __slots__ = ("_current", "_recover")

    def __init__(
        self, current: Callable[[], View], recover: Callable[[View, DamagedLogError], View]
    ) -> None:
        self._current = current
        self._recover = recover

    def get(self, key: bytes) -> bytes | None:
        view = self._current()
        while True:
            try:
                return view.layers.get(key)
            except DamagedLogError as error:
                view = self._recover(view, error)

    def scan(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        view = self._current()
        pairs = scan(view.layers, prefix, start=start, reverse=reverse)
        return self._give(view, view.position, pairs, prefix, start, reverse=reverse)

    def _give(
        self,
        view: View,
        position: int,
        pairs: Iterator[tuple[bytes, bytes]],
        prefix: bytes,
        start: bytes | None,
        *,
        reverse: bool,
    ) -> Iterator[tuple[bytes, bytes]]:
        given: bytes | None = None
        while True:
            try:
                for pair in pairs:
                    if pair[0] != given:
                        given = pair[0]
                        yield pair
                return
            except DamagedLogError as error:
                view = self._recover(view, error)
                if view.position != position:
                    raise BusyError(
                        "the log moved on while a damaged snapshot of it was read; read it again"
                    ) from error
                begin = start if given is None else given
                pairs = scan(view.layers, prefix, start=begin, reverse=reverse)
