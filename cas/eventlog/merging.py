"""Merging segments a piece at a time, so that nobody who appends has to wait for a large one.

A merge belongs to the process that began it and goes on with its appends. It publishes a snapshot
of the position that the newest one has, with one segment in the place of several. If its process
ends, nothing is left of it, and another begins anew; if another was quicker, it is dropped.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Final

from cas.errors import NotFoundError
from cas.eventlog.compaction import (
    identities,
    open_segment,
    publish,
    put_segment,
    snapshot_after,
    without_deleted,
)
from cas.eventlog.runs import merge
from cas.eventlog.segment import SegmentWriter, weight
from cas.eventlog.state import Layered

if TYPE_CHECKING:
    from cas.eventlog.loading import Loader
    from cas.eventlog.segment import SegmentInfo
    from cas.eventlog.view import View

AHEAD: Final = 8
"""While it is put in place, and before it is published, others may publish fewer snapshots."""


class Merge:
    """Some segments of a snapshot on their way to being one.

    Args:
        loader: Of the log.
        view: Whose snapshot has them.
        start: Where they begin among its segments.
        stop: Where they end.

    Raises:
        EnvironmentFailure: The medium is full or fails.
    """

    def __init__(self, loader: Loader, view: View, start: int, stop: int) -> None:
        """Begin; nothing is read yet."""
        self._loader = loader
        self._segments = view.layers.segments[start:stop]
        self._infos = view.base.segments[start:stop]
        self._merged: SegmentInfo | None = None
        self._last = 0
        self._whole = False
        runs = merge([segment.runs(b"", None) for segment in reversed(self._segments)])
        self._runs = runs if start else without_deleted(runs)
        self._staging = loader.backend.stage()
        self._writer = SegmentWriter(self._staging)

    def discard(self) -> None:
        """Free what was written and is not in place; may be called again."""
        self._staging.discard()

    @property
    def is_placed(self) -> bool:
        """Whether all that is left is to publish it."""
        return self._merged is not None

    def places(self, view: View) -> range | None:
        """Return where its segments are in a view; None if it cannot be published any more."""
        infos = view.base.segments
        if self._infos[0] not in infos or (self._merged and view.newest >= self._last):
            return None
        start = infos.index(self._infos[0])
        stop = start + len(self._infos)
        return range(start, stop) if infos[start:stop] == self._infos else None

    def go_on(self, view: View, quota: int) -> View | None:
        """Do the next piece: merge some more, put the segment in place, or publish it.

        Args:
            view: The newest state, in which its segments have their `places`.
            quota: About so many bytes of keys and values are merged.

        Returns:
            When it is done, the same state on a new snapshot.

        Raises:
            DamagedLogError: A segment is damaged.
            EnvironmentFailure: The medium is full or fails.
        """
        if not self._whole:
            self._write(quota)
        elif self._merged is None:
            self._put(view.newest + AHEAD)
        else:
            return self._publish(view, self._merged)
        return None

    def _write(self, quota: int) -> None:
        while quota > 0:
            run = next(self._runs, None)
            if run is None:
                self._whole = True
                return
            self._writer.add(run)
            quota -= sum(itertools.starmap(weight, zip(*run, strict=True)))

    def _put(self, last: int) -> None:
        infos = self._infos
        self._last = last
        self._merged = put_segment(
            self._loader,
            self._staging,
            self._writer,
            sequence=last,
            records=(infos[0].first, infos[-1].last),
            known=identities(self._segments),
        )

    def _publish(self, view: View, merged: SegmentInfo) -> View | None:
        places = self.places(view)
        if places is None:
            return None
        infos = view.base.segments
        infos = (*infos[: places.start], merged, *infos[places.stop :])
        snapshot = snapshot_after(view, view.base.position, view.base.digest, infos)
        if not publish(self._loader, snapshot):
            return None  # the next append reads what was published, and tries again
        if self._loader.newest_snapshot() != snapshot.sequence:
            return None
        try:
            opened = open_segment(self._loader, merged)
        except NotFoundError:
            return None  # two more compactions were quick
        old = view.layers
        layers = Layered((*old.segments[: places.start], opened, *old.segments[places.stop :]))
        layers.changes = old.changes
        return dataclasses.replace(view, base=snapshot, newest=snapshot.sequence, layers=layers)
