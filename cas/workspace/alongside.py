"""A walk over a directory on the disk, alongside the entries that it should have."""

from __future__ import annotations

import os
import stat
import sys
from itertools import islice
from typing import TYPE_CHECKING, Final, Self

from cas.errors import FormatError
from cas.manifests import DIR, EXEC, FILE, LINK
from cas.names import MEMORY
from cas.spill import Spill
from cas.workspace.handles import Handles, scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

_LISTED: Final = 50_000
"""Names of one directory that are held in memory; a larger one is sorted through the disk."""


def join(folder: bytes, name: bytes) -> bytes:
    """Return the path of a name in a folder."""
    return folder + b"/" + name if folder else name


def kind_of(mode: int) -> str:
    """Return the type letter of a mode; empty for what no tree can hold."""
    if stat.S_ISREG(mode):
        return EXEC if mode & stat.S_IXUSR else FILE
    if stat.S_ISDIR(mode):
        return DIR
    return LINK if stat.S_ISLNK(mode) else ""


class _Frame:
    """One directory of the walk: what of it on the disk was not met among the entries yet."""

    __slots__ = ("_next", "_sorted", "path", "rest", "spill")

    def __init__(self, path: bytes, fd: int) -> None:
        self.path = path
        self.spill: Spill | None = None
        with scan(fd) as listing:
            names = (entry.name for entry in listing)
            self.rest = set(islice(names, _LISTED))
            if len(self.rest) == _LISTED:
                self.spill = Spill()
                for some in (self.rest, names):
                    for name in some:
                        self.spill.add(os.fsencode(name))
                self.rest = set()
                self._sorted = iter(self.spill)
                self._next = next(self._sorted, None)

    def before(self, name: bytes | None) -> Iterator[bytes]:
        """Of a directory sorted through the disk, yield what comes before an expected name."""
        while self._next is not None and (name is None or self._next < name):
            yield self._next
            self._next = next(self._sorted, None)
        if self._next == name:
            self._next = next(self._sorted, None)


class Alongside:
    """The walk; a context manager that closes what it holds open.

    The caller takes the expected entries in walk order, a run at a time: `enter` its folder,
    `expect` its names, look at each, and `descend` into a directory that is one.

    Args:
        root: A descriptor of the directory.

    Attributes:
        extra: Paths of what is there and was not expected: files, links, empty directories.
        missing: Paths of what was expected and is not there; of a directory, what was in it.
    """

    def __init__(self, root: int) -> None:
        """Begin at the root."""
        self._handles = Handles(root)
        self._frames = [_Frame(b"", root)]
        self._gone: bytes | None = None
        self._encoding = sys.getfilesystemencoding()
        self._errors = sys.getfilesystemencodeerrors()
        self.extra: list[bytes] = []
        self.missing: list[bytes] = []

    def enter(self, folder: bytes) -> int | None:
        """Return a descriptor of a folder, good until the next call; None if it is missing.

        Raises:
            FormatError: Nobody descended into it.
            OSError: It cannot be opened.
        """
        gone = self._gone
        if gone is not None:
            if folder == gone or folder.startswith(gone + b"/"):
                return None
            self._gone = None
        while self._frames and self._frames[-1].path != folder:
            self._leave()
        if not self._frames:
            raise FormatError(f"entries of {os.fsdecode(folder)!r} come out of order")
        return self._handles.get(folder)

    def expect(self, names: Sequence[bytes]) -> list[str]:
        """Note that the folder should have these names, and return them as the system's texts."""
        encoding, errors = self._encoding, self._errors
        texts = [name.decode(encoding, errors) for name in names]
        frame = self._frames[-1]
        if frame.spill is None:
            frame.rest.difference_update(texts)
        else:
            for name in names:
                for extra in frame.before(name):
                    self._add_extra(frame.path, extra)
        return texts

    def descend(self, path: bytes) -> None:
        """Go into a directory, whose entries come next."""
        self._frames.append(_Frame(path, self._handles.get(path)))

    def lack(self, path: bytes, *, is_dir: bool) -> None:
        """Note that something is not there."""
        self.missing.append(path)
        if is_dir:
            self._gone = path

    def replaced(self, path: bytes) -> None:
        """Note that something else is where a directory should be; what was in it is missing."""
        self._gone = path

    def lack_below(self, folder: bytes, names: Sequence[bytes]) -> None:
        """Note what was in a directory that is missing, instead of the directory itself."""
        if self.missing and self.missing[-1] == folder:
            self.missing.pop()
        self.missing += [folder + b"/" + name for name in names]

    def finish(self) -> None:
        """Look at what is left in the directories that are still open."""
        while self._frames:
            self._leave()

    def _leave(self) -> None:
        frame = self._frames.pop()
        if frame.spill is None:
            for text in frame.rest:
                self._add_extra(frame.path, os.fsencode(text))
        else:
            for name in frame.before(None):
                self._add_extra(frame.path, name)
            frame.spill.close()

    def _add_extra(self, folder: bytes, name: bytes) -> None:
        """Note something that was not expected: a file, or all that is in a directory."""
        if name == MEMORY:
            return
        stack = [join(folder, name)]
        while stack:
            path = stack.pop()
            above, _, last = path.rpartition(b"/")
            at = self._handles.get(above)
            if not stat.S_ISDIR(os.stat(last, dir_fd=at, follow_symlinks=False).st_mode):
                self.extra.append(path)
                continue
            with scan(self._handles.get(path)) as listing:
                below = [os.fsencode(entry.name) for entry in listing]
            if not below:
                self.extra.append(path)
            stack += [path + b"/" + entry for entry in below if entry != MEMORY]

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close what is open."""
        for frame in self._frames:
            if frame.spill is not None:
                frame.spill.close()
        self._handles.close()
