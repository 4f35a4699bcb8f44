"""Space set aside so that a store on a full disk can still be cleaned.

Removing a name takes a log record, and a record takes a block or two. The reserve is a file that
takes up real blocks and is cut short, piece by piece, when they are needed.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from cas import fs

NAME: Final = "reserve"
SIZE: Final = 1 << 20
STEP: Final = 64 << 10

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def allocate(fd: int) -> None:
    """Bring an open file to the full size of the reserve.

    It is done step by step, since btrfs frees what it gave at once only at once.
    """
    for size in range(STEP, SIZE + STEP, STEP):
        fs.allocate(fd, size)


def release(root_fd: int, steps: int) -> int:
    """Cut the reserve by up to `steps` pieces of 64 KiB; return the bytes that gave."""
    try:
        fd = fs.open_write(NAME, dir_fd=root_fd)
    except FileNotFoundError:
        return 0
    try:
        size = os.fstat(fd).st_size
        left = max(0, size - steps * STEP)
        if left < size:
            fs.truncate(fd, left)
            # Blocks are given out again only after their release is committed, which on btrfs
            # syncing the file alone does not do.
            fs.sync_filesystem(fd)
        return size - left
    finally:
        os.close(fd)


def check(root_fd: int) -> str:
    """Say what is wrong with the reserve, or nothing: it holds zeros, and is cut in whole steps."""
    try:
        fd = fs.open_read(NAME, dir_fd=root_fd)
    except FileNotFoundError:
        return "it is not there; the next add makes it anew"
    try:
        st = os.fstat(fd)
        size = st.st_size
        odd = not stat.S_ISREG(st.st_mode) or size > SIZE or size % STEP
        if odd or fs.pread(fd, size, 0).strip(b"\0"):
            return "it does not hold what was set aside; delete it, and the next add makes it anew"
        return ""
    finally:
        os.close(fd)


def refill(root_fd: int) -> bool:
    """Bring the reserve to its full size again; False if the disk has no room for it."""
    fd = fs.open_write(NAME, dir_fd=root_fd)
    try:
        size = os.fstat(fd).st_size
        if size >= SIZE:
            return True
        try:
            allocate(fd)
            fs.fsync(fd)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            fs.truncate(fd, size)
            return False
        return True
    finally:
        os.close(fd)
