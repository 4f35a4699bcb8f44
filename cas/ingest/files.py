"""Taking in one entry by itself: links, large files, databases, and what would not stand still."""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from cas import fs
from cas.digest import raw_hash
from cas.errors import PurgedError, SourceChangedError
from cas.ingest.source import changing, failed, join, kept_out, shown
from cas.manifests import EXEC, FILE, LINK
from cas.objects import BLOB
from cas.statindex import COARSE_NS, FIELDS, settles_at

if TYPE_CHECKING:
    from cas.digest import Digest
    from cas.ingest.walk import Chunk
    from cas.objects import ObjectWriter
    from cas.objects.large import Clone
    from cas.workspace.handles import Handles

_ATTEMPTS: Final = 5
_FIRST_PAUSE: Final = 0.01
_MAX_LINK: Final = 1 << 16
_NO_STAT: Final = [0] * FIELDS


class Restless(Exception):  # noqa: N818 - a fact about the file, translated where it is tried again
    """The entry changed between two looks at it."""


class Begun(NamedTuple):
    """A large file whose blocks are shared already and whose content is not hashed yet."""

    chunk: Chunk
    i: int
    fd: int
    st: os.stat_result
    clone: Clone


class Files:
    """Takes entries of a source into a store, one at a time.

    Args:
        writer: Where to.
        threshold: Files of at least so many bytes are large.
        handles: The folders below the root.
        where: The source as messages and SQLite name it.
    """

    def __init__(
        self, writer: ObjectWriter, threshold: int, handles: Handles, where: bytes
    ) -> None:
        """Take nothing yet."""
        self._writer = writer
        self._threshold = threshold
        self._handles = handles
        self._where = where

    def take(self, chunk: Chunk, i: int) -> None:
        """Take an entry as it is now, and put what was found into its chunk.

        Raises:
            SourceChangedError: It vanished, or changed every time it was read.
            UnsupportedError: It is of a kind that cannot be stored.
            EnvironmentFailure: It cannot be read, or the store cannot be written.
        """
        name = chunk.names[i]
        path = join(chunk.folder, name)
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_FIRST_PAUSE * 2**attempt)
            try:
                st = self._steady(chunk.folder, name)
                if stat.S_ISLNK(st.st_mode):
                    kind, size, digest = self._link(chunk.folder, name)
                elif stat.S_ISREG(st.st_mode):
                    kind = EXEC if st.st_mode & stat.S_IXUSR else FILE
                    size = st.st_size
                    digest = self._file(chunk.folder, name, st)
                else:
                    raise changing(self._where, path)
            except OSError as error:
                raise failed(error, self._where, path) from error
            except PurgedError as error:
                raise self._kept_out(error, path) from None
            except Restless:
                continue
            _found(chunk, i, st, kind, size, digest)
            return
        raise changing(self._where, path)

    def begin(self, chunk: Chunk, i: int) -> Begun | None:
        """Begin to take a large file by sharing its blocks; None where it has to be `take`n.

        Raises:
            EnvironmentFailure: The store cannot be written.
        """
        folder, name = chunk.folder, chunk.names[i]
        fd = -1
        clone = None
        try:
            st = self._steady(folder, name)
            if stat.S_ISREG(st.st_mode) and st.st_size >= self._threshold:
                fd = fs.open_read(name, self._handles.get(folder))
                if fs.stat_key(os.fstat(fd)) == fs.stat_key(st):
                    path = shown(self._where, join(folder, name))
                    clone = self._writer.clone_large(fd, st.st_size, source=path)
        except (OSError, Restless, SourceChangedError):
            return None  # `take` finds the words for it, or that it has passed
        finally:
            if clone is None and fd >= 0:
                os.close(fd)
        return None if clone is None else Begun(chunk, i, fd, st, clone)

    def end(self, begun: Begun, digest: Digest) -> None:
        """Store what was begun, and put what was found into its chunk.

        Raises:
            SourceChangedError: The file changed meanwhile.
            EnvironmentFailure: The store cannot be written.
        """
        try:
            self._writer.put_clone(begun.clone, digest)
        except PurgedError as error:
            path = join(begun.chunk.folder, begun.chunk.names[begun.i])
            raise self._kept_out(error, path) from None
        st = begun.st
        kind = EXEC if st.st_mode & stat.S_IXUSR else FILE
        _found(begun.chunk, begun.i, st, kind, st.st_size, digest)

    def take_database(self, chunk: Chunk, i: int) -> None:
        """Take a database that others may be writing to, through SQLite.

        Its stat is not remembered: it says nothing of what a `-wal` beside it holds.

        Raises:
            CasError: As `copy_live`; or the store cannot be written.
        """
        import tempfile  # late: start-up time, and few folders need SQLite

        from cas.sqlite_copy import copy_live

        path = os.path.join(self._where, join(chunk.folder, chunk.names[i]))
        with tempfile.TemporaryDirectory(prefix="cas-") as folder:
            copy = os.path.join(os.fsencode(folder), b"copy")
            copy_live(path, copy)
            fd = fs.open_read(copy)
            try:
                size = os.fstat(fd).st_size
                chunk.sizes[i] = size
                chunk.stats[FIELDS * i : FIELDS * (i + 1)] = _NO_STAT
                chunk.digests[i] = self._content(fd, size, os.fsdecode(path))
            except OSError as error:
                raise failed(error, path, b"") from error
            finally:
                os.close(fd)

    def _kept_out(self, error: PurgedError, path: bytes) -> PurgedError:
        digest = bytes.fromhex(error.facts["digest"])
        return kept_out(error.facts["told"], digest, self._where, path)

    def _steady(self, folder: bytes, name: bytes) -> os.stat_result:
        """Return an entry's stat when it is old enough for the next change to show in it."""
        at_ns = time.time_ns()
        st = os.stat(name, dir_fd=self._handles.get(folder), follow_symlinks=False)
        pause = pause_ns([st.st_ctime_ns], at_ns)
        if pause:
            time.sleep(pause / 1e9)
            now = os.stat(name, dir_fd=self._handles.get(folder), follow_symlinks=False)
            if fs.stat_key(now) != fs.stat_key(st):
                raise Restless
        return st

    def _link(self, folder: bytes, name: bytes) -> tuple[str, int, bytes]:
        try:
            target = fs.readlink(name, self._handles.get(folder))
        except OSError as error:
            raise Restless from error
        return LINK, len(target), self._writer.put(target, BLOB)

    def _file(self, folder: bytes, name: bytes, st: os.stat_result) -> bytes:
        fd = fs.open_read(name, self._handles.get(folder))
        try:
            if fs.stat_key(os.fstat(fd)) != fs.stat_key(st):
                raise Restless
            digest = self._content(fd, st.st_size, shown(self._where, join(folder, name)), since=st)
            if fs.stat_key(os.fstat(fd)) != fs.stat_key(st):
                raise Restless
        finally:
            os.close(fd)
        return digest

    def _content(
        self, fd: int, size: int, name: str, *, since: os.stat_result | None = None
    ) -> bytes:
        """Store the content of an open file; Restless if it is not what it was `since`."""
        if size >= self._threshold:
            try:
                return self._writer.put_large(fd, size, source=name)
            except SourceChangedError:
                raise Restless from None
        content = fs.pread(fd, size + 1, 0)
        if len(content) != size:
            raise Restless
        if since is not None and fs.stat_key(os.fstat(fd)) != fs.stat_key(since):
            raise Restless  # before it is stored: nothing would ever name it
        return self._writer.put(content, BLOB, raw_hash(content))


def _found(chunk: Chunk, i: int, st: os.stat_result, kind: str, size: int, digest: bytes) -> None:
    """Put into a chunk what an entry turned out to be."""
    found = [st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_dev, st.st_ino]
    chunk.kinds[i] = kind
    chunk.sizes[i] = size
    # Of a link whose size is not what it holds, as in /proc, the index could not tell.
    chunk.stats[FIELDS * i : FIELDS * (i + 1)] = found if size == st.st_size else _NO_STAT
    chunk.digests[i] = digest


def pause_ns(ctimes: list[int], at_ns: int) -> int:
    """Return how long to wait until the stats of some files will show any further change.

    A file that was changed in this very tick of the clock keeps its stat when it is changed again.
    What claims to be changed in the future is not waited for, and the index will not trust it.

    Args:
        ctimes: Of the files.
        at_ns: The clock before they were taken.
    """
    if max(ctimes, default=0) + COARSE_NS <= at_ns:
        return 0
    pauses = [settles_at(0, ctime) - at_ns for ctime in ctimes if ctime <= at_ns]
    return max(0, max(pauses, default=0))
