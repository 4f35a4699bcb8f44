"""A power cut, on a directory of a disk that keeps only what was synced.

    with Disk(folder) as disk:
        with faults.crash(7):
            operation()
        disk.cut()
    ...  # what the next process finds in the folder

The model is harsher than real filesystems, which often write more, and in order: a name survives
if its directory was synced after it was given, content if the file was synced after it was
written, and a file that began without a name if it was synced after it got one. Only what goes
through `cas.fs` is seen. It is for small folders: every sync reads what it syncs.
"""

from __future__ import annotations

import functools
import os
import shutil
import stat
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from cas import fs

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

Choose = "Callable[[], bool]"
"""Says of one thing that was not synced whether the disk had written it all the same."""

_MAKERS = ("create_excl", "open_tmpfile", "mkdir", "symlink")
_SYNCS = ("fsync", "fsync_dir", "sync_filesystem")


@dataclass(slots=True, eq=False)
class _Node:
    """One inode, from its creation on; another one may get its number later."""

    mode: int
    named: bool = True
    """Whether the medium knows that the file has a name."""
    content: bytes | None = None
    """Of a file or symlink, as the medium has it; None was never synced."""
    names: dict[bytes, _Node] = field(default_factory=dict)
    """Of a directory, as the medium has them."""


class Disk:
    """Watches a folder. A context manager, active inside its block.

    What is there at the beginning is taken for durable.

    Args:
        root: The folder.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Prepare to watch."""
        self._root = os.fsencode(root)
        self._nodes: dict[tuple[int, int], _Node] = {}
        self._lock = threading.RLock()
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> Self:
        """Begin."""
        self._restart()
        for name in (*_MAKERS, *_SYNCS):
            self._real[name] = getattr(fs, name)
        for name in _MAKERS:
            setattr(fs, name, self._watched_maker(name, self._real[name]))
        for name in _SYNCS:
            setattr(fs, name, self._watched_sync(name, self._real[name]))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End."""
        for name, real in self._real.items():
            setattr(fs, name, real)

    def cut(self, choose: Callable[[], bool] | None = None) -> None:
        """Turn the folder into what the medium has.

        Args:
            choose: Says of each thing that was not synced whether it got to the medium all the
                same; without it nothing did.
        """
        with self._lock:
            chosen = choose if choose is not None else _nothing
            built = self._root + b".after-the-cut"
            self._build(self._node(os.stat(self._root)), self._root, built, chosen)
            _remove(self._root)
            os.rename(built, self._root)
            self._restart()

    # --- watching ---

    def _watched_maker(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                made = real(*args, **kwargs)
                if name in ("create_excl", "open_tmpfile"):
                    if made is not None:
                        self._born(os.fstat(made), named=name == "create_excl")
                    return made
                path = args[1] if name == "symlink" else args[0]
                st = os.stat(path, dir_fd=kwargs.get("dir_fd"), follow_symlinks=False)
                self._born(st, named=True)
                return made

        return call

    def _watched_sync(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(target: Any) -> None:
            with self._lock:
                real(target)
                if name == "sync_filesystem":
                    self._settle_all(self._root)
                elif isinstance(target, int):
                    self._settle(target)
                else:
                    fd = os.open(target, os.O_RDONLY)
                    try:
                        self._settle(fd)
                    finally:
                        os.close(fd)

        return call

    def _born(self, st: os.stat_result, *, named: bool) -> None:
        self._nodes[st.st_dev, st.st_ino] = _Node(st.st_mode, named)

    def _node(self, st: os.stat_result) -> _Node:
        node = self._nodes.get((st.st_dev, st.st_ino))
        if node is None or stat.S_IFMT(node.mode) != stat.S_IFMT(st.st_mode):
            node = self._nodes[st.st_dev, st.st_ino] = _Node(st.st_mode)
        return node

    def _settle(self, fd: int) -> None:
        """Note that an open file or directory is on the medium as it is now."""
        st = os.fstat(fd)
        node = self._node(st)
        node.mode = st.st_mode
        if stat.S_ISDIR(st.st_mode):
            node.names = {}
            for name in map(os.fsencode, os.listdir(fd)):
                child = self._node(os.stat(name, dir_fd=fd, follow_symlinks=False))
                node.names[name] = child
                if stat.S_ISLNK(child.mode):  # it has no descriptor: it is written with its name
                    child.content = os.readlink(name, dir_fd=fd)
        else:
            node.named = st.st_nlink > 0
            node.content = _content(fd, st.st_size)

    def _settle_all(self, path: bytes) -> None:
        st = os.lstat(path)
        node = self._node(st)
        if not (stat.S_ISDIR(st.st_mode) or stat.S_ISREG(st.st_mode)):
            return
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            self._settle(fd)
        finally:
            os.close(fd)
        if stat.S_ISDIR(st.st_mode):
            for name in node.names:
                self._settle_all(os.path.join(path, name))

    def _restart(self) -> None:
        self._nodes.clear()
        self._settle_all(self._root)

    # --- cutting ---

    def _build(
        self, node: _Node, now: bytes | None, target: bytes, choose: Callable[[], bool]
    ) -> None:
        """Write what the medium has of a node.

        Args:
            node: The file, symlink or directory.
            now: Where it lies at the moment of the cut, if that is known and still so.
            target: Where to write it.
            choose: As for `cut`.
        """
        if stat.S_ISDIR(node.mode):
            os.mkdir(target)
            for name, child, path in self._survivors(node, now, choose):
                self._build(child, path, os.path.join(target, name), choose)
            os.chmod(target, stat.S_IMODE(node.mode))
            return
        content = node.content
        if stat.S_ISLNK(node.mode):
            os.symlink(content if content is not None else os.readlink(now or b""), target)
            return
        if now is not None and (content is None or choose()):
            with open(now, "rb") as file:
                current = file.read()
            if choose():
                content = current
            elif content is None:
                content = current[: len(current) // 2] if choose() else b""
        with open(target, "wb") as file:
            file.write(content or b"")
        os.chmod(target, stat.S_IMODE(node.mode))

    def _survivors(
        self, node: _Node, now: bytes | None, choose: Callable[[], bool]
    ) -> list[tuple[bytes, _Node, bytes | None]]:
        """Return names that are on the medium, what they stand for, and where that lies now."""
        current: dict[bytes, _Node] = {}
        if now is not None:
            for name in os.listdir(now):
                current[name] = self._node(os.lstat(os.path.join(now, name)))
        found: list[tuple[bytes, _Node, bytes | None]] = []
        for name in sorted({*node.names, *current}):
            child = node.names.get(name)
            other = current.get(name)
            if other is not child and choose():
                child = other
            if child is None or not (child.named or choose()):
                continue
            path = os.path.join(now, name) if now is not None and child is other else None
            found.append((name, child, path))
        return found


def _content(fd: int, size: int) -> bytes:
    # By a descriptor of its own: the caller's may be for writing only.
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.pread(again, size, 0)
    finally:
        os.close(again)


def _nothing() -> bool:
    return False


def _remove(path: bytes) -> None:
    """Remove a folder with everything in it, read-only or not."""
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path)
