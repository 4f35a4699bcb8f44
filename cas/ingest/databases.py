"""Telling live SQLite databases, whose content is not in one file, from other files."""

from __future__ import annotations

import os
import stat
from typing import Final

from cas import fs

WAL: Final = b"-wal"
SHM: Final = b"-shm"
JOURNAL: Final = b"-journal"
_JOURNAL_MAGIC_SIZE: Final = 8
_SMALLEST_PAGE: Final = 512
"""A database has at least one page; of less SQLite would make an empty one."""


def side_files(folder: int, path: bytes, name: bytes) -> tuple[bytes, ...]:
    """Return the names of the side files of a database that others may be writing to.

    Args:
        folder: A descriptor of its folder.
        path: Its path, for SQLite.
        name: Its name, beside which there is one of a `-wal` or a `-journal`.

    Returns:
        Nothing for what is no database, or is a whole one without them.

    Raises:
        CasError: It is a database that cannot be read.
    """
    from cas.sqlite_copy import is_database, is_hot_journal  # late: few folders need SQLite

    if (_size(folder, name) or 0) < _SMALLEST_PAGE:
        return ()
    if _size(folder, name + WAL) is not None:
        sides: tuple[bytes, ...] = (name + WAL, name + SHM, name + JOURNAL)
    elif is_hot_journal(_head(folder, name + JOURNAL)):
        sides = (name + JOURNAL,)
    else:
        return ()
    return sides if is_database(path) else ()


def _size(folder: int, name: bytes) -> int | None:
    """Return the size of a regular file; of anything else nothing."""
    try:
        st = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    return st.st_size if stat.S_ISREG(st.st_mode) else None


def _head(folder: int, name: bytes) -> bytes:
    if _size(folder, name) is None:
        return b""
    try:
        fd = fs.open_read(name, folder)
    except FileNotFoundError:
        return b""
    try:
        return fs.pread(fd, _JOURNAL_MAGIC_SIZE, 0)
    finally:
        os.close(fd)
