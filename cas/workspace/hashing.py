"""Reading files below a directory and comparing their digests, here or in a worker."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from cas import fs
from cas.digest import hash_fd, raw_hash
from cas.errors import ConflictError
from cas.workspace.handles import Handles

if TYPE_CHECKING:
    from collections.abc import Callable

SAME = 0
CHANGED = 1
UNREADABLE = 2

_SMALL = 1 << 17


class Hasher:
    """Compares files with the digests that they should have.

    Args:
        root: A descriptor of the directory that holds them.
    """

    def __init__(self, root: int) -> None:
        """Hold no directory open yet."""
        self._handles = Handles(root)

    def __call__(self, tasks: list[Any]) -> list[Any]:
        """Compare files.

        Args:
            tasks: Lists of a folder's path and a list of (name, size, digest).

        Returns:
            For each folder a list of one answer a file: `SAME`, `CHANGED`, or for `UNREADABLE` a
            text that says why.
        """
        return [self._compare(folder, files) for folder, files in tasks]

    def close(self) -> None:
        """Close the directories."""
        self._handles.close()

    def _compare(self, folder: bytes, files: list[Any]) -> list[Any]:
        answers: list[Any] = []
        for name, size, digest in files:
            try:
                fd = fs.open_read(name, dir_fd=self._handles.get(folder))
                try:
                    same = matches(fd, size, digest)
                finally:
                    os.close(fd)
            except OSError as error:
                answers.append(error.strerror or str(error))
            else:
                answers.append(SAME if same else CHANGED)
        return answers


def matches(fd: int, size: int, digest: bytes) -> bool:
    """Tell, by reading it, whether an open file is a regular one with this size and digest."""
    st = os.fstat(fd)
    if st.st_size != size or not stat.S_ISREG(st.st_mode):
        return False
    if size > _SMALL:
        return hash_fd(fd) == digest
    content = fs.pread(fd, size + 1, 0)
    return len(content) == size and raw_hash(content) == digest


def serve(init: list[Any]) -> Callable[[list[Any]], list[Any]]:
    """Return a hasher for a worker process.

    Args:
        init: The directory's path as bytes, its device and its inode.

    Raises:
        ConflictError: Another directory lies there now.
    """
    return Hasher(open_same(*init))


def open_same(path: bytes, device: int, inode: int) -> int:
    """Open a directory that another process has open.

    Raises:
        ConflictError: Another directory lies there now.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    st = os.fstat(fd)
    if (st.st_dev, st.st_ino) != (device, inode):
        os.close(fd)
        raise ConflictError(
            f"{os.fsdecode(path)} was replaced by another directory meanwhile; try again"
        )
    return fd


def same_as(path: str | os.PathLike[str], fd: int) -> list[Any]:
    """Return what `open_same` in another process needs to open the directory open as `fd`."""
    st = os.fstat(fd)
    return [os.fsencode(path), st.st_dev, st.st_ino]
