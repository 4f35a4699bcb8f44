"""A private directory beside the destination, which becomes the destination in one rename.

The rename is the commit: before it the destination is as it was, after it whole. A staging
directory is locked while its process lives; one that is not locked was left by a crash, and the
next checkout to the same destination removes it.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from cas import fs
from cas.checkout.removal import remove_tree
from cas.errors import CasError, ConflictError, RefusedError, UnsupportedError, environment_failure
from cas.locking import try_lock_fd
from cas.workspace.handles import scan

if TYPE_CHECKING:
    from types import TracebackType

_TRIES: Final = 100
_NAME_KEPT: Final = 200
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class Stage:
    """A staging directory; a context manager that removes it unless it was put in place.

    Args:
        dest: Where it is to go. Directories above it are made if they are missing.
        occupied: A workspace may be at `dest`, to be exchanged for this.

    Attributes:
        dest: The destination with its parent's real path.
        path: The staging directory's own path.
        fd: A descriptor of the staging directory.
        in_place: Whether it is at `dest`.
        replaces_cwd: Whether the directory at `dest` is the current one.

    Entering it raises:
        ConflictError: Something other than an empty directory is at `dest`, and `occupied` is not
            set.
        UnsupportedError: `dest` is a mount point.
        EnvironmentFailure: The system refused.
    """

    __slots__ = (
        "_mode",
        "_occupied",
        "_parent",
        "_to_remove",
        "dest",
        "fd",
        "in_place",
        "path",
        "replaces_cwd",
    )

    def __init__(self, dest: str | os.PathLike[str], *, occupied: bool = False) -> None:
        """Take note; nothing is made before the block is entered."""
        whole = Path(os.path.abspath(dest))
        if not whole.name:
            raise RefusedError(f"{whole} cannot be a destination: it is the root directory")
        self.dest = whole
        self.path = whole
        self.fd = -1
        self.in_place = False
        self.replaces_cwd = False
        self._occupied = occupied
        self._parent = -1
        self._mode: int | None = None
        self._to_remove = b""

    def __enter__(self) -> Self:
        """Make and lock the directory, after removing those that a crash left."""
        whole = self.dest
        try:
            _make_directories(whole.parent)
            self.dest = Path(os.path.realpath(whole.parent)) / whole.name
            self._parent = os.open(self.dest.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._mode = self._check_dest()
            self._remove_stale()
            self._make()
        except BaseException as error:
            self._leave()
            if isinstance(error, OSError) and not isinstance(error, CasError):
                raise environment_failure(error, f"checking out into {whole}") from error
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the directory unless it was put in place."""
        self._leave()

    def _leave(self) -> None:
        try:
            if self._to_remove:
                remove_tree(self._parent, self._to_remove)
        except OSError:
            pass  # what stays is not locked from here on, and the next checkout removes it
        finally:
            for fd in (self.fd, self._parent):
                if fd >= 0:
                    os.close(fd)
            self.fd = self._parent = -1

    def _check_dest(self) -> int | None:
        """Refuse what stands in the way; return the mode of an empty directory that is there."""
        name = os.fsencode(self.dest.name)
        try:
            there = os.stat(name, dir_fd=self._parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(there.st_mode):
            raise ConflictError(
                f"{self.dest} exists and is no directory; choose another destination",
                path=str(self.dest),
            )
        if there.st_dev != os.fstat(self._parent).st_dev:
            raise UnsupportedError(
                f"{self.dest} is a mount point, which no rename can replace; "
                "check out into a directory inside it",
                path=str(self.dest),
            )
        fd = fs.open_dir(name, dir_fd=self._parent)
        try:
            with scan(fd) as listing:
                empty = next(iter(listing), None) is None
        finally:
            os.close(fd)
        if not empty and not self._occupied:
            raise ConflictError(
                f"{self.dest} is not empty; choose another destination, or use --update or "
                "--force on what a checkout made",
                path=str(self.dest),
            )
        try:
            self.replaces_cwd = os.path.samestat(there, os.stat("."))
        except FileNotFoundError:
            pass  # the current directory is gone already
        return stat.S_IMODE(there.st_mode)

    def _prefix(self) -> bytes:
        return b"." + os.fsencode(self.dest.name)[:_NAME_KEPT] + b".cas-"

    def _remove_stale(self) -> None:
        prefix = self._prefix()
        length = len(prefix) + 16
        with scan(self._parent) as listing:
            names = [os.fsencode(entry.name) for entry in listing]
        for name in names:
            if name.startswith(prefix) and len(name) == length:
                self._remove_if_left(name)

    def _remove_if_left(self, name: bytes) -> None:
        try:
            fd = fs.open_dir(name, dir_fd=self._parent)
        except OSError:
            return
        try:
            if lock_if_possible(fd):
                _remove_patiently(self._parent, name)
        except OSError:
            pass  # another removes it at the same moment, or it is another user's
        finally:
            os.close(fd)

    def _make(self) -> None:
        for _ in range(_TRIES):
            name = self._prefix() + os.urandom(8).hex().encode()
            self._to_remove = name
            fs.mkdir(name, 0o777, dir_fd=self._parent)
            try:
                fd = fs.open_dir(name, dir_fd=self._parent)
            except FileNotFoundError:
                continue
            # Between its birth and its lock, another checkout may have taken it for a stale one.
            if lock_if_possible(fd) is not False and self._is(name, fd):
                self.fd = fd
                if self._mode is None:
                    self._mode = stat.S_IMODE(os.fstat(fd).st_mode)
                fs.set_mode(fd, 0o700)
                self.path = self.dest.parent / os.fsdecode(name)
                return
            os.close(fd)
        self._to_remove = b""
        raise OSError(errno.EAGAIN, "no staging directory stays in place")

    def _is(self, name: bytes, fd: int) -> bool:
        try:
            there = os.stat(name, dir_fd=self._parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        here = os.fstat(fd)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def place(self, *, sync: bool) -> None:
        """Give the directory its name, durably if `sync` (its content must be synced before).

        Raises:
            ConflictError: Something got in the way meanwhile; it is not touched.
        """
        assert self._mode is not None
        fs.set_mode(self.fd, self._mode)
        name = self.path.name
        try:
            # Renaming a directory replaces nothing but an empty directory, and that in one step.
            fs.rename(name, self.dest.name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise ConflictError(
                    f"{self.dest} was filled by another while the checkout ran; "
                    "choose another destination",
                    path=str(self.dest),
                ) from error
            raise
        self._to_remove = b""
        self.in_place = True
        if sync:
            fs.fsync_dir(self._parent)

    def exchange(self, *, sync: bool) -> None:
        """Swap the directory with the one at the destination; the old one is the staging then.

        Called again, it swaps them back.
        """
        assert self._mode is not None
        name = os.fsencode(self.dest.name)
        other = fs.open_dir(name, dir_fd=self._parent)
        try:
            lock_if_possible(other)  # lest another checkout takes it for a stale staging directory
            fs.set_mode(self.fd, self._mode)
            self._swap(os.fsencode(self.path.name), name)
            self.in_place = not self.in_place
        except BaseException:
            os.close(other)
            raise
        os.close(self.fd)
        self.fd = other
        if sync:
            fs.fsync_dir(self._parent)

    def _swap(self, one: bytes, other: bytes) -> None:
        at = self._parent
        try:
            fs.exchange(one, other, at, at)
        except OSError as error:
            if error.errno not in fs.CANNOT:
                raise
        else:
            return
        aside = self._prefix() + os.urandom(8).hex().encode()
        fs.rename(other, aside, src_dir_fd=at, dst_dir_fd=at)
        fs.rename(one, other, src_dir_fd=at, dst_dir_fd=at)
        fs.rename(aside, one, src_dir_fd=at, dst_dir_fd=at)


def _remove_patiently(parent: int, name: bytes) -> None:
    """Remove a directory that workers of a process that was killed may be writing to still."""
    for _ in range(_TRIES):
        try:
            remove_tree(parent, name)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            time.sleep(0.005)  # they end by themselves, at once
        else:
            return


def _make_directories(path: Path) -> None:
    """Make a directory and those above it, where they are missing."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    while missing:
        try:
            fs.mkdir(missing.pop())
        except FileExistsError:
            pass  # another checkout made it, or it is a file, which opening it will say


def lock_if_possible(fd: int) -> bool | None:
    """Lock an open file or directory for this process.

    Returns:
        False if another process has it locked, None where there are no locks.
    """
    try:
        return try_lock_fd(fd)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
