"""The names in one folder, sorted, in bounded memory however many there are."""

from __future__ import annotations

import os
import sys
from itertools import islice
from typing import TYPE_CHECKING, Final

from cas.ingest.databases import JOURNAL, WAL
from cas.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Keep = Callable[[bytes, bool], bool]
    Window = tuple[list[bytes], list[bytes]]

LISTED: Final = 32_768
"""Names that are sorted in memory; of a larger folder the disk helps."""
WINDOW: Final = 8_192
"""Names of a large folder that are taken out of the sort at a time."""
SORT_BYTES: Final = 8 << 20

_ATTEMPTS: Final = 5
_SIDES: Final = (WAL, JOURNAL)
# A zero byte sorts below any that a name can have, so the mark does not disturb the order.
_FILE: Final = b"\0f"
_FOLDER: Final = b"\0d"

_ENCODING: Final = sys.getfilesystemencoding()
_ENCODE_ERRORS: Final = sys.getfilesystemencodeerrors()


class Listing:
    """What a folder held at one moment.

    Args:
        fd: The open folder.
        marks: Names that `has_file` and `has_folder` will be asked for.

    Attributes:
        live: Names beside which there is a `-wal` or a `-journal`.

    Raises:
        OSError: The folder could not be read.
        Restless: It changed every time it was listed.
    """

    def __init__(self, fd: int, marks: frozenset[bytes] = frozenset()) -> None:
        """List the folder, again if it changes meanwhile."""
        self._marks = marks
        for _ in range(_ATTEMPTS):
            self._files: list[bytes] = []
            self._folders: list[bytes] = []
            self._spill: Spill | None = None
            self._marked: set[tuple[bytes, bool]] = set()
            self.live: set[bytes] = set()
            before = os.fstat(fd)
            self._scan(fd)
            after = os.fstat(fd)
            if (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns):
                return
            self.close()
        raise Restless

    def _scan(self, fd: int) -> None:
        encoding, errors = _ENCODING, _ENCODE_ERRORS
        files, folders = self._files, self._folders
        with os.scandir(fd) as entries:
            for entry in islice(entries, LISTED):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name.encode(encoding, errors))
                else:
                    files.append(entry.name.encode(encoding, errors))
            self._note(files, is_folder=False)
            self._note(folders, is_folder=True)
            for entry in entries:
                name = entry.name.encode(encoding, errors)
                is_folder = entry.is_dir(follow_symlinks=False)
                self._spill_one(name, is_folder=is_folder)
                self._note((name,), is_folder=is_folder)
        files.sort()
        folders.sort()

    def _spill_one(self, name: bytes, *, is_folder: bool) -> None:
        if self._spill is None:
            self._spill = Spill(SORT_BYTES)
            for known, mark in ((self._files, _FILE), (self._folders, _FOLDER)):
                for item in known:
                    self._spill.add(item + mark)
                known.clear()
        self._spill.add(name + (_FOLDER if is_folder else _FILE))

    def _note(self, names: Sequence[bytes], *, is_folder: bool) -> None:
        """Note marks and side files among names; most lists have none, which is told quickly."""
        if not names:
            return
        text = b"\0%b\0" % b"\0".join(names)
        for mark in self._marks:
            if b"\0%b\0" % mark in text:
                self._marked.add((mark, is_folder))
        for suffix in _SIDES:
            if suffix + b"\0" in text:
                self.live |= {name.removesuffix(suffix) for name in names if name.endswith(suffix)}

    def has_file(self, mark: bytes) -> bool:
        """Tell whether there is an entry of that name that is no folder."""
        return (mark, False) in self._marked

    def has_folder(self, mark: bytes) -> bool:
        """Tell whether there is a folder of that name."""
        return (mark, True) in self._marked

    def windows(self, keep: Keep | None) -> Iterator[Window]:
        """Give the names in order, part by part: what is no folder, and the folders backwards.

        Args:
            keep: Says of a name, and whether it is a folder's, whether it is wanted.
        """
        if self._spill is None:
            files, folders = self._files, self._folders
            self._files, self._folders = [], []
            yield _kept(files, folders, keep)
            return
        with self._spill as spill:
            items = iter(spill)
            while window := list(islice(items, WINDOW)):
                files = [item[:-2] for item in window if item.endswith(_FILE)]
                folders = [item[:-2] for item in window if item.endswith(_FOLDER)]
                yield _kept(files, folders, keep)

    def close(self) -> None:
        """Free the disk that a large listing takes; done also at the end of `windows`."""
        if self._spill is not None:
            self._spill.close()


class Restless(Exception):  # noqa: N818 - a fact about the folder, translated by the walk
    """The folder changed every time it was listed."""


def _kept(files: list[bytes], folders: list[bytes], keep: Keep | None) -> Window:
    if keep is not None:
        files = [name for name in files if keep(name, False)]
        folders = [name for name in folders if keep(name, True)]
    folders.reverse()
    return files, folders
