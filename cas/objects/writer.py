"""Writing objects: dedup, packs, large files, and the order in which all of it becomes durable."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, Self

from cas import fs
from cas.backends import Missing
from cas.digest import Digest, hash_bytes
from cas.errors import CorruptObjectError, PurgedError, environment_failure
from cas.objects.compression import Compressor
from cas.objects.entries import BLOB, MAX_PACKED, in_memory
from cas.objects.failures import missing, purged, unnamed
from cas.objects.large import Clone, Source, Twins, stage
from cas.objects.loose import loose_key
from cas.objects.merging import PACK_OBJECTS, tidy_tables
from cas.objects.pack import PackBuilder, pack_key
from cas.objects.placing import Placing
from cas.objects.table import Run, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from cas.backends import Staging
    from cas.objects.store import ObjectStore

_BATCH: Final = 1024
"""Loose objects that a writer keeps in mind before it looks after them."""
_TABLES: Final = 8
"""Packs sealed by one writer after which the tables are looked at."""
_ATTEMPTS: Final = 5
_SETTLED_NS: Final = 300_000_000_000
"""A file that was not touched for so long is on the disk: kernels wait for half a minute."""


class ObjectWriter:
    """Adds objects to a store. One thread; a context manager.

    Nothing that was put may be named before `flush` returned. Leaving the context without a
    flush leaves only what nothing refers to.

    Args:
        store: Where to.
        relied: See `ObjectStore.writer`.
    """

    def __init__(self, store: ObjectStore, *, relied: bool) -> None:
        """Write nothing yet."""
        self._store = store
        self._backend = store.backend
        self._relies = relied
        self._placing = Placing()
        self._compressor: Compressor | None = None
        self._pack: PackBuilder | None = None
        self._new: set[bytes] = set()
        self._promised: set[bytes] = set()
        self._own: set[bytes] = set()
        self._relied: dict[bytes, bytes] = {}
        self._relied_loose: dict[bytes, int] = {}
        self._settle: set[str] = set()
        self._directories: set[str] = set()
        self._unproven: list[bytes] = []
        self._twins = Twins(store.loose)
        self._after_flush: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.new_objects = 0
        self.new_bytes = 0
        self.stored_bytes = 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of what was not flushed."""
        self._placing.close()
        if self._pack is not None:
            self._pack.staging.discard()
            self._pack = None
        while self._after_flush:
            self._after_flush.pop(0)[1]()

    @property
    def loose_threshold(self) -> int:
        """Blobs of at least so many bytes become files of their own."""
        return self._store.loose_threshold

    def stage(self) -> Staging:
        """Begin a large object; see `put_staged`."""
        return self._backend.stage()

    # --- what is there -------------------------------------------------------------------------

    def known(self, digest: bytes) -> bool:
        """Say whether an object is stored or was put already, and rely on it from now on."""
        return self.known_whole(digest, None)

    def known_whole(self, digest: bytes, size: int | None) -> bool:
        """Say the same of an object of this size: a loose one of another size was cut."""
        if digest in self._new or digest in self._promised:
            return True
        if digest in self._store.purged:
            return False
        place = self._store.index.locate(digest)
        if place is not None:
            if self._relies and place.pack not in self._relied:
                self._relied[place.pack] = digest
            return True
        return self._known_loose(digest, size)

    def promise(self, digest: bytes) -> None:
        """Take note that a worker process was asked to store an object, until `adopt`."""
        self._promised.add(digest)

    def adopt(self, written: Mapping[str, int]) -> None:
        """Take over what a worker process stored and flushed.

        Call it when everything promised so far is stored.

        Args:
            written: The worker's `written`, as it came through the pipe.
        """
        self.new_objects += written["objects"]
        self.new_bytes += written["bytes"]
        self.stored_bytes += written["stored"]
        self._promised.clear()
        self._store.index.refresh()

    def written(self) -> dict[str, int]:
        """Return what was new, and start counting from zero: for the `adopt` of another writer."""
        counts = {
            "objects": self.new_objects,
            "bytes": self.new_bytes,
            "stored": self.stored_bytes,
        }
        self.new_objects = self.new_bytes = self.stored_bytes = 0
        return counts

    # --- putting -------------------------------------------------------------------------------

    def put(self, data: bytes, kind: int = BLOB, digest: bytes | None = None) -> Digest:
        """Store an object unless it is known.

        Args:
            data: The object.
            kind: What it is, as a hint for rebuilding a lost catalogue.
            digest: Its digest, if the caller has just computed it from `data`.

        Raises:
            EnvironmentFailure: It cannot be written.
        """
        name = hash_bytes(data) if digest is None else Digest(digest)
        size = len(data)
        loose = size >= self._store.loose_threshold and (kind == BLOB or size > MAX_PACKED)
        if name in self._new or (not loose and self.known(name)):
            return name
        if loose:
            if self._store.index.locate(name) is None or not self.known(name):
                self._put_loose(name, data)
            return name
        if self._compressor is None:
            self._compressor = Compressor()
        stored, encoding = self._compressor.encode(data)
        self._pack_object(name, stored, size, encoding, kind)
        return name

    def put_stored(
        self, digest: Digest, stored: bytes, size: int, encoding: int, kind: int
    ) -> None:
        """Store an object as a pack of another store has it, unless it was put already.

        Args:
            digest: Of the object.
            stored: Its bytes as they are to be stored; the caller has seen that they decode to it.
            size: Of the object.
            encoding: Raw or zstd.
            kind: What it is.
        """
        if digest not in self._new:
            self._pack_object(digest, stored, size, encoding, kind)

    def put_staged(self, digest: Digest, staging: Staging) -> None:
        """Store a large object that was staged and hashed, unless it was put already.

        Args:
            digest: Of what is staged.
            staging: From the backend of this store; taken over.
        """
        if self._known_loose(digest, staging.tell()) or digest in self._new:
            staging.discard()
        else:
            self._place_loose(digest, staging, staging.tell())

    def put_large(
        self, src_fd: int, size: int, *, source: str = "the source", clone_ok: bool = True
    ) -> Digest:
        """Store a large file as a loose object, sharing its blocks where the filesystem can.

        Args:
            src_fd: The file, open for reading.
            size: Its size, as the caller saw it.
            source: Its name, for messages.
            clone_ok: Whether blocks may be shared.

        Raises:
            SourceChangedError: The file changed while it was read.
            EnvironmentFailure: It cannot be read, or its copy not be written.
        """
        file = Source.of(src_fd, size, source)
        if file.steady and self._twins.like(file):
            digest = file.hash()
            if self._known_large(digest, size):
                return digest
        staging = self._backend.stage()
        try:
            digest = stage(file, staging, clone_ok=clone_ok)
            if self._known_large(digest, size):
                staging.discard()
                return digest
            self._twins.add(file)
        except BaseException:
            staging.discard()
            raise
        self._place_loose(digest, staging, size)
        return digest

    def clone_large(self, src_fd: int, size: int, *, source: str) -> Clone | None:
        """Share a large file's blocks with what `put_clone` makes an object of.

        Args:
            src_fd: The file, open for reading until then.
            size: Its size, as the caller saw it.
            source: Its name, for messages.

        Returns:
            What is to be hashed and put, or discarded; None where `put_large` has to do it.

        Raises:
            SourceChangedError: The file has another size.
            EnvironmentFailure: It cannot be read, or the store not be written.
        """
        file = Source.of(src_fd, size, source)
        staging = self._backend.stage()
        clone = None
        try:
            clone = Clone.of(file, staging)
        except OSError as error:
            raise environment_failure(error, f"copying {source} into the store") from error
        finally:
            if clone is None:
                staging.discard()
        return clone

    def put_clone(self, clone: Clone, digest: Digest) -> None:
        """Store a clone as a loose object, unless it is known.

        Args:
            clone: What `clone_large` gave.
            digest: What its `source.hash` gave.

        Raises:
            SourceChangedError: The file had grown or shrunk when it was cloned.
            EnvironmentFailure: It cannot be written.
        """
        size = clone.source.size
        try:
            if clone.staging.tell() != size:
                raise clone.source.changed()
            known = self._known_large(digest, size)
        except BaseException:
            clone.staging.discard()
            raise
        if known:
            clone.staging.discard()
        else:
            self._place_loose(digest, clone.staging, size)

    def flush(self) -> None:
        """Return when everything put and everything relied on is durable and there.

        After it a record may name all of it.

        Raises:
            MissingObjectError: Something relied on is gone.
            CorruptObjectError: Something relied on has been cut.
            EnvironmentFailure: Something cannot be written.
        """
        if self._pack is not None:
            self._seal(last=True)
        self._placing.drain()
        if self._relies:
            self._check_packs()
            self._check_loose()
            self._backend.settle(sorted(self._settle))
        self._prove()
        self._relied.clear()
        self._settle.clear()
        self._directories.clear()
        while self._after_flush:
            self._after_flush.pop(0)[0]()

    def after_flush(self, action: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Have something done once, as soon as all that was put so far is durable.

        Args:
            action: Called at the end of the next `flush`.
            otherwise: Called instead when the writer is left without a flush that succeeded.
        """
        self._after_flush.append((action, otherwise))

    # --- packs ---------------------------------------------------------------------------------

    def _pack_object(
        self, digest: Digest, stored: bytes, size: int, encoding: int, kind: int
    ) -> None:
        self._check_wanted(digest)
        if self._pack is None:
            self._pack = PackBuilder(self._backend.stage())
        self._pack.add(digest, stored, size, encoding, kind)
        self._new.add(digest)
        self._count(size, len(stored))
        if self._pack.size >= self._store.pack_target or self._pack.count >= PACK_OBJECTS:
            self._seal()

    def _check_wanted(self, digest: bytes) -> None:
        """See that an object was not purged.

        Raises:
            PurgedError: It was, and does not come back.
        """
        told = self._store.purged.get(digest)
        if told is not None:
            raise purged(digest, told)

    def _count(self, size: int, stored: int, objects: int = 1) -> None:
        self.new_objects += objects
        self.new_bytes += size
        self.stored_bytes += stored

    def _seal(self, *, last: bool = False) -> None:
        """End the current pack and see to it that pack and table get in place, in this order."""
        pack = self._pack
        assert pack is not None, "only an open pack is sealed"
        covered, index = pack.seal()
        self._pack = None  # only now: a pack that could not be sealed is discarded on leaving

        def place() -> Digest:
            with unnamed(), pack.staging as staging:
                self._backend.put_if_absent(pack_key(covered.digest), staging)
            run = Run(in_memory(index), (covered,))
            with unnamed():
                return write_table(self._backend, [run], frozenset((covered.digest,)))

        def placed(table: Digest) -> None:
            self._store.index.add(table)
            self._own.add(covered.digest)
            self._new -= pack.digests
            if len(self._own) % _TABLES == 0:
                tidy_tables(self._store)

        if last and self._placing.idle:
            placed(place())
        else:
            self._placing.submit(place, placed)

    # --- loose objects -------------------------------------------------------------------------

    def _put_loose(self, digest: Digest, data: bytes) -> None:
        if self._known_loose(digest, len(data)):
            return
        staging = self._backend.stage()
        try:
            staging.write(data)
        except BaseException:
            staging.discard()
            raise
        self._place_loose(digest, staging, len(data))

    def _known_large(self, digest: bytes, size: int) -> bool:
        if digest in self._new or self._known_loose(digest, size):
            return True
        return self._store.index.locate(digest) is not None and self.known(digest)

    def _known_loose(self, digest: bytes, size: int | None) -> bool:
        """Say whether there is a loose object of that size (any size if None), and rely on it."""
        if digest in self._store.purged:
            return False
        stored = self._store.loose.size(digest)
        if stored is None or size not in (None, stored):
            return False
        if self._relies:
            self._relied_loose[digest] = stored
            if len(self._relied_loose) >= _BATCH:
                self._check_loose()
        return True

    def _place_loose(self, digest: Digest, staging: Staging, size: int) -> None:
        key = loose_key(digest)
        try:
            self._check_wanted(digest)
        except PurgedError:
            staging.discard()
            raise

        def place() -> bool:
            with unnamed(), staging:
                if self._backend.put_if_absent(key, staging):
                    return True
                with self._backend.open(key) as reader:
                    if reader.size == size:
                        return False
                # What is there was cut: this copy, which was just hashed, takes its place.
                self._backend.delete(key)
                return self._backend.put_if_absent(key, staging)

        def placed(created: bool) -> None:
            self._new.discard(digest)
            self._store.loose.note(digest)
            if created:
                self._unproven.append(digest)
                if len(self._unproven) >= _BATCH:
                    self._prove()
            else:
                self._count(-size, -size, objects=-1)
                self._relied_loose[digest] = size

        self._new.add(digest)
        self._count(size, size)
        self._placing.submit(place, placed)

    def _prove(self) -> None:
        """Remember the stats of the loose objects that were hashed as they were written.

        A name may be so young that a stat taken now would not show a change made now: it is waited
        for that. A filesystem whose clock is ahead of ours stays ahead, and one that keeps seconds
        is not waited for; there the next whole read proves them.
        """
        for digest in self._unproven:
            try:
                reader = self._store.loose.open(digest)
            except Missing:
                continue
            with reader:
                fd = reader.fileno()
                if fd is None:
                    break
                st = os.fstat(fd)
                young_ns = st.st_ctime_ns + fs.CLOCK_GRAIN_NS - time.time_ns()
                if 0 < young_ns <= fs.CLOCK_GRAIN_NS:
                    time.sleep(young_ns / 1e9)
                    st = os.fstat(fd)
                if not fs.racy(st, time.time_ns()):
                    self._store.loose.remember(digest, st)
        self._unproven.clear()

    # --- what was relied on --------------------------------------------------------------------

    def _check_packs(self) -> None:
        """See that what was found in packs is still there, wherever it was merged into."""
        waiting = {pack: d for pack, d in self._relied.items() if pack not in self._own}
        for _ in range(_ATTEMPTS):
            sizes = {pack.digest: pack.size for pack in self._store.index.covered.values()}
            moved = [digest for pack, digest in waiting.items() if not self._there(pack, sizes)]
            if not moved:
                return
            self._store.reload()
            self._store.index.complete()
            waiting = {}
            for digest in moved:
                place = self._store.index.locate(digest)
                if place is not None:
                    waiting[place.pack] = digest
                elif not self._known_loose(digest, None):
                    raise missing(digest)
        raise missing(moved[0])

    def _there(self, pack: bytes, sizes: Mapping[bytes, int]) -> bool:
        key = pack_key(pack)
        try:
            with self._backend.open(key) as reader:
                size = reader.size
                fd = reader.fileno()
                changed_ns = 0 if fd is None else os.fstat(fd).st_ctime_ns
        except Missing:
            return False
        expected = sizes.get(pack, size)
        if size != expected:
            raise CorruptObjectError(
                f"{key} is damaged: it has {size} bytes, {expected} are recorded; "
                "restore it from another copy of the store",
                location=key,
            )
        self._rely(key, changed_ns)
        return True

    def _check_loose(self) -> None:
        for digest, size in self._relied_loose.items():
            key = loose_key(digest)
            found = self._store.loose.look(digest)
            if found is None:
                raise missing(digest)
            actual, changed_ns = found
            if actual != size:
                raise CorruptObjectError(
                    f"{key} is damaged: it has {actual} bytes, {size} are recorded; "
                    "restore it from another copy of the store",
                    digest=digest.hex(),
                    location=key,
                )
            self._rely(key, changed_ns)
        self._relied_loose.clear()

    def _rely(self, key: str, changed_ns: int) -> None:
        """Take note of what is to be settled: each young file, and one in each directory."""
        directory = key.rpartition("/")[0]
        if directory not in self._directories or changed_ns + _SETTLED_NS > time.time_ns():
            self._directories.add(directory)
            self._settle.add(key)
