"""Reading a log from its storage: the newest snapshot that can be used, and what follows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cas.errors import DamagedLogError, NotFoundError
from cas.eventlog.blocks import BlockCache
from cas.eventlog.head import read_head
from cas.eventlog.keys import exists, numbers
from cas.eventlog.segment import Segment
from cas.eventlog.snapshot import BEGINNING, read_snapshot
from cas.eventlog.state import Layered
from cas.eventlog.view import View, read_records, record_damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.backends import Backend
    from cas.eventlog.keys import Keys
    from cas.eventlog.record import Record
    from cas.eventlog.snapshot import Snapshot
    from cas.eventlog.view import Fold


@dataclass(slots=True)
class Loader:
    """Reads one log, and keeps what it may need to read again.

    Attributes:
        backend: Where the log lies.
        keys: Its keys.
        fold: What its events do.
        distrusted: Snapshots that were found damaged while they were in use.
        published: The newest snapshot that is known to survive a power cut.
        cache: Blocks of its segments.
    """

    backend: Backend
    keys: Keys
    fold: Fold
    distrusted: set[int] = field(default_factory=set)
    published: int = 0
    cache: BlockCache = field(default_factory=BlockCache)

    def newest_snapshot(self) -> int:
        """Return the number of the newest snapshot, 0 where there is none."""
        found = numbers(self.backend, self.keys.snapshots)
        return found[-1] if found else 0

    def load(self, before: View | None = None) -> View:
        """Read the log to its end.

        The newest snapshot is looked up before and after: where there is a newer one then,
        records after the older one may be gone or be another's, and reading starts again.

        Args:
            before: What was read before, whose open segments are used again.

        Raises:
            DamagedLogError: The log is damaged, and no older snapshot is there with all records
                that follow it.
        """
        while True:
            sequences = numbers(self.backend, self.keys.snapshots)
            newest = sequences[-1] if sequences else 0
            try:
                view = self._load([0, *sequences], before)
            except DamagedLogError:
                if self.newest_snapshot() == newest:
                    raise
                continue
            if self.newest_snapshot() == newest and self.is_end(view, thorough=True):
                return view

    def catch_up(self, view: View) -> View:
        """Read what came since.

        Returns:
            The view, moved on, or another one where there is a newer snapshot: only that one may
            be used from then on.

        Raises:
            DamagedLogError: As for `load`.
        """
        while True:
            # Nothing is folded before it is known to belong to the log: where there is a newer
            # snapshot, a stalled writer may have put a record in the place of one that is gone.
            try:
                records = list(read_records(self.backend, self.keys, view.position, view.digest))
            except DamagedLogError:
                if self.newest_snapshot() == view.newest:
                    raise
                return self.load(view)
            if self.newest_snapshot() != view.newest:
                return self.load(view)
            for record in records:
                view.apply(record, self.fold)
            if self.is_end(view, thorough=False):
                return view

    def settle(self, view: View) -> None:
        """Return when all that a view has read is durable, whoever wrote it.

        What builds on a record must not outlive it: a record after one that a power cut takes
        away would look like damage, and so would a snapshot that holds it.

        Raises:
            EnvironmentFailure: The medium fails.
        """
        if view.durable < view.position and view.position > view.base.position:
            self.backend.settle([self.keys.record(view.position)])
        view.durable = max(view.durable, view.position)

    def is_end(self, view: View, *, thorough: bool) -> bool:
        """Check that nothing is lost after what was read.

        Args:
            view: What was read.
            thorough: Also look for records beyond a missing one where the head hint, which may
                lag behind or be lost, does not vouch for the end.

        Returns:
            False if it cannot be said because there is a newer snapshot.

        Raises:
            DamagedLogError: A record or all of them are gone.
        """
        head = read_head(self.backend, self.keys)
        end = view.position
        if head is not None:
            view.durable = max(view.durable, head.position)
            self.published = max(self.published, head.snapshot)
        if head is not None and head.position == end:
            if head.digest != view.digest:
                raise record_damaged(end, "it is not the one that was acknowledged")
            return True
        beyond = head.position if head is not None else 0
        if thorough:
            beyond = max([beyond, *numbers(self.backend, self.keys.records)])
        if beyond > end or end == 0:
            if exists(self.backend, self.keys.record(end + 1)):
                return True  # written since
            if self.newest_snapshot() != view.newest:
                return False
            raise self._lost(end, beyond)
        return True

    def _lost(self, end: int, beyond: int) -> DamagedLogError:
        if end == 0 and beyond == 0:
            what = f"log {self.keys.name} is empty: record 1, which init wrote, is missing"
        else:
            what = f"record {end + 1} of log {self.keys.name} is missing: it reached {beyond}"
        return DamagedLogError(
            f"{what}; repair it from a copy of the store", position=end + 1, detail="it is missing"
        )

    def _load(self, sequences: list[int], before: View | None) -> View:
        """Read from the newest snapshot that can be used; 0 is the beginning of the log."""
        first: DamagedLogError | None = None
        reach = 0
        for sequence in reversed(sequences):
            if sequence in self.distrusted:
                first = first or self._unusable()
                continue
            try:
                snapshot = BEGINNING
                if sequence:
                    snapshot = read_snapshot(self.backend, self.keys, sequence)
                reach = max(reach, snapshot.position)
                view = self._open(snapshot, sequences[-1], before)
                for record in read_records(self.backend, self.keys, view.position, view.digest):
                    view.apply(record, self.fold)
            except NotFoundError:
                first = first or self._unusable()  # deleted since it was listed
                continue
            except DamagedLogError as error:
                if "position" in error.facts:
                    raise
                first = first or error
                continue
            if first is None or self._reaches(view, reach):
                return view
        raise first or self._unusable()

    def _reaches(self, view: View, reach: int) -> bool:
        """Say whether what follows an older snapshot is there as far as the newest one went."""
        if view.position < reach:
            return False
        if view.position > view.base.position:
            return True
        # A newer snapshot but no record: only a full compaction leaves that, or a loss.
        head = read_head(self.backend, self.keys)
        return head is not None and head.position == view.position

    def _unusable(self) -> DamagedLogError:
        return DamagedLogError(
            f"log {self.keys.name} has no snapshot that can be used; "
            "repair it from a copy of the store",
            location=self.keys.snapshots,
            detail="no snapshot can be used",
        )

    def _open(self, snapshot: Snapshot, newest: int, before: View | None) -> View:
        """Open the segments of a snapshot."""
        held = {segment.info: segment for segment in before.layers.segments} if before else {}
        segments = []
        for info in snapshot.segments:
            segment = held.get(info)
            if segment is None:
                key = self.keys.segment(info.name)
                try:
                    reader = self.backend.open(key)
                except NotFoundError:
                    raise DamagedLogError(
                        f"segment {info.name} of log {self.keys.name} is missing; "
                        "repair it from a copy of the store",
                        location=key,
                        detail="it is missing",
                    ) from None
                segment = Segment(reader, info, self.cache)
            segments.append(segment)
        return View(snapshot, newest, Layered(tuple(segments)), snapshot.position, snapshot.digest)

    def records(self, view: View, after: int) -> Iterator[Record]:
        """Give the records that are still there behind a position, as far as a view goes.

        Raises:
            DamagedLogError: One is damaged or missing.
        """
        last = view.position
        given = after
        while given < last:
            newest = self.newest_snapshot()
            start = self._kept_from(newest)
            for record in read_records(self.backend, self.keys, start.position, start.digest):
                if given < record.number <= last:
                    given = record.number
                    yield record
            if given < last and self.newest_snapshot() == newest:
                raise self._lost(max(given, start.position), last)

    def _kept_from(self, newest: int) -> Snapshot:
        """Return the snapshot behind which all records are kept."""
        if not newest:
            return BEGINNING
        try:
            previous = read_snapshot(self.backend, self.keys, newest).previous
            return read_snapshot(self.backend, self.keys, previous) if previous else BEGINNING
        except NotFoundError:
            return self._kept_from(self.newest_snapshot())
