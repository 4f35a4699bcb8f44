"""Shared and exclusive locks on files, for processes on one machine.

A lock belongs to an open file and dies with its process, so none is ever stale. The only import of
portalocker.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cas.errors import BusyError, UnsupportedError, environment_failure

if TYPE_CHECKING:
    from collections.abc import Iterator

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_FIRST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.1
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


@contextmanager
def shared(path: Path, timeout: float | None, *, blocking: bool = True) -> Iterator[None]:
    """Hold a lock that others may hold as well, but not together with an exclusive one.

    The file is made if it does not exist and is never removed.

    Args:
        path: The lock file.
        timeout: Seconds to wait; None waits without end.
        blocking: False does not wait at all.

    Raises:
        BusyError: The lock was not had in time.
        UnsupportedError: The filesystem has no locks.
        EnvironmentFailure: The file cannot be opened.
    """
    fd = _acquire(path, timeout if blocking else 0, share=True)
    try:
        yield
    finally:
        os.close(fd)


@contextmanager
def exclusive(path: Path, timeout: float | None, *, blocking: bool = True) -> Iterator[None]:
    """Hold a lock that nobody else holds, shared or exclusive; otherwise as `shared`."""
    fd = _acquire(path, timeout if blocking else 0, share=False)
    try:
        yield
    finally:
        os.close(fd)


def try_lock_fd(fd: int, *, share: bool = False) -> bool:
    """Lock an open file or directory if that is possible at once.

    The lock is held until every duplicate of `fd` is closed.

    Returns:
        False if someone else holds a lock that stands against it.

    Raises:
        OSError: The filesystem has no locks.
    """
    import portalocker  # late: start-up time

    flags = portalocker.LockFlags
    try:
        portalocker.lock(fd, (flags.SHARED if share else flags.EXCLUSIVE) | flags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        return False
    except portalocker.LockException as error:
        # It wraps what the system said, which alone tells a caller what to do.
        raise error.__cause__ or error from None
    return True


def _acquire(path: Path, timeout: float | None, *, share: bool) -> int:
    """Return a descriptor that holds the lock."""
    name = os.fsdecode(path)
    fd = _open(path, name)
    try:
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_PAUSE
        while not try_lock_fd(fd, share=share):
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise BusyError(
                        f"lock {name} is held by another process; try again when it is done",
                        path=name,
                        waited=timeout,
                    )
                pause = min(pause, left)
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
    except OSError as error:
        os.close(fd)
        if isinstance(error, BusyError):
            raise
        if error.errno in _NO_LOCKS:
            raise UnsupportedError(
                f"the filesystem of {name} has no file locks; use another one for the store",
                path=name,
            ) from error
        raise environment_failure(error, f"locking {name}") from error
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open(path: Path, name: str) -> int:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
    try:
        try:
            # Networked filesystems give exclusive locks only to those who may write.
            return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
                raise
        return os.open(path, os.O_RDONLY | flags)
    except OSError as error:
        raise environment_failure(error, f"opening lock {name}") from error
