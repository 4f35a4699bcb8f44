"""A folder for files on their way into a store that need a name, such as SQLite databases."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cas import fs
from cas.locking import try_lock_fd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.catalogue.context import Context

_PARENT = "cache/scratch"


@contextmanager
def scratch(context: Context) -> Iterator[Path]:
    """Make a folder in the store's own filesystem and remove it with all that is in it.

    It is locked while it is in use. What a killed process left is removed by the next one.

    Raises:
        OSError: It cannot be made.
    """
    local = context.backend.local
    if local is None:
        with tempfile.TemporaryDirectory(prefix="cas-") as folder:
            yield Path(folder)
        return
    local.make_directories([_PARENT])
    parent = local.root / _PARENT
    _sweep(parent)
    path, fd = _make(parent)
    try:
        yield path
    finally:
        os.close(fd)
        shutil.rmtree(path, ignore_errors=True)


def _make(parent: Path) -> tuple[Path, int]:
    """Make a folder and lock it; return its path and the descriptor that holds the lock."""
    while True:
        path = parent / os.urandom(16).hex()
        fs.mkdir(path, 0o700)
        try:
            fd = fs.open_dir(path)
        except FileNotFoundError:
            continue  # swept by another process before it was locked
        if try_lock_fd(fd) and os.fstat(fd).st_nlink:
            return path, fd
        os.close(fd)


def _sweep(parent: Path) -> None:
    """Remove the folders whose process is gone."""
    for entry in os.scandir(parent):
        try:
            fd = fs.open_dir(entry.path)
        except OSError:
            continue  # gone, or another user's
        try:
            if try_lock_fd(fd):
                shutil.rmtree(entry.path, ignore_errors=True)
        finally:
            os.close(fd)
