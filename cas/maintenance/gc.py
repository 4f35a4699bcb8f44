"""Garbage collection: objects that nothing needs any more go, when they are old enough.

What is needed is marked while everybody works on. Then publishers are kept out, what was named
meanwhile is marked as well, and the rest is swept. Before anything goes, the stat indexes go: what
they say of unchanged files rests on nothing having been removed since.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cas.catalogue.context import LOCK_TIMEOUT
from cas.catalogue.publish import despite_full_disk, tidy_up
from cas.errors import BusyError, DamagedError, RefusedError
from cas.maintenance.marking import Marks, roots
from cas.objects.merging import merge_lock
from cas.objects.sweeping import Needed, survey, sweep
from cas.progress import Meter

if TYPE_CHECKING:
    from cas.catalogue.context import Context
    from cas.maintenance.marking import Marked
    from cas.objects.sweeping import Survey
    from cas.progress import Progress

GRACE: Final = 14 * 24 * 3600.0
"""Seconds for which what lost its last name, or never had one, stays all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a garbage collection took away, or would.

    Attributes:
        removed_objects: How many objects went; each copy of an object counts.
        removed_bytes: What they took on the disk, and second copies of objects that stay.
        kept_objects: How many objects are left, each copy counted.
        dry_run: Whether nothing was really done.
        complete: Whether all of it was done: not if time or space ran out.
        notices: Sentences about what stays and why.
    """

    removed_objects: int
    removed_bytes: int
    kept_objects: int
    dry_run: bool
    complete: bool
    notices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "removed_objects": self.removed_objects,
            "removed_bytes": self.removed_bytes,
            "kept_objects": self.kept_objects,
            "dry_run": self.dry_run,
            "complete": self.complete,
            "notices": list(self.notices),
        }


def collect(
    context: Context,
    *,
    grace: float = GRACE,
    dry_run: bool = False,
    budget: float | None = None,
    progress: Progress | None = None,
) -> Collected:
    """Remove what nothing needs; see `Store.gc`."""
    if not 0 <= grace < math.inf:
        raise RefusedError(f"a grace of {grace} seconds is none; name one from 0 up")
    deadline = None if budget is None else time.monotonic() + budget
    objects = context.objects
    before_ns = _now_ns(context, dry_run=dry_run) - int(grace * 1e9)
    since = time.time() - grace
    objects.reload()
    meter = Meter(progress, "mark")
    with Marks(objects, meter) as marks, ExitStack() as alone:
        try:
            marks.add(roots(context, since))
        except DamagedError:
            if dry_run:
                raise
            # Maybe another gc took what lost its name a moment ago. Soon nobody does.
            marks.begin_again()
        if dry_run:
            marked = marks.seal()
            meter.finish()
            found = survey(objects, _needed(marked), before_ns)
            return _report(found, found.waste, dry_run=True, complete=True)
        despite_full_disk(context, lambda: alone.enter_context(context.sweeping()))
        held = despite_full_disk(
            context,
            lambda: alone.enter_context(merge_lock(context.backend, patience=LOCK_TIMEOUT)),
        )
        if not held:
            raise BusyError("packs are merged by another process without end; try again later")
        objects.reload()
        marks.add(roots(context, since))
        marked = marks.seal()
        meter.finish()
        needed = _needed(marked)
        found = survey(objects, needed, before_ns)
        collected = _sweep(context, found, needed, deadline, progress)
    tidy_up(context)
    return collected


def _now_ns(context: Context, *, dry_run: bool) -> int:
    """Return the time of the store, or where it cannot be written to, that of this machine."""
    local = context.backend.local
    if dry_run and local is not None and not local.writable:
        return time.time_ns()
    return despite_full_disk(context, context.backend.now_ns)


def _needed(marked: Marked) -> Needed:
    return Needed(marked.place, len(marked))


def _sweep(
    context: Context,
    found: Survey,
    needed: Needed,
    deadline: float | None,
    progress: Progress | None,
) -> Collected:
    waste = found.waste
    gone = freed = 0
    if any(waste):
        for entry in list(context.backend.list("cache/stat/")):
            context.backend.delete(entry.key)
        meter = Meter(progress, "sweep", total_files=waste[0], total_bytes=waste[1])
        for objects, size in sweep(context.objects, found, needed):
            gone, freed = gone + objects, freed + size
            meter.add(objects, size)
            if deadline is not None and time.monotonic() >= deadline:
                break
        meter.finish()
    local = context.backend.local
    if local is not None:
        local.sweep()
    return _report(found, (gone, freed), dry_run=False, complete=(gone, freed) == waste)


def _report(found: Survey, removed: tuple[int, int], *, dry_run: bool, complete: bool) -> Collected:
    notices = [f"{key} is damaged and stays as it is; verify the store" for key in found.damaged]
    for (count, size), why in (
        (found.young, "are younger than the grace"),
        (found.left, "lie in large packs that are needed for the rest"),
    ):
        if count:
            notices.append(f"{count} objects of {size} bytes that nothing needs stay: they {why}")
    if not complete:
        left = found.waste[1] - removed[1]
        notices.append(
            f"{left} bytes more can go: time or space ran out, or a pack is damaged; "
            "make room and run it again"
        )
    return Collected(
        removed_objects=removed[0],
        removed_bytes=removed[1],
        kept_objects=found.objects - removed[0],
        dry_run=dry_run,
        complete=complete,
        notices=tuple(notices),
    )
