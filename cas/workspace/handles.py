"""Directories below a root, reached one component at a time and never through a link."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from cas import fs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

LIMIT = 48
"""Directories held open at most, far below any system's limit on open files."""


def scan(directory: int) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """List an open directory as it is now; a context manager, like `os.scandir`.

    Some filesystems (btrfs) show through a descriptor only what was there when it was opened or
    last rewound.
    """
    os.lseek(directory, 0, os.SEEK_SET)
    return os.scandir(directory)


class Handles:
    """Open directories of one tree, the last used ones kept open.

    Every directory is opened by its name in its parent, so that neither a link that somebody put
    into the tree nor a `..` can lead out of it. Depth costs no open files: what was closed
    meanwhile is opened again from the root.

    Args:
        root: A descriptor of the tree's root; it stays the caller's.
    """

    __slots__ = ("_open", "_root")

    def __init__(self, root: int) -> None:
        """Hold nothing but the root."""
        self._root = root
        self._open: dict[bytes, int] = {}

    def get(self, path: bytes) -> int:
        """Return a descriptor of a directory, good until the next call or `close`.

        Args:
            path: Names joined by `/`; empty for the root.

        Raises:
            OSError: It is not there, is no directory (a link counts as none), or cannot be opened.
        """
        if not path:
            return self._root
        found = self._open.pop(path, None)
        if found is not None:
            self._open[path] = found
            return found
        known = path
        below: list[bytes] = []
        at = self._root
        while known:
            known, _, name = known.rpartition(b"/")
            below.append(name)
            held = self._open.get(known)
            if held is not None:
                at = held
                break
        while below:
            name = below.pop()
            at = fs.open_dir(name, dir_fd=at)
            known = known + b"/" + name if known else name
            self._open[known] = at
            if len(self._open) > LIMIT:
                os.close(self._open.pop(next(iter(self._open))))
        return at

    def drop(self, path: bytes) -> None:
        """Close a directory and all below it, because it goes or is replaced."""
        prefix = path + b"/"
        for held in [name for name in self._open if name == path or name.startswith(prefix)]:
            os.close(self._open.pop(held))

    def close(self) -> None:
        """Close all but the root."""
        while self._open:
            os.close(self._open.popitem()[1])

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes what it holds."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close what it holds."""
        self.close()
