"""A folder for files on their way into a store that need a name, such as SQLite databases."""

from __future__ import annotations

import contextlib
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cas import fs
from cas.checkout.removal import remove_tree
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
    parent = fs.open_dir(local.root / _PARENT)
    try:
        _sweep(parent)
        name, fd = _make(parent)
        try:
            yield local.root / _PARENT / name
        finally:
            os.close(fd)
            with contextlib.suppress(OSError):
                remove_tree(parent, name.encode())
    finally:
        os.close(parent)


def _make(parent: int) -> tuple[str, int]:
    """Make a folder and lock it; return its name and the descriptor that holds the lock."""
    while True:
        name = os.urandom(16).hex()
        fs.mkdir(name, 0o700, dir_fd=parent)
        try:
            fd = fs.open_dir(name, dir_fd=parent)
        except FileNotFoundError:
            continue  # swept by another process before it was locked
        if try_lock_fd(fd) and os.fstat(fd).st_nlink:
            return name, fd
        os.close(fd)


def _sweep(parent: int) -> None:
    """Remove the folders whose process is gone."""
    for name in os.listdir(parent):
        try:
            fd = fs.open_dir(name, dir_fd=parent)
        except OSError:
            continue  # gone, or another user's
        try:
            if try_lock_fd(fd):
                remove_tree(parent, name.encode())
        except OSError:
            continue  # another sweeper was faster
        finally:
            os.close(fd)
