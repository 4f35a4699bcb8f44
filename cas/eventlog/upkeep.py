"""Upkeep: what appends do so that a log stays quick to open, a bounded piece at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.eventlog.compaction import compact, garbage
from cas.eventlog.merging import Merge
from cas.eventlog.tiers import FAN, crowded

if TYPE_CHECKING:
    from cas.eventlog.loading import Loader
    from cas.eventlog.snapshot import Snapshot
    from cas.eventlog.view import View

COMPACT_AFTER = 64
"""Records after the newest snapshot that make it worth a new one."""
COMPACT_EVENTS = 1024
"""Events in them that do: a process that begins has to fold them all."""
COMPACT_BYTES = 1 << 20
"""Bytes of them, and of what they changed, that do."""

AT_ONCE = 64 << 10
"""Segments that come to so many bytes together are merged while a snapshot is made."""
STEP = 128 << 10
"""Bytes of larger ones that an append merges: about 2 ms."""
SHARE = 8
"""It merges so many more for each byte that it brought, so that bulk does not run ahead."""
DELETIONS = 8
"""Files that an append deletes."""
LITTER: Final = 128
"""More of them than this are not left to later appends, which may never come."""


class Upkeep:
    """The upkeep that one process does for a log, as it appends.

    Args:
        loader: Of the log.
        compact_after: Records after which a snapshot is due.
    """

    def __init__(self, loader: Loader, compact_after: int) -> None:
        """Begin with nothing to do."""
        self._loader = loader
        self._compact_after = compact_after
        self._garbage: list[str] = []
        self._merges: list[Merge] = []

    def __del__(self) -> None:
        """Free what merges have written."""
        self.drop()

    def drop(self) -> bool:
        """Forget all that was begun; another append, of whichever process, begins it anew.

        Returns:
            Whether that gave space back.
        """
        merges, self._merges, self._garbage = self._merges, [], []
        for merge in merges:
            merge.discard()
        return bool(merges)

    def after_append(self, view: View, before: tuple[int, ...], size: int) -> View:
        """Do what is due after an append, or a piece of what is left to do.

        Args:
            view: The newest state.
            before: What its tail measured before the append.
            size: Bytes of the record, and of what it changed.

        Returns:
            The same state, maybe on a new snapshot.

        Raises:
            DamagedLogError: A segment to merge is damaged.
            EnvironmentFailure: The medium is full or fails.
        """
        quota = SHARE * size
        if self._is_due(before, measure(view)):
            compacted = compact(self._loader, view, limit=AT_ONCE)
            if compacted is not None:
                view = self._follow(compacted, view.base)
            if quota < STEP:
                return view  # that was enough for one append
        else:
            self._delete_some()
            quota += STEP
        return self._go_on(view, quota) if self._merges else view

    def _is_due(self, before: tuple[int, ...], now: tuple[int, ...]) -> bool:
        """Say whether the tail grew past a threshold or a doubling of it.

        So the writer of one record among many compacts, not all that see a long tail; if it dies
        over it, the one that doubles the tail does.
        """
        limits = (self._compact_after, COMPACT_EVENTS, COMPACT_BYTES)
        return any(
            (new // limit).bit_length() > (old // limit).bit_length()
            for old, new, limit in zip(before, now, limits, strict=True)
        )

    def _follow(self, view: View, previous: Snapshot) -> View:
        """Take on what there is to do after this process has published a snapshot."""
        self._garbage = garbage(self._loader, view.base, previous)[::-1]
        while len(self._garbage) > LITTER:
            self._loader.backend.delete(self._garbage.pop())
        self._merges = [merge for merge in self._merges if self._lives(merge, view)]
        busy = {place for merge in self._merges for place in merge.places(view) or ()}
        found = crowded([info.plain for info in view.base.segments], busy)
        if found is None:
            return view
        start, stop, count = found
        # Whoever made the tier full merges it. It may have died or have little to append, so later
        # ones do it as well; at last one does not leave it to appends that may never come.
        if count != FAN + 1:
            self._merges.append(Merge(self._loader, view, start, stop))
        if count < 2 * FAN:
            return view
        begun = self._merges[-1]
        tried = False
        while begun in self._merges and not tried:
            tried = begun.is_placed
            view = self._go_on(view, STEP)
        return view

    def _lives(self, merge: Merge, view: View) -> bool:
        if merge.places(view) is not None:
            return True
        merge.discard()
        return False

    def _go_on(self, view: View, quota: int) -> View:
        """Do a piece of the merge that was begun last, which is the smallest."""
        merge = self._merges[-1]
        published = None
        if self._lives(merge, view):
            published = merge.go_on(view, quota)
            if published is None:
                return view
            merge.discard()
        self._merges.pop()
        return view if published is None else self._follow(published, view.base)

    def _delete_some(self) -> None:
        """Delete some of what nobody needs any more, and of large files one."""
        for _ in range(min(DELETIONS, len(self._garbage))):
            key = self._garbage.pop()
            self._loader.backend.delete(key)
            if key.startswith(self._loader.keys.segments):
                return


def measure(view: View) -> tuple[int, ...]:
    """Measure what follows the newest snapshot: records, events, bytes."""
    return view.position - view.base.position, view.events, view.size
