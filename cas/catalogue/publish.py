"""How content gets its name: objects first, durable, then one record in the catalogue log."""

from __future__ import annotations

import contextlib
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from cas import names
from cas.catalogue.context import now, user
from cas.errors import CasError, DiskFullError, RefusedError
from cas.objects import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cas.catalogue.context import Context
    from cas.manifests import SeedManifest, VersionManifest
    from cas.objects import ObjectWriter
    from cas.refs import Event, Refs, VersionRef

_T = TypeVar("_T")


@contextmanager
def publishing(context: Context) -> Iterator[ObjectWriter]:
    """Give a writer for objects that are about to get a name.

    gc is kept out from before the first look for known content until the block is left, which is
    after the record. Whatever the block does, what it leaves without a name costs nothing but
    space, and makes the next try cheaper.

    Raises:
        BusyError: A gc sweeps and does not end.
    """
    with context.publishing():
        with context.objects.writer() as writer:
            yield writer
        tidy_up(context)


def tidy_up(context: Context) -> None:
    """Do what keeps a store quick and may be left undone: merge small packs, fill the reserve.

    What was published stands; a failure here shows again, to someone who can act on it, in the
    next command that needs what failed.
    """
    with contextlib.suppress(CasError, OSError):
        context.objects.tidy()
    local = context.backend.local
    if local is not None:
        with contextlib.suppress(CasError, OSError):
            local.refill_reserve()


def publish_version(
    context: Context,
    writer: ObjectWriter,
    resource: str,
    make: Callable[[int, VersionRef | None], VersionManifest | None],
) -> tuple[VersionManifest, bytes] | None:
    """Give a tree the next number of its resource.

    Another process may take the number between our look and our record. The record is then not
    written, and a manifest with the next number is made.

    Args:
        context: The store.
        writer: What wrote the tree.
        resource: The line of versions.
        make: Makes the manifest for a number, given the newest version; None to make no version.

    Returns:
        The manifest and its digest; None if `make` wanted none.
    """
    refs = context.refs
    while True:
        refs.refresh()
        newest = refs.latest(resource)
        number = refs.last_number(resource) + 1
        manifest = make(number, newest)
        if manifest is None:
            writer.flush()
            return None
        encoded = manifest.to_bytes()
        digest = writer.put(encoded, VERSION)
        writer.flush()
        event = version_event(manifest, digest, encoded)
        if refs.publish(partial(_if_next, resource, number, newest, event)).events:
            return manifest, digest


def _if_next(
    resource: str, number: int, newest: VersionRef | None, event: Event, refs: Refs
) -> Sequence[Event]:
    """Return the event if a resource still is as it was when the event was made."""
    return [event] if is_next(refs, resource, number, newest) else []


def is_next(refs: Refs, resource: str, number: int, newest: VersionRef | None) -> bool:
    """Say whether a number still is the next of a resource, after the same newest version."""
    return refs.last_number(resource) + 1 == number and refs.latest(resource) == newest


def version_event(manifest: VersionManifest, digest: bytes, encoded: bytes) -> Event:
    """Return the event that gives a version its name."""
    return {
        "type": "version",
        "resource": manifest.resource,
        "number": manifest.number,
        "digest": bytes(digest),
        "manifest": encoded,
    }


def seed_event(manifest: SeedManifest, digest: bytes, encoded: bytes, *, reuse: bool) -> Event:
    """Return the event that gives a seed its name; `reuse` that of a removed one."""
    event = {
        "type": "seed",
        "name": manifest.name,
        "digest": bytes(digest),
        "manifest": encoded,
    }
    return event | {"reuse": True} if reuse else event


def change_event(kind: str, name: Mapping[str, Any], *, by: str | None, reason: str) -> Event:
    """Return an event that takes a name away, brings it back or moves it, with who and why.

    Args:
        kind: The event's type.
        name: Its fields beside those.
        by: Who; None for the user that runs this.
        reason: Why.

    Raises:
        RefusedError: `by` is empty, or one of them is no text that can be kept.
    """
    if by is not None and not by.strip():
        raise RefusedError("by is empty; say who, or leave it out")
    return {
        "type": kind,
        **name,
        "by": names.check_text(user() if by is None else by, "by"),
        "reason": names.check_text(reason, "reason"),
        "at": now(),
    }


def change_refs(context: Context, decide: Callable[[Refs], Sequence[Event]]) -> None:
    """Write one record of names alone, which must also be possible on a full disk.

    Raises:
        DiskFullError: The disk is full and the reserve used up.
    """
    despite_full_disk(context, lambda: context.refs.publish(decide))


def despite_full_disk(context: Context, step: Callable[[], _T]) -> _T:
    """Do a small step that makes room, or frees what somebody has to look at.

    On a full disk even a record of a few hundred bytes may need a block, so the store gives back
    what it keeps aside, a piece at a time. The next publisher that finds room fills it again.

    Raises:
        DiskFullError: The disk is full and the reserve used up.
    """
    while True:
        try:
            return step()
        except DiskFullError:
            local = context.backend.local
            if local is None or not local.release_reserve():
                raise
