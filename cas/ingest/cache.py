"""The stat cache of a store: a stat index for each source that was added lately.

Losing it costs time and nothing else, so whatever is wrong with it is passed over in silence. An
index is replaced whole, after what it speaks of is durable.
"""

from __future__ import annotations

import os
import stat
import time
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from cas import fs
from cas.digest import raw_hash
from cas.statindex import StatIndexReader, StatIndexWriter

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from cas.statindex import End, Run

KEPT: Final = 64
"""Sources that are remembered, at most."""

_BUFFER: Final = 1 << 18
_LITTER_NS: Final = 24 * 3600 * 10**9
_TEMPORARY: Final = "."
_GROUP_WRITE: Final = 0o020


class StatCache:
    """What is known about one source, old and new; a context manager that closes both.

    The new index is begun with the first thing that it says differently: where nothing changed, the
    old one stays, and writing costs nothing.

    Args:
        folder: The store's folder of stat indexes, made if it is not there; None for no cache.
        source: The source's absolute path.

    Attributes:
        old: What was known; None if nothing was.
    """

    def __init__(self, folder: Path | None, source: bytes) -> None:
        """Open the old index."""
        self._name = raw_hash(source)[:16].hex()
        self._folder = -1
        self._old_fd = -1
        self._new_file: BinaryIO | None = None
        self._writer: StatIndexWriter | None = None
        self._temporary = ""
        self._same = 0  # how many of the first items of the old index are in the new one
        self._broken = False
        self.old: StatIndexReader | None = None
        if folder is None:
            return
        try:
            self._folder = _open_folder(folder)
            self._open_old()
        except OSError:
            pass
        except BaseException:
            self.close()
            raise

    def _open_old(self) -> None:
        fd = fs.open_read(self._name, self._folder)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            return
        self._old_fd = fd
        self.old = StatIndexReader(_Source(fd))

    # --- the new index -------------------------------------------------------------------------

    def keep(self, number: int, item: Run | End) -> None:
        """Say what the old index says.

        Args:
            number: Where it is there, counted from 1.
            item: The run or end.
        """
        if self._writer is None and number == self._same + 1:
            self._same = number
        else:
            self.add(item)

    def add(self, item: Run | End) -> None:
        """Say something else."""
        if self._writer is None:
            self._begin()
        if self._writer is not None:
            self._writer.append(item)

    def _begin(self) -> None:
        """Begin the new index, with what it has in common with the beginning of the old one."""
        if self._broken or self._folder < 0:
            return
        try:
            fd = fs.open_tmpfile(self._folder) if fs.can_link_fd() else None
            if fd is None:
                self._temporary = self._temporary_name()
                fd = fs.create_excl(self._temporary, 0o666, self._folder)
            self._new_file = os.fdopen(fd, "wb", _BUFFER)
            if os.fstat(self._folder).st_mode & _GROUP_WRITE:
                fs.set_mode(fd, 0o664)
        except OSError:
            self._broken = True
            return
        self._writer = StatIndexWriter(self)
        if self._same:
            for item in islice(StatIndexReader(_Source(self._old_fd)).items(), self._same):
                self._writer.append(item)

    def _temporary_name(self) -> str:
        return f"{_TEMPORARY}{self._name}.{os.urandom(8).hex()}"

    def write(self, data: bytes) -> None:
        """Take bytes of the new index; what the disk does not take ends it, quietly."""
        if self._broken or self._new_file is None:
            return
        try:
            self._new_file.write(data)
        except OSError:
            self._broken = True

    def begin_again(self) -> None:
        """Forget what was known, and what was said."""
        self._drop_new()
        self.old = None
        self._same = 0
        self._broken = False

    # --- the end -------------------------------------------------------------------------------

    def save(self) -> None:
        """Put the new index in the place of the old one, and forget the sources used least lately.

        Call it when everything that the index speaks of is durable.
        """
        try:
            if self._folder < 0:
                return
            if self._writer is None and self.old is not None and not self.old.damaged:
                fs.touch(self._name, self._folder)
                return
            if self._writer is None:
                self._begin()
            if self._writer is not None and self._new_file is not None:
                self._writer.finish()
                self._new_file.flush()
                if not self._broken:
                    self._place(self._new_file.fileno())
                    _prune(self._folder)
        except OSError:
            pass
        finally:
            self.close()

    def _place(self, fd: int) -> None:
        if not self._temporary:
            self._temporary = self._temporary_name()
            fs.link_fd(fd, self._temporary, self._folder)
        fs.rename(self._temporary, self._name, self._folder, self._folder)
        self._temporary = ""

    def close(self) -> None:
        """Close everything, and drop a new index that was not saved; may be called again."""
        self.old = None
        old, self._old_fd = self._old_fd, -1
        if old >= 0:
            os.close(old)
        try:
            self._drop_new()
        finally:
            folder, self._folder = self._folder, -1
            if folder >= 0:
                os.close(folder)

    def _drop_new(self) -> None:
        self._writer = None
        self._broken = True
        file, self._new_file = self._new_file, None
        temporary, self._temporary = self._temporary, ""
        try:
            if file is not None:
                file.close()
            if temporary:
                fs.unlink(temporary, self._folder)
        except OSError:
            pass

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


class _Source:
    """A file, from its beginning, of which a part that cannot be read counts as cut off."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._at = 0

    def read(self, size: int) -> bytes:
        try:
            data = fs.pread(self._fd, size, self._at)
        except OSError:
            return b""
        self._at += len(data)
        return data


def _open_folder(folder: Path) -> int:
    try:
        return fs.open_dir(folder)
    except FileNotFoundError:
        for path in (folder.parent, folder):
            try:
                fs.mkdir(path)
                # A store that a group shares gives the group its rights, whatever the umask.
                fs.set_mode(path, stat.S_IMODE(os.stat(path.parent).st_mode))
            except FileExistsError:
                pass
        return fs.open_dir(folder)


def _prune(folder: int) -> None:
    """Remove the indexes used least lately, and what killed processes left."""
    kept: list[tuple[int, str]] = []
    litter: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            used = entry.stat(follow_symlinks=False).st_mtime_ns
            if not entry.name.startswith(_TEMPORARY):
                kept.append((used, entry.name))
            elif used < time.time_ns() - _LITTER_NS:
                litter.append(entry.name)
    kept.sort(reverse=True)
    for name in (*litter, *(name for _, name in kept[KEPT:])):
        fs.unlink(name, folder)
