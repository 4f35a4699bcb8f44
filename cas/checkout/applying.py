"""Changing a workspace's files to another tree's, leaving alone what a person changed.

Every path is decided by what is on the disk now, compared by content with what the index says was
there and with what is wanted. So it does not matter how often an update was cut short before: what
it had done already looks like what is wanted, and is left.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from cas import fs
from cas.checkout.removal import remove_tree
from cas.digest import DIGEST_SIZE, hash_bytes
from cas.manifests import DIR, EXEC, FILE, LINK
from cas.workspace.alongside import join, kind_of
from cas.workspace.handles import Handles
from cas.workspace.hashing import matches
from cas.workspace.runs import MAX_RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cas.checkout.merging import Key, Known, Pair
    from cas.checkout.writers import Writers
    from cas.manifests import Entry
    from cas.progress import Meter
    from cas.workspace.runs import Run

_CHUNK_FILES: Final = 4096
_CHUNK_BYTES: Final = 1 << 30

_NOT_A_DIRECTORY: Final = frozenset({errno.ENOTDIR, errno.ELOOP})


class _Blocked(Exception):  # noqa: N818 - no error: a person's file is in the way
    """Something that is no directory is where a directory should be."""


class Applier:
    """Carries out an update, pair by pair.

    Args:
        root: A descriptor of the workspace.
        incoming: A descriptor of an empty folder of the same filesystem, for files on their way.
        writers: Writes below `incoming`.
        meter: Counts what was written.
        exec_bits: Whether the filesystem keeps executable bits.
        sync: Whether files must be durable before they replace others.

    Attributes:
        kept: Paths that a person had changed and that were left as they are.
    """

    def __init__(
        self,
        root: int,
        incoming: int,
        writers: Writers,
        meter: Meter,
        *,
        exec_bits: bool,
        sync: bool,
    ) -> None:
        """Begin with nothing done."""
        self.kept: list[bytes] = []
        self._root = root
        self._handles = Handles(root)
        self._incoming = incoming
        self._writers = writers
        self._meter = meter
        self._exec_bits = exec_bits
        self._sync = sync
        self._queue: list[tuple[Pair, fs.StatKey | None]] = []
        self._queued_bytes = 0
        self._chunks = 0
        self._going: list[Pair] = []
        self._blocked: Key | None = None

    def run(self, pairs: Iterable[Pair]) -> None:
        """Change everything that differs.

        Raises:
            CasError: Content could not be had or written; running again goes on from there.
            OSError: The system refused.
        """
        try:
            for pair in pairs:
                self._leave_directories(pair.key)
                if not self._is_blocked(pair.key):
                    self._take(pair)
            self._leave_directories(())
            self._place_queued()
            self._meter.finish()
        finally:
            self._handles.close()

    def _is_blocked(self, key: Key) -> bool:
        blocked = self._blocked
        if blocked is not None:
            if key[: len(blocked)] == blocked:
                return True
            self._blocked = None
        return False

    def _take(self, pair: Pair) -> None:
        new = pair.new
        was = [None if pair.old is None else pair.old.entry, *pair.via]
        if new is not None and new[1] == DIR:
            if not all(one is not None and one[1] == DIR for one in was):
                self._make_directory(pair)
        elif any(one is not None and one[1] == DIR for one in was):
            self._going.append(pair)  # when all in it is gone, and it is empty, it goes
        elif new is None or not all(one is not None and self._alike(one, new) for one in was):
            self._change_file(pair)

    def _alike(self, one: Entry, other: Entry) -> bool:
        return one[3] == other[3] and self._kind(one[1]) == self._kind(other[1])

    def _kind(self, kind: str) -> str:
        return FILE if kind == EXEC and not self._exec_bits else kind

    # --- looking -------------------------------------------------------------------------------

    def _look(self, pair: Pair) -> os.stat_result | None:
        """Return the stat of what is there, None if nothing is.

        Raises:
            _Blocked: What holds it is no directory.
        """
        try:
            at = self._handles.get(pair.folder)
            return os.stat(pair.name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NOT_A_DIRECTORY:
                raise _Blocked from None
            raise

    def _holds(self, pair: Pair, st: os.stat_result, entry: Entry) -> bool:
        """Tell, by reading it, whether what is there is what an entry says."""
        kind = entry[1]
        if self._kind(kind_of(st.st_mode)) != self._kind(kind):
            return False
        at = self._handles.get(pair.folder)
        if kind == LINK:
            return hash_bytes(fs.readlink(pair.name, dir_fd=at)) == entry[3]
        fd = fs.open_read(pair.name, dir_fd=at)
        try:
            return matches(fd, entry[2], entry[3])
        finally:
            os.close(fd)

    def _is_old(self, pair: Pair, st: os.stat_result, old: Known) -> bool:
        """Tell whether what is there is what the index says."""
        known = old.stat
        if (
            known is not None
            and known[:3] == [st.st_size, st.st_mtime_ns, st.st_ctime_ns]
            and known[4] == st.st_ino
        ):
            return self._kind(kind_of(st.st_mode)) == self._kind(old.entry[1])
        return self._holds(pair, st, old.entry)

    def _is_ours(self, pair: Pair, st: os.stat_result) -> bool:
        """Tell whether what is there came from a checkout or update and was not changed since."""
        if pair.old is not None and self._is_old(pair, st, pair.old):
            return True
        return any(one is not None and self._holds(pair, st, one) for one in pair.via)

    # --- deciding ------------------------------------------------------------------------------

    def _change_file(self, pair: Pair) -> None:
        """Remove, replace or add one file or link, or keep what a person made of it."""
        old, new = pair.old, pair.new
        try:
            st = self._look(pair)
        except _Blocked:
            if new is not None:
                self.kept.append(pair.path)
            return
        if st is None:
            if new is None:
                return
            if old is None or None in pair.via:
                self._queue_file(pair, None)
            else:
                self.kept.append(pair.path)  # deleted by a person
        elif new is not None and self._is_done(pair, st, new):
            return
        elif not self._is_ours(pair, st):
            self.kept.append(pair.path)
        elif new is None:
            fs.unlink(pair.name, dir_fd=self._handles.get(pair.folder))
        else:
            self._queue_file(pair, fs.stat_key(st))

    def _is_done(self, pair: Pair, st: os.stat_result, new: Entry) -> bool:
        """Tell whether what is there is what is wanted; of a file of the index, by its stat."""
        old = pair.old
        if old is not None and self._is_old(pair, st, old):
            return self._alike(old.entry, new)
        return self._holds(pair, st, new)

    def _make_directory(self, pair: Pair) -> None:
        """Make a directory where none was, or may be no more."""
        try:
            st = self._look(pair)
            if st is not None and stat.S_ISDIR(st.st_mode):
                return
            if st is not None:
                if not self._is_ours(pair.without_directories(), st):
                    raise _Blocked
                fs.unlink(pair.name, dir_fd=self._handles.get(pair.folder))
            fs.mkdir(pair.name, dir_fd=self._directory(pair.folder))
        except _Blocked:
            self.kept.append(pair.path)
            self._blocked = pair.key

    def _directory(self, folder: bytes) -> int:
        """Return a descriptor of a directory, making those on the way that a person deleted."""
        try:
            return self._handles.get(folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno in _NOT_A_DIRECTORY:
                raise _Blocked from None
            raise
        made = b""
        for name in folder.split(b"/"):
            at = self._handles.get(made)
            try:
                fs.mkdir(name, dir_fd=at)
            except FileExistsError:
                pass
            made = join(made, name)
            try:
                self._handles.get(made)
            except OSError as error:
                if error.errno in _NOT_A_DIRECTORY:
                    raise _Blocked from None
                raise
        return self._handles.get(folder)

    def _leave_directories(self, key: Key) -> None:
        """Remove the directories that the walk has left and the new tree does not have."""
        while self._going and key[: len(self._going[-1].key)] != self._going[-1].key:
            pair = self._going.pop()
            if self._remove_directory(pair):
                self._change_file(pair.without_directories())
            elif pair.new is not None:
                self.kept.append(pair.path)

    def _remove_directory(self, pair: Pair) -> bool:
        """Remove a directory if nothing is left in it; True if none is there any more."""
        try:
            st = self._look(pair)
        except _Blocked:
            return False
        if st is None or not stat.S_ISDIR(st.st_mode):
            return True
        self._handles.drop(pair.path)
        try:
            fs.rmdir(pair.name, dir_fd=self._handles.get(pair.folder))
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    # --- placing -------------------------------------------------------------------------------

    def _queue_file(self, pair: Pair, seen: fs.StatKey | None) -> None:
        """Note that a file is to be put where `seen` was seen."""
        assert pair.new is not None
        self._queue.append((pair, seen))
        self._queued_bytes += pair.new[2]
        if len(self._queue) >= _CHUNK_FILES or self._queued_bytes >= _CHUNK_BYTES:
            self._place_queued()

    def _place_queued(self) -> None:
        """Write what is queued beside the workspace's content, and then move it in."""
        if not self._queue:
            return
        queue, self._queue, self._queued_bytes = self._queue, [], 0
        chunk = b"%d" % self._chunks
        self._chunks += 1
        for folder, entries, _ in self._writers.write(_staged(chunk, queue)):
            if folder:
                self._meter.add(len(entries), sum([entry[2] for entry in entries]))
        if self._sync:
            fs.sync_filesystem(self._incoming)
        fd = fs.open_dir(chunk, dir_fd=self._incoming)
        try:
            for i, (pair, seen) in enumerate(queue):
                self._place(fd, b"%d" % i, pair, seen)
        finally:
            os.close(fd)
        remove_tree(self._incoming, chunk)

    def _place(self, source: int, temporary: bytes, pair: Pair, seen: fs.StatKey | None) -> None:
        """Move a file to its name, unless a person was there since it was decided."""
        try:
            at = self._directory(pair.folder)
            st = self._look(pair)
        except _Blocked:
            self.kept.append(pair.path)
            return
        if not _is_as_seen(st, seen):
            self.kept.append(pair.path)
            return
        if seen is not None:
            fs.rename(temporary, pair.name, src_dir_fd=source, dst_dir_fd=at)
            return
        try:
            fs.rename_noreplace(temporary, pair.name, src_dir_fd=source, dst_dir_fd=at)
        except FileExistsError:
            self.kept.append(pair.path)
        except OSError as error:
            if error.errno not in fs.CANNOT or error.errno == errno.EXDEV:
                raise
            fs.rename(temporary, pair.name, src_dir_fd=source, dst_dir_fd=at)


def _is_as_seen(st: os.stat_result | None, seen: fs.StatKey | None) -> bool:
    """Say whether nobody was at a file since it was seen.

    Taking away another link to the same file, as the update itself may have done, moves the ctime.
    """
    if st is None or seen is None:
        return st is None and seen is None
    key = fs.stat_key(st)
    return key == seen or (st.st_nlink > 1 and key[:-1] == seen[:-1])


def _staged(chunk: bytes, queue: list[tuple[Pair, fs.StatKey | None]]) -> Iterator[Run]:
    """Yield the files of a queue as numbered files of one directory."""
    yield b"", [(chunk, DIR, 0, bytes(DIGEST_SIZE))]
    for start in range(0, len(queue), MAX_RUN):
        run = []
        for i, (pair, _) in enumerate(queue[start : start + MAX_RUN], start):
            assert pair.new is not None
            run.append((b"%d" % i, *pair.new[1:]))
        yield chunk, run
