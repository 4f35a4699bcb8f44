"""Removing a directory with everything in it, without following a link out of it."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

from cas import fs
from cas.workspace.handles import Handles, scan

if TYPE_CHECKING:
    from collections.abc import Callable

_AT_ONCE = 4096


def remove_tree(parent: int, name: bytes) -> None:
    """Remove a directory and everything in it.

    Args:
        parent: A descriptor of the directory that holds it.
        name: Its name there.

    Raises:
        OSError: Something in it cannot be removed; what was removed before is gone.
    """
    root = fs.open_dir(name, dir_fd=parent)
    try:
        empty_tree(root)
    finally:
        os.close(root)
    fs.rmdir(name, dir_fd=parent)


def empty_tree(root: int) -> None:
    """Remove everything in an open directory.

    Raises:
        OSError: Something in it cannot be removed.
    """
    with Handles(root) as handles:
        stack = [b""]
        while stack:
            path = stack[-1]
            below = _remove_files(handles.get(path))
            if below:
                stack += [path + b"/" + name if path else name for name in below]
                continue
            stack.pop()
            if path:
                folder, _, name = path.rpartition(b"/")
                handles.drop(path)
                _insist(fs.rmdir, name, handles.get(folder))


def _remove_files(fd: int) -> list[bytes]:
    """Remove what is no directory, and return some of the directories."""
    below: list[bytes] = []
    while not below:
        with scan(fd) as listing:
            some = [
                (os.fsencode(entry.name), entry.is_dir(follow_symlinks=False))
                for entry in islice(listing, _AT_ONCE)
            ]
        if not some:
            break
        for name, is_dir in some:
            if is_dir:
                below.append(name)
            else:
                _insist(fs.unlink, name, fd)
    return below


def _insist(remove: Callable[[bytes, int], None], name: bytes, directory: int) -> None:
    """Remove a name, making its directory writable if it is not."""
    try:
        remove(name, directory)
    except PermissionError:
        fs.set_mode(directory, 0o700)
        remove(name, directory)
