"""Repack: other packs with the same objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cas.catalogue.context import LOCK_TIMEOUT
from cas.errors import BusyError, RefusedError
from cas.objects.merging import merge_lock
from cas.objects.repacking import plan, repack
from cas.progress import Meter

if TYPE_CHECKING:
    from cas.catalogue.context import Context
    from cas.progress import Progress

LEVELS: Final = range(1, 20)
"""The levels of zstd that may be asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repacked:
    """What repacking did, or would.

    Attributes:
        packs_before: How many packs there were.
        packs_after: How many there are.
        bytes_before: What they took.
        bytes_after: What they take.
        rewritten_bytes: Bytes of the packs that were written anew, or would be.
        needed_bytes: Free space that it takes while it runs, at most.
        dry_run: Whether nothing was really done.
    """

    packs_before: int
    packs_after: int
    bytes_before: int
    bytes_after: int
    rewritten_bytes: int
    needed_bytes: int
    dry_run: bool

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "packs_before": self.packs_before,
            "packs_after": self.packs_after,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "rewritten_bytes": self.rewritten_bytes,
            "needed_bytes": self.needed_bytes,
            "dry_run": self.dry_run,
        }


def repack_store(
    context: Context,
    *,
    level: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Repacked:
    """Write packs anew; see `Store.repack`."""
    if level is not None and level not in LEVELS:
        raise RefusedError(f"level {level} is none of zstd's; name one from 1 to 19")
    objects = context.objects
    objects.reload()
    packs, size = _extent(context)
    found = plan(objects, every=level is not None)
    rewritten = sum(pack.size for group in found.groups for pack in group)
    after = packs, size
    if not dry_run and found.groups:
        with merge_lock(context.backend, patience=LOCK_TIMEOUT) as held:
            if not held:
                raise BusyError("packs are merged by another process without end; try again later")
            objects.reload()
            found = plan(objects, every=level is not None)
            rewritten = sum(pack.size for group in found.groups for pack in group)
            meter = Meter(progress, "repack", total_bytes=rewritten)
            for done in repack(objects, found.groups, level):
                meter.add(0, done)
            meter.finish()
        objects.tidy()
        after = _extent(context)
    return Repacked(
        packs_before=packs,
        packs_after=after[0],
        bytes_before=size,
        bytes_after=after[1],
        rewritten_bytes=rewritten,
        needed_bytes=found.space,
        dry_run=dry_run,
    )


def _extent(context: Context) -> tuple[int, int]:
    sizes = [size for _, size in context.objects.packs()]
    return len(sizes), sum(sizes)
