"""The folders of a local store: opened, made, given to the group, and made durable."""

from __future__ import annotations

import os
import threading
from typing import Final

from cas import fs
from cas.backends.staging import sweep

TMP: Final = "tmp"
GROUP_READ: Final = 0o040
GROUP_WRITE: Final = 0o060

_GROUP_DIR: Final = 0o2070


class Directories:
    """The folders below a root. All functions raise the system's own errors.

    Args:
        root: The path of the root, which exists.
        gid: A group that is given all rights, whatever the umask; None for no such group.
    """

    def __init__(self, root: str, gid: int | None) -> None:
        """Open the root."""
        self.root_fd = fs.open_dir(root, nofollow=False)
        self._gid = gid
        self._tmp_fd = -1
        self._tmp_lock = threading.Lock()
        # What this process knows to be durable.
        self._settled: set[str] = set()

    def close(self) -> None:
        """Close what is held open; may be called again."""
        for fd in (self.root_fd, self._tmp_fd):
            if fd >= 0:
                os.close(fd)
        self.root_fd = self._tmp_fd = -1

    def tmp(self) -> int:
        """Return the folder of named staging files, made and swept when first needed."""
        with self._tmp_lock:
            if self._tmp_fd < 0:
                fd = self.open(TMP, durable=False)
                sweep(fd)
                self._tmp_fd = fd
            return self._tmp_fd

    def open(self, directory: str, *, durable: bool, make: bool = True) -> int:
        """Open a folder.

        Args:
            directory: Its key; nothing for the root.
            durable: Sync its name and those of the folders above it, once in the life of this
                process: it may have been made a moment ago by another one.
            make: Make it if it does not exist.
        """
        if not directory:
            return os.dup(self.root_fd)
        if directory in self._settled or not durable:
            try:
                return fs.open_dir(directory, dir_fd=self.root_fd)
            except FileNotFoundError:
                if not make:
                    raise
                self._settled.discard(directory)
        fd = os.dup(self.root_fd)
        done = ""
        try:
            for part in directory.split("/"):
                done = f"{done}/{part}" if done else part
                parent, fd = fd, -1
                try:
                    fd = self._open_child(parent, part, make=make)
                    if durable and done not in self._settled:
                        fs.fsync_dir(parent)
                        self._settled.add(done)
                finally:
                    os.close(parent)
        except BaseException:
            if fd >= 0:
                os.close(fd)
            raise
        return fd

    def share(self, fd: int, bits: int) -> None:
        """Give the group its rights to a file, in a store that has a group."""
        share(fd, self._gid, bits)

    def _open_child(self, parent: int, name: str, *, make: bool) -> int:
        try:
            return fs.open_dir(name, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise
        try:
            fs.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            pass
        fd = fs.open_dir(name, dir_fd=parent)
        try:
            share(fd, self._gid, _GROUP_DIR)
        except BaseException:
            os.close(fd)
            raise
        return fd


def create_root(root: str, gid: int | None) -> None:
    """Make a root, and the folders above it, durably; existing ones are fine."""
    parent = os.path.dirname(root)
    if not os.path.isdir(parent):
        create_root(parent, None)
    try:
        fs.mkdir(root, 0o755)
    except FileExistsError:
        pass
    fd = fs.open_dir(root, nofollow=False)
    try:
        share(fd, gid, _GROUP_DIR)
    finally:
        os.close(fd)
    fs.fsync_dir(parent)


def share(fd: int, gid: int | None, bits: int) -> None:
    """Give a group rights to an open file or folder; do nothing where there is no group."""
    if gid is None:
        return
    st = os.fstat(fd)
    if st.st_gid != gid:
        fs.chown_group(fd, gid)
    if st.st_mode & bits != bits:
        fs.set_mode(fd, (st.st_mode & 0o7777) | bits)
