"""Sharing the reading of small files between this process and workers.

Every process reads, hashes, compresses and writes packs of its own; this one also decides what is
new. It takes a batch itself whenever each worker has enough to do, so the work is spread by itself,
and where workers would not pay it does everything.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from cas.ingest.reading import FLUSH, KEEP, READ, read_files
from cas.ingest.source import join, kept_out
from cas.objects import BLOB
from cas.statindex import FIELDS
from cas.workers import Worker, wait
from cas.workspace.hashing import same_as

if TYPE_CHECKING:
    from types import TracebackType

    from cas.ingest.files import Files
    from cas.ingest.reading import Part
    from cas.ingest.walk import Chunk
    from cas.objects import ObjectStore, ObjectWriter
    from cas.workspace.handles import Handles

BATCH_FILES: Final = 128
BATCH_BYTES: Final = 4 << 20
_WINDOW: Final = 3
"""Batches that a worker is given ahead, so that it need not wait for this process."""
_PAYS_FILES: Final = 600
_PAYS_BYTES: Final = 16 << 20
"""What there has to be to read, for each worker, before starting it pays."""
_MOST: Final = 4
"""More workers than these would wait for this process, which walks and decides."""
_GENERATION: Final = 1 << 15
"""New objects after which workers are asked to put in place what they have."""

Slot = tuple["Chunk", int]
"""Where the digest of a file belongs: a chunk, and an index in it."""


class _Batch:
    """Files that are read together."""

    __slots__ = ("bytes", "parts", "slots")

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.slots: list[Slot] = []
        self.bytes = 0


class _Mate:
    """A worker and what it has been asked."""

    __slots__ = ("asked", "reading", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.asked: deque[_Batch | int] = deque()  # a batch, or KEEP or FLUSH
        self.reading = 0


class Crew:
    """This process and, once there is enough to read, workers; a context manager that ends them.

    Args:
        objects: The store.
        writer: What this process writes with.
        handles: The folders below the root.
        files: Takes by itself what could not be read in a batch.
        root: A descriptor of the source's root.
        path: Its path.
        size: How many processes there may be, this one included.
    """

    def __init__(
        self,
        objects: ObjectStore,
        writer: ObjectWriter,
        handles: Handles,
        files: Files,
        *,
        root: int,
        path: bytes,
        size: int,
    ) -> None:
        """Start no worker yet."""
        self._objects = objects
        self._writer = writer
        self._handles = handles
        self._files = files
        self._root = root
        self._path = path
        self._size = size if objects.backend.local is not None else 1
        self._mates: list[_Mate] = []
        self._batch = _Batch()
        self._seen_files = 0
        self._seen_bytes = 0
        # What workers were asked to store, now and before they were last asked to put it in place.
        self._given: set[bytes] = set()
        self._given_before: set[bytes] = set()
        self._flushing = 0

    # --- giving out ----------------------------------------------------------------------------

    def read(self, chunk: Chunk, wanted: list[int]) -> None:
        """Have files of a chunk read; their digests appear in it sooner or later.

        Args:
            chunk: Its folder, names and stats say what to read.
            wanted: Indexes of regular files below the threshold.
        """
        chunk.waiting += len(wanted)
        names, stats, sizes = chunk.names, chunk.stats, chunk.sizes
        batch = self._batch
        start = 0
        for at, i in enumerate(wanted, 1):
            batch.bytes += sizes[i]
            full = len(batch.slots) + at - start >= BATCH_FILES or batch.bytes >= BATCH_BYTES
            if full or at == len(wanted):
                part = wanted[start:at]
                batch.parts.append(
                    (
                        chunk.folder,
                        [names[k] for k in part],
                        [n for k in part for n in stats[FIELDS * k : FIELDS * (k + 1)]],
                    )
                )
                batch.slots += [(chunk, k) for k in part]
                start = at
            if full:
                self._dispatch()
                batch = self._batch

    def read_all(self) -> None:
        """Return when every digest asked for has come in."""
        self._dispatch()
        while any(mate.reading for mate in self._mates):
            self._answers(block=True)

    def begin_flush(self) -> None:
        """Have workers put in place what they stored, while this process goes on."""
        for mate in self._mates:
            self._ask(mate, FLUSH)

    def end_flush(self) -> None:
        """Return when what this process and its workers stored is durable.

        Without workers nothing is flushed: that is the caller's, who may have more to store.
        """
        if self._mates:
            self._writer.flush()
        while self._answers(block=True):
            pass

    def _dispatch(self) -> None:
        batch = self._batch
        self._batch = _Batch()
        if not batch.slots:
            return
        self._seen_files += len(batch.slots)
        self._seen_bytes += batch.bytes
        if len(self._mates) < self._wanted():
            self._start()
        self._answers(block=False)
        free = [mate for mate in self._mates if mate.reading < _WINDOW]
        if free:
            mate = min(free, key=lambda mate: len(mate.asked))
            mate.worker.send([READ, batch.parts])
            mate.asked.append(batch)
            mate.reading += 1
        else:
            self._read_here(batch)

    def _wanted(self) -> int:
        """Return how many workers pay for what was seen so far."""
        paid = max(self._seen_files // _PAYS_FILES, self._seen_bytes // _PAYS_BYTES)
        return min(paid, self._size - 1, _MOST)

    def _start(self) -> None:
        local = self._objects.backend.local
        assert local is not None, "elsewhere there is one process"
        init = [
            os.fsencode(local.root),
            local.shared_gid,
            self._objects.loose_threshold,
            self._objects.pack_target,
            *same_as(os.fsdecode(self._path), self._root),
        ]
        self._mates.append(_Mate(Worker("cas.ingest.reading:serve", init)))

    # --- here ----------------------------------------------------------------------------------

    def _read_here(self, batch: _Batch) -> None:
        digests, contents = read_files(self._handles, batch.parts)
        self._check_wanted(batch, digests)
        put = self._writer.put
        given, before = self._given, self._given_before
        for digest, content in zip(digests, contents, strict=True):
            if digest is not None and digest not in given and digest not in before:
                put(content, BLOB, digest)
        self._fill(batch, digests)

    def _check_wanted(self, batch: _Batch, digests: list[bytes | None]) -> None:
        """See that nothing that was read was purged, before any of it is stored.

        Raises:
            PurgedError: Something was.
        """
        purged = self._objects.purged
        for (chunk, i), digest in zip(batch.slots, digests, strict=True) if purged else ():
            if digest is not None and digest in purged:
                raise kept_out(
                    purged[digest], digest, self._path, join(chunk.folder, chunk.names[i])
                )

    def _fill(self, batch: _Batch, digests: list[bytes | None]) -> None:
        for (chunk, i), digest in zip(batch.slots, digests, strict=True):
            if digest is None:
                self._files.take(chunk, i)
            else:
                chunk.digests[i] = digest
            chunk.waiting -= 1

    # --- answers -------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until some worker has answered.

        Raises:
            CasError: What a worker ran into.
        """
        if not self._answers(block=True):
            self._dispatch()

    def _answers(self, *, block: bool) -> bool:
        """Take the answers that are there; wait for one if asked to. False if none is due."""
        busy = {mate.worker: mate for mate in self._mates if mate.asked}
        if not busy:
            return False
        for worker in wait(busy, None if block else 0):
            mate = busy[worker]
            while mate.asked and worker.ready:
                self._answer(mate, worker.receive())
        return True

    def _answer(self, mate: _Mate, reply: Any) -> None:
        asked = mate.asked.popleft()
        if isinstance(asked, _Batch):
            mate.reading -= 1
            self._check_wanted(asked, reply)
            self._keep(mate, reply)
            self._fill(asked, reply)
        elif asked == FLUSH:
            self._writer.adopt(reply)
            self._flushing -= 1
            if not self._flushing:
                self._given_before = set()

    def _keep(self, mate: _Mate, digests: list[bytes | None]) -> None:
        """Tell a worker which of the files that it read are new."""
        given, before, known = self._given, self._given_before, self._writer.known
        wanted = bytearray(len(digests))
        for i, digest in enumerate(digests):
            if (
                digest is not None
                and digest not in given
                and digest not in before
                and not known(digest)
            ):
                given.add(digest)
                wanted[i] = 1
        mate.worker.send([KEEP, bytes(wanted)])
        mate.asked.append(KEEP)
        if len(given) >= _GENERATION and not self._flushing:
            self._given_before, self._given = given, set()
            for other in self._mates:
                self._ask(other, FLUSH)

    def _ask(self, mate: _Mate, what: int) -> None:
        mate.worker.send([what])
        mate.asked.append(what)
        self._flushing += 1

    # --- the end -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the workers at once: they have done everything, or nothing of it is wanted."""
        for mate in self._mates:
            mate.worker.kill()
