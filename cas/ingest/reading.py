"""Reading and hashing small files in batches, here or in a worker process.

A worker reads a batch and answers with digests; it keeps the contents until it is told which of
them are new, and stores those in packs of its own. So the parent alone decides what is new, and
nothing is stored twice.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from cas import fs
from cas.backends import LocalBackend
from cas.digest import raw_hash
from cas.objects import BLOB, ObjectStore
from cas.statindex import FIELDS
from cas.workspace.handles import Handles
from cas.workspace.hashing import open_same

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

READ: Final = 0
KEEP: Final = 1
FLUSH: Final = 2

Part = tuple[bytes, list[bytes], list[int]]
"""Files of one folder: its path, their names, and their stats as in `cas.statindex.Run`."""


def read_files(handles: Handles, batch: Sequence[Part]) -> tuple[list[bytes | None], list[bytes]]:
    """Read files whole and hash them.

    Returns:
        For each file the digest of what was read and the bytes. No digest for one that could not
        be read, or whose stat after the reading is not what it was said to be.
    """
    digests: list[bytes | None] = []
    contents: list[bytes] = []
    fstat, close, open_read, read = os.fstat, os.close, fs.open_read, fs.read
    for folder, names, stats in batch:
        try:
            at = handles.get(folder)
        except OSError:
            at = -1  # every open below fails
        i = 0
        for name in names:
            size, mtime, ctime, dev, ino = stats[i : i + FIELDS]
            i += FIELDS
            content = b""
            digest = None
            try:
                fd = open_read(name, at)
                try:
                    content = read(fd, size + 1)
                    st = fstat(fd)
                finally:
                    close(fd)
                if (
                    len(content) == size
                    and st.st_size == size
                    and st.st_mtime_ns == mtime
                    and st.st_ctime_ns == ctime
                    and st.st_ino == ino
                    and st.st_dev == dev
                ):
                    digest = raw_hash(content)
            except OSError:
                pass  # whoever asked looks at it again, by itself, and says what is wrong
            digests.append(digest)
            contents.append(content)
    return digests, contents


class Answers:
    """What a worker does.

    Args:
        objects: The store, opened by this process.
        root: A descriptor of the source.
    """

    def __init__(self, objects: ObjectStore, root: int) -> None:
        """Write nothing yet."""
        self._writer = objects.writer()
        self._handles = Handles(root)
        self._waiting: deque[tuple[list[bytes | None], list[bytes]]] = deque()

    def __call__(self, message: list[Any]) -> Any:
        """Answer one message.

        Args:
            message: `READ` and a batch; `KEEP` and a byte for each file of the oldest batch that
                was read, not zero for those to store; `FLUSH`.

        Returns:
            The digests; nothing; what `ObjectWriter.written` says.

        Raises:
            EnvironmentFailure: The store cannot be written.
        """
        kind = message[0]
        if kind == READ:
            read = read_files(self._handles, message[1])
            self._waiting.append(read)
            return read[0]
        if kind == KEEP:
            put = self._writer.put
            for digest, content, wanted in zip(*self._waiting.popleft(), message[1], strict=True):
                if wanted:
                    put(content, BLOB, digest)
            return None
        self._writer.flush()
        return self._writer.written()


def serve(init: list[Any]) -> Callable[[list[Any]], Any]:
    """Return what answers in a worker.

    Args:
        init: Path of the store, its group or None, the loose threshold, the pack target; path of
            the source, its device and its inode.

    Raises:
        CasError: One of the two is not there any more.
    """
    store, group, threshold, target, *source = init
    backend = LocalBackend(os.fsdecode(store), shared_gid=group)
    objects = ObjectStore(backend, loose_threshold=threshold, pack_target=target)
    return Answers(objects, open_same(*source))
