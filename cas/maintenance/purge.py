"""Purge: content that must not be there any more goes at once, from everywhere in a store.

First a record in the catalogue says that it goes, so that nobody stores it again and everybody who
misses it is told why. Then every copy goes. Killed in between, it is finished by purging again.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas.catalogue.context import LOCK_TIMEOUT
from cas.catalogue.publish import change_event, change_refs, despite_full_disk, tidy_up
from cas.catalogue.resolve import resolve_spec
from cas.digest import DIGEST_SIZE, Digest
from cas.errors import BusyError, NotFoundError, RefusedError
from cas.maintenance.reach import Reach, affected
from cas.objects import BLOB
from cas.objects.erasing import chunks_of, erase, erase_quarantined
from cas.objects.merging import merge_lock
from cas.refs import MAX_AFFECTED

if TYPE_CHECKING:
    from cas.catalogue.context import Context
    from cas.refs import Refs


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What a purge did.

    Attributes:
        digest: Of the content.
        by: Who purged it; of what was purged before, who did first.
        reason: Why.
        at: When, UTC, ISO 8601.
        affects: `SPEC:PATH` of its places, not all if there are many.
        copies: How many copies of it lay in the store.
        bytes: What these took on the disk.
        notices: Sentences about what went with it.
    """

    digest: Digest
    by: str
    reason: str
    at: str
    affects: tuple[str, ...]
    copies: int
    bytes: int
    notices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "digest": str(self.digest),
            "by": self.by,
            "reason": self.reason,
            "at": self.at,
            "affects": list(self.affects),
            "copies": self.copies,
            "bytes": self.bytes,
            "notices": list(self.notices),
        }


def purge(context: Context, spec: str, *, reason: str, by: str | None = None) -> Purged:
    """Take content out of a store for good; see `Store.purge`."""
    if not reason.strip():
        raise RefusedError("a purge needs a reason: it is what others are told")
    digest = _digest(context, spec)
    objects = context.objects
    with ExitStack() as alone:
        despite_full_disk(context, lambda: alone.enter_context(context.sweeping()))
        if not alone.enter_context(merge_lock(context.backend, patience=LOCK_TIMEOUT)):
            raise BusyError("packs are merged by another process without end; try again later")
        context.heed_purges()
        objects.reload()
        if digest not in objects.purged:
            what = {"digest": bytes(digest), "affects": _places(context, digest)}
            event = change_event("purged", what, by=by, reason=reason)
            change_refs(context, lambda refs: [] if _purge_of(refs, digest) else [event])
            context.heed_purges()
        for entry in list(context.backend.list("cache/stat/")):
            context.backend.delete(entry.key)
        going = frozenset((digest, *chunks_of(objects, digest)))
        copies, size = erase(objects, going)
        aside = erase_quarantined(objects, going)
        local = context.backend.local
        if local is not None:
            local.sweep()
    tidy_up(context)
    told = next(found for found in context.refs.purges() if found.digest == digest)
    return Purged(
        digest=digest,
        by=told.by,
        reason=told.reason,
        at=told.at,
        affects=told.affects,
        copies=copies + len(aside),
        bytes=size,
        notices=tuple(f"{key} was deleted: it held a copy" for key in aside),
    )


def _digest(context: Context, spec: str) -> Digest:
    """Return what is to be purged: the content of one file.

    Raises:
        NotFoundError: The spec names nothing.
        RefusedError: It names more than the content of a file.
    """
    if len(spec) == 2 * DIGEST_SIZE and set(spec) <= set("0123456789abcdef"):
        digest = Digest.parse(spec)
        context.heed_purges()
        if digest in context.objects.purged:
            return digest
        if not context.objects.has(digest):
            raise NotFoundError(f"no object has the digest {spec}", spec=spec)
        if context.objects.info(digest).kind != BLOB:
            raise RefusedError(f"{spec} is no file; purge the files in it", spec=spec)
        return digest
    found = resolve_spec(context, spec)
    if found.tree is not None:
        raise RefusedError(
            f"{spec} is a directory; purge its files one by one, or take its name away "
            "(cas remove, then cas gc)",
            spec=spec,
        )
    if not found.size:
        raise RefusedError(f"{spec} is empty: there is nothing in it to purge", spec=spec)
    return found.digest


def _places(context: Context, digest: Digest) -> list[str]:
    """Return where names have it, as far as they can be followed."""
    roots = Reach(context.objects).roots(context.refs)
    found = {place for _, place in affected(context.objects, roots, frozenset((digest,)))}
    return sorted(found)[:MAX_AFFECTED]


def _purge_of(refs: Refs, digest: Digest) -> bool:
    return any(found.digest == digest for found in refs.purges())
