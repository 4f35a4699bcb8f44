"""Writing the entries of a tree below an open directory.

Every name is created in a handle of its own directory, must not exist, and is never reached
through a link. Content is checked against its digest as it is written; only a clone or a hard link
of a stored file stands on its stat instead, and is counted apart.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from cas import fs
from cas.digest import Hasher
from cas.errors import (
    CasError,
    CorruptObjectError,
    FormatError,
    RefusedError,
    UnsupportedError,
    environment_failure,
)
from cas.manifests import EXEC, LINK
from cas.workspace.alongside import join
from cas.workspace.handles import Handles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.backends import Reader
    from cas.manifests import Entry
    from cas.objects import ObjectStore
    from cas.workspace.runs import Run

AUTO: Final = "auto"
COPY: Final = "copy"
REFLINK: Final = "reflink"
HARDLINK: Final = "hardlink"
MODES: Final = (AUTO, REFLINK, HARDLINK, COPY)

_BLOCK: Final = 1 << 20
_WRITEBACK: Final = 16 << 20
_ZEROS: Final = bytes(1 << 20)
_NAME_REFUSED: Final = frozenset({errno.EINVAL, errno.EILSEQ, errno.ENAMETOOLONG, errno.EEXIST})


@dataclass(slots=True)
class Tally:
    """How content came: `cloned` and `linked` count files whose bytes were not all read."""

    files: int = 0
    bytes: int = 0
    cloned: int = 0
    linked: int = 0

    def add(self, other: Tally) -> None:
        """Count what another writer did."""
        self.files += other.files
        self.bytes += other.bytes
        self.cloned += other.cloned
        self.linked += other.linked

    def take(self) -> Tally:
        """Return what was counted, and start over."""
        taken = Tally(self.files, self.bytes, self.cloned, self.linked)
        self.files = self.bytes = self.cloned = self.linked = 0
        return taken


class Writer:
    """Writes runs of entries; a context manager that closes its handles.

    Args:
        objects: Where content comes from.
        root: A descriptor of the directory to write below; the directories are there.
        mode: One of `MODES`.
        sync: Whether all will be synced in the end, so that writing back may begin early.

    Attributes:
        tally: What was written since it was last taken.
    """

    def __init__(self, objects: ObjectStore, root: int, mode: str, *, sync: bool) -> None:
        """Hold no directory open yet."""
        self.tally = Tally()
        self._objects = objects
        self._handles = Handles(root)
        self._mode = mode
        self._may_clone = mode in (AUTO, REFLINK)
        self._sync = sync
        self._large = objects.loose_threshold
        only_read = 0o222 if mode == HARDLINK else 0
        self._file_mode = 0o666 & ~only_read
        self._exec_mode = 0o777 & ~only_read

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the handles."""
        self._handles.close()

    def write(self, runs: Iterable[Run]) -> list[list[int]]:
        """Write what is no directory.

        Args:
            runs: Folders and entries; none of them a directory.

        Returns:
            For each run five numbers an entry: size, mtime_ns, ctime_ns, device, inode.

        Raises:
            DamagedError: The store does not hold what a digest names.
            RefusedError: An entry cannot be made: its name, its target, its mode.
            EnvironmentFailure: The system refused.
        """
        runs = list(runs)
        large = self._large
        contents = self._objects.read_many(
            [e[3] for _, run in runs for e in run if e[2] < large or e[1] == LINK]
        )
        found = []
        tally = self.tally
        for folder, run in runs:
            stats: list[int] = []
            name = b""
            try:
                at = self._handles.get(folder)
                for entry in run:
                    name, kind, size, digest = entry
                    if kind == LINK:
                        st = self._write_link(at, name, next(contents)[1])
                    elif size >= large:
                        st = self._write_large(at, entry)
                    else:
                        content = next(contents)[1]
                        if len(content) != size:
                            raise _wrong_size(digest, size, len(content))
                        mode = self._exec_mode if kind == EXEC else self._file_mode
                        fd = fs.create_excl(name, mode, dir_fd=at)
                        try:
                            fs.write_all(fd, content)
                            st = os.fstat(fd)
                        finally:
                            os.close(fd)
                    stats += (
                        st.st_size,
                        st.st_mtime_ns,
                        st.st_ctime_ns,
                        st.st_dev,
                        st.st_ino,
                    )
                    tally.bytes += size
            except OSError as error:
                if isinstance(error, CasError):
                    raise
                raise _failure(error, join(folder, name)) from error
            tally.files += len(run)
            found.append(stats)
        return found

    def _write_link(self, at: int, name: bytes, target: bytes) -> os.stat_result:
        if not target or b"\0" in target:
            raise RefusedError(
                f"{os.fsdecode(name)!r} is a symlink to {target!r}, which no system can make"
            )
        fs.symlink(target, name, dir_fd=at)
        return os.stat(name, dir_fd=at, follow_symlinks=False)

    def _write_large(self, at: int, entry: Entry) -> os.stat_result:
        name, kind, size, digest = entry
        reader = self._objects.open_loose(digest)
        source = None if reader is None else reader.fileno()
        try:
            if self._mode == HARDLINK and kind != EXEC and reader is not None:
                linked = self._link(at, entry, reader)
                if linked is not None:
                    return linked
            mode = self._exec_mode if kind == EXEC else self._file_mode
            fd = fs.create_excl(name, mode, dir_fd=at)
            try:
                if reader is None or source is None:
                    self._stream(fd, entry)
                elif not self._clone(reader, fd, entry):
                    copy_checked(source, fd, size, digest, early=self._sync)
                return os.fstat(fd)
            finally:
                os.close(fd)
        finally:
            if reader is not None:
                reader.close()

    def _link(self, at: int, entry: Entry, reader: Reader) -> os.stat_result | None:
        """Make a hard link; None if the stored file has as many as it can have."""
        name, _, size, digest = entry
        path = self._objects.loose_path(digest)
        source = reader.fileno()
        if path is None or source is None:
            return None
        self._prove(digest, size, reader)
        try:
            before = os.fstat(source)
            fs.link(path, name, dst_dir_fd=at)
        except OSError as error:
            if error.errno == errno.EMLINK:
                return None
            if error.errno in fs.CANNOT:
                raise cannot_link(error) from error
            raise
        after = os.fstat(source)
        st = os.stat(name, dir_fd=at, follow_symlinks=False)
        if st.st_ino == after.st_ino and before.st_mtime_ns == after.st_mtime_ns:
            # The link itself moved the ctime: the proof goes with it.
            self._objects.loose.remember(digest, after)
        self.tally.linked += 1
        return st

    def _clone(self, reader: Reader, fd: int, entry: Entry) -> bool:
        """Share the stored file's blocks, if the filesystem can."""
        source = reader.fileno()
        if not self._may_clone or source is None:
            return False
        if not fs.clone(source, fd):
            if self._mode == REFLINK:
                raise cannot_clone()
            self._may_clone = False
            return False
        self._prove(entry[3], entry[2], reader)
        self.tally.cloned += 1
        return True

    def _prove(self, digest: bytes, size: int, reader: Reader) -> None:
        """Make sure that a stored file is as it was when all of it was last hashed."""
        if reader.size != size:
            raise _wrong_size(digest, size, reader.size)
        if not self._objects.loose.proven(digest, reader):
            self._objects.loose.prove(digest, reader)

    def _stream(self, fd: int, entry: Entry) -> None:
        _, _, size, digest = entry
        done = 0
        for piece in self._objects.stream(digest):
            fs.write_all(fd, piece)
            done += len(piece)
        if done != size:
            raise _wrong_size(digest, size, done)


def _failure(error: OSError, path: bytes) -> CasError:
    """Say what could not be written."""
    text = os.fsdecode(path)
    if error.errno in _NAME_REFUSED:
        return UnsupportedError(
            f"the destination's filesystem cannot hold {text!r} ({error.strerror}); "
            "choose a destination on another one",
            path=text,
        )
    return environment_failure(error, f"writing {text!r}")


def copy_checked(source: int, target: int, size: int, digest: bytes, *, early: bool) -> None:
    """Copy a stored file into an empty one, hashing what is copied and keeping holes.

    Args:
        source: Open for reading.
        target: Open for writing, empty.
        size: How long it has to be, in bytes.
        digest: What it has to hash to.
        early: Whether to begin writing back to the medium while copying.

    Raises:
        CorruptObjectError: It is not that long, or not of that digest.
        OSError: The system refused.
    """
    hasher = Hasher(parallel=False)  # the other cores copy other files
    view = memoryview(bytearray(min(size, _BLOCK) or 1))
    at = started = 0
    while at < size:
        start, stop = _data(source, at, size)
        for hole in range(at, start, _BLOCK):
            hasher.update(_ZEROS[: start - hole])
        at = start
        while at < stop:
            got = os.preadv(source, [view[: stop - at]], at)
            if got == 0:
                raise _wrong_size(digest, size, at)
            piece = view[:got]
            hasher.update(piece)
            done = 0
            while done < got:
                done += fs.pwrite(target, piece[done:], at + done)
            at += got
            if early and at - started >= _WRITEBACK:
                fs.start_writeback(target, started, at - started)
                started = at
    if os.fstat(target).st_size != size:
        fs.truncate(target, size)
    found = hasher.digest()
    if found != digest:
        raise CorruptObjectError(
            f"object {digest.hex()} is corrupt: its stored bytes have the digest {found}; "
            "see what it hits with 'cas verify'",
            digest=digest.hex(),
        )


def _data(fd: int, at: int, size: int) -> tuple[int, int]:
    """Return where the next data after `at` begins and ends; at the end, `size` twice."""
    try:
        start = os.lseek(fd, at, os.SEEK_DATA)
        return min(start, size), min(os.lseek(fd, start, os.SEEK_HOLE), size)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size, size
        if error.errno not in fs.CANNOT:
            raise
        return at, size


def _wrong_size(digest: bytes, wanted: int, found: int) -> FormatError:
    return FormatError(
        f"object {digest.hex()} has {found} bytes where a tree says {wanted}; "
        "see what it hits with 'cas verify'",
        digest=digest.hex(),
    )


def cannot_link(cause: Any) -> UnsupportedError:
    """Return the error for a destination that cannot be linked into."""
    return UnsupportedError(
        f"hardlink mode cannot be had here ({getattr(cause, 'strerror', cause)}): the destination "
        "has to be on the store's filesystem, one with hard links; use --mode auto"
    )


def cannot_clone() -> UnsupportedError:
    """Return the error for a destination that cannot share blocks with the store."""
    return UnsupportedError(
        "reflink mode cannot be had here: the destination has to be on the store's filesystem, "
        "one that shares blocks between files (XFS, btrfs); use --mode auto"
    )
