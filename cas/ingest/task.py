"""One ingest: the walk, those who read, and what is made of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cas import fs
from cas.ingest.assembly import Assembly, StaleIndex
from cas.ingest.clones import Clones
from cas.ingest.crew import Crew
from cas.ingest.files import Files, pause_ns
from cas.ingest.source import failed, join
from cas.ingest.walk import Chunk, Enter, Leave, Walk
from cas.manifests import LINK
from cas.objects import BLOB
from cas.progress import Meter
from cas.statindex import FIELDS
from cas.workspace.handles import Handles

if TYPE_CHECKING:
    from cas.ingest.cache import StatCache
    from cas.manifests import TreeRef
    from cas.objects import ObjectStore, ObjectWriter
    from cas.progress import Progress

__all__ = ["StaleIndex", "Task"]

_CTIME = 2


class Task:
    """One ingest of one source.

    Args:
        objects: The store.
        writer: What this process writes with.
        root: A descriptor of the source's root.
        where: Its path.
        known: What is known of the source, and where to write what will be.
        ignore: Honour `.casignore` files.
        leave_out: Names in the root folder that are no content.

    Attributes:
        notices: What was left out, or taken in a special way.
    """

    def __init__(
        self,
        objects: ObjectStore,
        writer: ObjectWriter,
        root: int,
        where: bytes,
        known: StatCache,
        *,
        ignore: bool,
        leave_out: frozenset[bytes] = frozenset(),
    ) -> None:
        """Read nothing yet."""
        self._objects = objects
        self._writer = writer
        self._root = root
        self._where = where
        self._known = known
        self._threshold = objects.loose_threshold
        self._handles = Handles(root)
        self._files = Files(writer, self._threshold, self._handles, where)
        self._walk = Walk(self._handles, where, index=known.old, ignore=ignore, leave_out=leave_out)
        self.notices = self._walk.notices

    def take_folder(self, processes: int, progress: Progress | None) -> TreeRef:
        """Take in the folder that is the root.

        Raises:
            StaleIndex: What is known of the source cannot be used.
            CasError: As `cas.ingest.ingest`.
        """
        meter = Meter(progress, "ingest")
        crew = Crew(
            self._objects,
            self._writer,
            self._handles,
            self._files,
            root=self._root,
            path=self._where,
            size=processes,
        )
        clones = Clones(self._files, processes)

        def wait() -> None:
            if not clones.finish():
                crew.wait()

        with self._handles, crew, clones:
            assembly = Assembly(self._writer, self._known, meter, wait)
            for event in self._walk.events():
                if isinstance(event, Chunk):
                    self._take(event, crew, clones)
                assembly.add(event)
            clones.finish()
            crew.read_all()
            crew.begin_flush()
            tree = assembly.finish()
            crew.end_flush()
        meter.finish()
        return tree

    def take_file(self, name: bytes, entry: bytes, progress: Progress | None) -> TreeRef:
        """Take in one file of the root as a tree.

        Args:
            name: The file's name.
            entry: What it is called in the tree.
            progress: Called with what was done.

        Raises:
            StaleIndex: What is known of the file cannot be used.
            CasError: As `cas.ingest.ingest`.
        """
        meter = Meter(progress, "ingest")
        assembly = Assembly(self._writer, self._known, meter, lambda: None, entry=entry)
        with self._handles:
            assembly.add(Enter(b""))
            for chunk in self._walk.one(name):
                if isinstance(chunk, Chunk):
                    self._take(chunk, None, None)
                assembly.add(chunk)
            assembly.add(Leave(b"", b""))
        meter.finish()
        return assembly.finish()

    def _take(self, chunk: Chunk, crew: Crew | None, clones: Clones | None) -> None:
        """See to it that the digests that a chunk lacks come in."""
        sizes, kinds, threshold = chunk.sizes, chunk.kinds, self._threshold
        missing = [i for i, digest in enumerate(chunk.digests) if digest is None]
        at_ns = time.time_ns()
        pause = pause_ns([chunk.stats[FIELDS * i + _CTIME] for i in missing], at_ns)
        if pause:
            time.sleep(pause / 1e9)
            at_ns = time.time_ns()
        # Every stat of the chunk is looked at again after this: by whoever reads the file.
        chunk.at_ns = at_ns
        small = []
        for i in missing:
            if i in chunk.databases:
                self._files.take_database(chunk, i)
            elif kinds[i] == LINK:
                self._take_link(chunk, i)
            elif sizes[i] < threshold and crew is not None:
                small.append(i)
            elif clones is not None:
                clones.take(chunk, i)
            else:
                self._files.take(chunk, i)
        if small and crew is not None:
            crew.read(chunk, small)

    def _take_link(self, chunk: Chunk, i: int) -> None:
        name = chunk.names[i]
        try:
            target = fs.readlink(name, self._handles.get(chunk.folder))
        except OSError as error:
            raise failed(error, self._where, join(chunk.folder, name)) from error
        if len(target) == chunk.sizes[i]:
            chunk.digests[i] = self._writer.put(target, BLOB)
        else:
            self._files.take(chunk, i)
