"""Making a store: all of it is there, or none of it.

A store is founded in its own directory, under a lock on it. First comes the file that will make it
a store, under another name; then the objects, the log and whatever else there is to be; and last,
in one step, the file gets its name. A directory in which the first step was made but not the last
is what a killed founding left, and the next one begins by clearing it.
"""

from __future__ import annotations

import grp
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cas import fs
from cas.backends import LocalBackend
from cas.catalogue.adding import Provenance
from cas.catalogue.context import Context, doing, now
from cas.catalogue.identity import FILE, FOUNDING, Identity, is_store, new_id
from cas.catalogue.parents import NO_PARENT
from cas.catalogue.publish import version_event
from cas.catalogue.sources import Taker
from cas.checkout.removal import remove_tree
from cas.errors import BusyError, ConflictError, NotFoundError, RefusedError
from cas.locking import try_lock_fd
from cas.objects import VERSION
from cas.refs import create_catalogue, open_catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cas.progress import Progress
    from cas.refs import Event


def found(
    path: Path,
    *,
    shared: bool | str | None,
    first: Mapping[str, str | os.PathLike[str]],
    logs: Mapping[str, Callable[[LocalBackend, str], object]],
    progress: Progress | None,
) -> None:
    """Make a directory a store.

    Args:
        path: The directory; it does not exist, is empty, or is what a killed founding left.
        shared: True for the group of the parent directory, or the name of a group.
        first: Resource → directory of its first version.
        logs: Name → what makes the log of this name, given the backend and the store's identity.
        progress: Called with what was done so far.

    Raises:
        ConflictError: There is a store, or anything else.
        BusyError: Another process is about to make it.
        NotFoundError: A directory to take in does not exist.
    """
    gid = _group(path, shared)
    for resource, source in first.items():
        if not os.path.isdir(source):
            raise NotFoundError(
                f"the {resource} to begin with: {source} is no directory", path=os.fspath(source)
            )
    identity = Identity(id=new_id(), shared=gid is not None, created_at=now())
    with doing(f"making the store {path}"), building(path, identity, gid) as backend:
        begin: Event = {
            "type": "init",
            "store_id": identity.id,
            "created_at": identity.created_at,
            "logs": sorted(logs),
        }
        for make in logs.values():
            make(backend, identity.id)
        create_catalogue(backend, [begin, *_take_in(path, backend, identity, first, progress)])


def _take_in(
    path: Path,
    backend: LocalBackend,
    identity: Identity,
    first: Mapping[str, str | os.PathLike[str]],
    progress: Progress | None,
) -> list[Event]:
    """Store the first versions and return the events that name them."""
    if not first:
        return []
    context = Context(path, identity.id, backend, open_catalogue(backend))
    provenance = Provenance(
        source="manual",
        trigger_run=None,
        trigger_workspace=None,
        description="",
        meta=None,
    )
    events = []
    try:
        with context.objects.writer() as writer:
            taker = Taker(context, writer, progress=progress)
            for resource, source in first.items():
                tree = taker.take_tree(Path(source)).tree
                manifest = provenance.manifest(resource, 1, tree, NO_PARENT)
                encoded = manifest.to_bytes()
                digest = writer.put(encoded, VERSION)
                events.append(version_event(manifest, digest, encoded))
            writer.flush()
    finally:
        context.close()
    return events


@contextmanager
def building(
    path: Path, identity: Identity, gid: int | None = None, *, resume: bool = False
) -> Iterator[LocalBackend]:
    """Give a backend over a directory that becomes a store when the block is left.

    Args:
        path: The directory; it does not exist, is empty, or is what a killed founding left.
        identity: What the store will say of itself.
        gid: A group that may use it.
        resume: Go on with what an earlier try with this identity left, and leave to the next what
            content a failure cuts short. Otherwise a failure leaves no trace.

    Raises:
        ConflictError: There is a store, or anything else.
        BusyError: Another process is about to make it.
    """
    if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
        what = "link" if path.is_symlink() else "file"
        raise ConflictError(f"{path} is a {what}; name a directory", path=str(path))
    made = _missing(path)
    backend = LocalBackend(path, shared_gid=gid, create=True)
    fd = fs.open_dir(path)
    try:
        if not try_lock_fd(fd):
            raise BusyError(f"{path} is being made a store by another process", path=str(path))
        _clear(path, fd, identity if resume else None)
        try:
            backend.put_if_absent(FOUNDING, identity.to_bytes())
            backend.make_directories(["log", "packs", "workspaces"])
            for lock in ("locks/publish", "locks/merge", "locks/publication"):
                backend.put(lock, b"")  # made here, so that all of a group may open them
            yield backend
            backend.create_reserve()
            fs.rename_noreplace(path / FOUNDING, path / FILE)
            fs.fsync_dir(path)
        except BaseException:
            if not resume or (not any(backend.list("packs/")) and not any(backend.list("loose/"))):
                _empty(fd)
                for directory in made:
                    try:
                        fs.rmdir(directory)
                    except OSError:
                        break
            raise
    finally:
        os.close(fd)
        backend.close()


def _missing(path: Path) -> list[Path]:
    """Return the directory and those above it that do not exist yet, lowest first."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = path.parent
    return missing


def _clear(path: Path, fd: int, wanted: Identity | None) -> None:
    """See to it that a directory is empty, or holds only what an earlier try left.

    Args:
        path: The directory.
        fd: The directory, opened.
        wanted: Leave what was to be a store of this identity.

    Raises:
        ConflictError: It holds something that no founding left.
    """
    if is_store(path):
        raise ConflictError(f"{path} is a store already", path=str(path))
    there = os.listdir(fd)
    if FOUNDING in there:
        if wanted is None or (path / FOUNDING).read_bytes() != wanted.to_bytes():
            _empty(fd)
    elif there:
        raise ConflictError(
            f"{path} is not empty; name a directory that is empty or does not exist",
            path=str(path),
        )


def _empty(fd: int) -> None:
    """Remove all that is in an open directory, what marks it as unfinished last."""
    for name in sorted(os.listdir(fd), key=FOUNDING.__eq__):
        if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            remove_tree(fd, os.fsencode(name))
        else:
            fs.unlink(name, dir_fd=fd)


def _group(path: Path, shared: bool | str | None) -> int | None:
    if not shared:
        return None
    if isinstance(shared, str):
        try:
            return grp.getgrnam(shared).gr_gid
        except KeyError:
            raise RefusedError(f"there is no group {shared}", group=shared) from None
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    return parent.stat().st_gid
