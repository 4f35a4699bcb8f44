"""Making a workspace's index anew after an update, from what is on the disk."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from cas import fs
from cas.checkout.recording import pass_time
from cas.digest import hash_bytes
from cas.manifests import DIR, EXEC, FILE, LINK
from cas.workspace.alongside import kind_of
from cas.workspace.handles import Handles
from cas.workspace.hashing import matches
from cas.workspace.runs import MAX_RUN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.checkout.merging import Pair
    from cas.checkout.recording import IndexFile
    from cas.manifests import Entry

_NOTHING: Final = (0, 0, 0, 0)
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class Reindex:
    """Writes an index of a tree for a workspace that an update has moved to it.

    What the old index says of an entry that did not change stands. Everything else is read and
    hashed, and its stat recorded if it is what the tree says; if it is not, because a person made
    something else of it, the index has the tree's digest and no proof.

    Args:
        root: A descriptor of the workspace.
        memory: A descriptor of its memory.
        index: The index to write.
        exec_bits: Whether the filesystem keeps executable bits.

    Attributes:
        files: How many files and links the tree has.
        bytes: Their bytes.
    """

    def __init__(self, root: int, memory: int, index: IndexFile, *, exec_bits: bool) -> None:
        """Wait until the clock has passed the times of everything that was put in place."""
        self.files = 0
        self.bytes = 0
        self._handles = Handles(root)
        self._index = index
        self._exec_bits = exec_bits
        # A file whose times lie before this shows every change from here on in its stat.
        self._clock = pass_time(memory, pass_time(memory, 0))
        self._folder = b""
        self._entries: list[Entry] = []
        self._stats: list[int] = []

    def run(self, pairs: Iterable[Pair]) -> None:
        """Write the index, but for its end.

        Raises:
            OSError: The system refused.
        """
        with self._handles:
            for pair in pairs:
                if pair.new is not None:
                    self._take(pair, pair.new)
            self._end_run()

    def _take(self, pair: Pair, new: Entry) -> None:
        if pair.folder != self._folder or len(self._entries) >= MAX_RUN:
            self._end_run()
            self._folder = pair.folder
        self._entries.append(new)
        if new[1] == DIR:
            self._stats += (0, *_NOTHING)
            self._end_run()
            return
        self.files += 1
        self.bytes += new[2]
        old = pair.old
        if old is not None and old.stat is not None and old.entry == new:
            self._stats += old.stat
        else:
            self._stats += self._proof(pair, new) or (new[2], *_NOTHING)

    def _end_run(self) -> None:
        if self._entries:
            self._index.add(self._folder, self._entries, self._stats)
            self._entries, self._stats = [], []

    def _proof(self, pair: Pair, new: Entry) -> tuple[int, ...] | None:
        """Return the stat of what is there if that proves that it is what the tree says."""
        name, kind, size, digest = new
        try:
            at = self._handles.get(pair.folder)
            st = os.stat(name, dir_fd=at, follow_symlinks=False)
            if max(st.st_mtime_ns, st.st_ctime_ns) >= self._clock:
                return None
            if self._kind(kind_of(st.st_mode)) != self._kind(kind):
                return None
            if kind == LINK:
                same = hash_bytes(fs.readlink(name, dir_fd=at)) == digest
            else:
                fd = fs.open_read(name, dir_fd=at)
                try:
                    same = matches(fd, size, digest)
                finally:
                    os.close(fd)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
        if not same:
            return None
        return st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_dev, st.st_ino

    def _kind(self, kind: str) -> str:
        return FILE if kind == EXEC and not self._exec_bits else kind
