"""The object store: digest → checked bytes, over any backend."""

from __future__ import annotations

import functools
import io
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from cas.backends import Missing
from cas.digest import Digest, Hasher, hash_bytes, raw_hash
from cas.errors import CasError, CorruptObjectError, EnvironmentFailure, FormatError, RefusedError
from cas.objects.check import Checked, check_loose, check_objects, check_pack, check_tables
from cas.objects.chunks import parse_chunks
from cas.objects.compression import Decompressor
from cas.objects.entries import BLOB, CHUNKS, DIGEST_AT, ENTRY, RAW, ZSTD, Location, split
from cas.objects.failures import corrupt, missing, purged, too_large
from cas.objects.files import ChunkedFile, LooseFile
from cas.objects.index import Index
from cas.objects.loose import LooseObjects, loose_key
from cas.objects.merging import tidy
from cas.objects.open_packs import OpenPacks
from cas.objects.pack import pack_key
from cas.objects.reading import read_many
from cas.objects.writer import ObjectWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cas.backends import Backend, Reader

LOOSE_THRESHOLD: Final = 1 << 20
"""Blobs of at least so many bytes are files of their own."""
PACK_TARGET: Final = 64 << 20
"""Bytes at which a pack is sealed."""

_FIND_LIMIT: Final = 16


class ObjectInfo(NamedTuple):
    """What is known about a stored object without reading it."""

    digest: Digest
    size: int
    stored: int
    """Bytes that it takes where it lies."""
    encoding: int
    kind: int
    """A hint: what it was when it was written."""
    location: str
    """Key, and offset after a colon if it lies in a pack."""


class Totals(NamedTuple):
    """How much a store holds."""

    objects: int
    bytes: int
    """Of the objects."""
    stored: int
    """As they are stored."""
    packs: int
    loose: int
    tables: int


class ObjectStore:
    """The objects of a store. One thread at a time may use one.

    Args:
        backend: Where they lie.
        loose_threshold: Blobs of at least so many bytes become loose objects.
        pack_target: Bytes at which a pack is sealed.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        loose_threshold: int = LOOSE_THRESHOLD,
        pack_target: int = PACK_TARGET,
    ) -> None:
        """Open the index tables; that takes no longer for more objects, but for a logarithm."""
        self.backend = backend
        self.purged: Mapping[bytes, str] = {}
        """What is kept out for good, and how a sentence goes on that says so."""
        self.loose_threshold = loose_threshold
        self.pack_target = pack_target
        self.open_packs = OpenPacks(backend)
        self.index = Index(backend, self.open_packs)
        self.loose = LooseObjects(backend)

    def close(self) -> None:
        """Let go of all files."""
        self.index.close()
        self.open_packs.close()

    def reload(self) -> None:
        """Look again what there is."""
        self.index.reload()
        self.loose.reload()

    # --- is it there ---------------------------------------------------------------------------

    def has(self, digest: bytes) -> bool:
        """Say whether an object is stored."""
        return self.has_many((digest,))[0]

    def has_many(self, digests: Iterable[bytes]) -> list[bool]:
        """Say for each object whether it is stored.

        Whatever is not found at first is looked for again among what others stored meanwhile.
        """
        asked = list(digests)
        holds, loose = self.index.holds, self.loose.size
        there = [holds(digest) or loose(digest) is not None for digest in asked]
        if not all(there):
            self.reload()
            self.index.complete()
            for number, digest in enumerate(asked):
                if not there[number]:
                    there[number] = holds(digest) or loose(digest) is not None
        return there

    def sizes(self, digests: Iterable[bytes]) -> list[int | None]:
        """Return how many bytes each object has; None for one that is not stored.

        Whatever is not found at first is looked for again, once for all of them.
        """
        asked = list(digests)
        found = [self._size(digest) for digest in asked]
        if None in found:
            self.reload()
            self.index.complete()
            for number, digest in enumerate(asked):
                if found[number] is None:
                    found[number] = self._size(digest)
        return found

    def unlike(self, items: Iterable[bytes]) -> list[bytes]:
        """Give the items that have to be asked for one by one: `sizes` of many, at less cost.

        Args:
            items: Digests, each with the size that the object should have in 8 bytes, big-endian,
                behind it. Those that are left out are stored and have it.
        """
        return self.index.unlike(items)

    def info(self, digest: bytes) -> ObjectInfo:
        """Return what is known about an object.

        Raises:
            MissingObjectError: It is not stored.
        """
        for place in self.places(digest):
            if place is not None:
                location = f"{pack_key(place.pack)}:{place.offset}"
                return ObjectInfo(
                    Digest(digest), place.size, place.stored, place.encoding, place.kind, location
                )
            size = self.loose.size(digest)
            if size is not None:
                return ObjectInfo(Digest(digest), size, size, RAW, BLOB, loose_key(digest))
        raise self._lacks(digest)

    def find(self, prefix: str, *, limit: int = _FIND_LIMIT) -> list[Digest]:
        """Return the digests that begin with `prefix`, sorted, at most `limit` of them.

        Args:
            prefix: 2 to 64 lowercase hex digits.
            limit: How many at most.

        Raises:
            RefusedError: It is no such prefix.
        """
        if not 2 <= len(prefix) <= 64 or not set(prefix) <= set("0123456789abcdef"):
            raise RefusedError(f"{prefix!r} is not the beginning of a digest", prefix=prefix)
        whole = bytes.fromhex(prefix[: len(prefix) & ~1])
        packed = (digest for digest in self.index.find(whole) if digest.hex().startswith(prefix))
        found = set(islice(packed, limit * 4))
        loose = (d for d, _ in self.loose.listing(prefix[:2]) if d.hex().startswith(prefix))
        found.update(islice(loose, limit))
        return [Digest(raw) for raw in sorted(found)[:limit]]

    def totals(self) -> Totals:
        """Return how much is stored. An object that two packs hold counts twice."""
        self.index.complete()
        packs = self.index.covered.values()
        loose = [size for _, size in self.loose.listing()]
        return Totals(
            objects=sum(pack.entries for pack in packs) + len(loose),
            bytes=sum(pack.bytes for pack in packs) + sum(loose),
            stored=sum(pack.stored for pack in packs) + sum(loose),
            packs=len(packs),
            loose=len(loose),
            tables=len(self.index.tables),
        )

    def count(self) -> int:
        """Return how many objects are stored."""
        return self.totals().objects

    # --- reading -------------------------------------------------------------------------------

    def read(self, digest: bytes, *, max_bytes: int | None = None) -> bytes:
        """Return an object, whole and checked.

        Args:
            digest: Its digest.
            max_bytes: Refuse it if it is larger.

        Raises:
            MissingObjectError: It is nowhere, also not after a second look.
            CorruptObjectError: It is somewhere, but no copy is right.
            RefusedError: It is larger than `max_bytes`.
            EnvironmentFailure: It cannot be read.
        """
        failure: Exception | None = None
        for place in self.places(digest):
            try:
                if place is None:
                    return self._read_loose(digest, max_bytes)
                return self.fetch(digest, place, max_bytes)
            except Missing:
                continue  # merged away or removed since: the next place may be newer
            except (CorruptObjectError, EnvironmentFailure) as error:
                failure = failure or error
        raise failure or self._lacks(digest)

    def read_many(self, digests: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Give digest and checked bytes of each object, in the order asked for.

        Objects that lie close together are read at once. Memory is bounded by a batch.

        Raises:
            CasError: As for `read`.
        """
        return read_many(self, digests)

    def open(self, digest: bytes) -> BinaryIO:
        """Return an object as a seekable file.

        A loose object is handed out unread if its stat is that of its last proof, and is hashed
        whole first otherwise. Everything else is checked as it is read.

        Raises:
            CasError: As for `read`.
        """
        failure: Exception | None = None
        for place in self.places(digest):
            try:
                if place is None:
                    return io.BufferedReader(LooseFile(self._proven_reader(digest)))
                if place.encoding == CHUNKS:
                    chunks = self._chunks(digest, place)
                    return io.BufferedReader(ChunkedFile(chunks, self._read_chunk))
                return io.BytesIO(self.fetch(digest, place))
            except Missing:
                continue
            except (CorruptObjectError, EnvironmentFailure) as error:
                failure = failure or error
        raise failure or self._lacks(digest)

    def stream(self, digest: bytes) -> Iterator[bytes]:
        """Give an object piece by piece, in bounded memory.

        The check of a large object is only complete when the last piece was taken: after an
        error, whatever came before is to be thrown away.

        Raises:
            CasError: As for `read`.
        """
        failure: Exception | None = None
        for place in self.places(digest):
            try:
                if place is None:
                    yield from self.loose.pieces(digest)
                elif place.encoding == CHUNKS:
                    yield from self.stream_chunks(digest, place)
                else:
                    yield self.fetch(digest, place)
                return
            except Missing:
                continue
            except (CorruptObjectError, EnvironmentFailure) as error:
                if place is None or place.encoding == CHUNKS:
                    raise  # pieces may be out already
                failure = failure or error
        raise failure or self._lacks(digest)

    # --- loose objects -------------------------------------------------------------------------

    def loose_path(self, digest: bytes) -> Path | None:
        """Return where a loose object lies on a local disk; None if it is not loose or not local.

        Nothing is said about its content: see `proven`.
        """
        local = self.backend.local
        if local is None or self.loose.size(digest) is None:
            return None
        return local.path(loose_key(digest))

    def open_loose(self, digest: bytes) -> Reader | None:
        """Open the file of a loose object, unchecked; None if the object is not loose."""
        try:
            return self.loose.open(digest)
        except Missing:
            return None

    def proven(self, digest: bytes) -> bool:
        """Say whether a loose object's stat is what it was when all of it was last hashed."""
        reader = self.open_loose(digest)
        if reader is None:
            return False
        with reader:
            return self.loose.proven(digest, reader)

    def prove(self, digest: bytes) -> None:
        """Read and hash an object whole; of a loose one remember the stat.

        Raises:
            CasError: As for `read`.
        """
        reader = self.open_loose(digest)
        if reader is None:
            for _ in self.stream(digest):
                pass
            return
        with reader:
            self.loose.prove(digest, reader)

    # --- writing -------------------------------------------------------------------------------

    def writer(self, *, relied: bool = True) -> ObjectWriter:
        """Return a writer.

        Args:
            relied: Whether to see to it, before `ObjectWriter.flush` returns, that what was known
                already is durable and still there. False is for objects that nothing will name.
        """
        self.reload()
        self.index.complete()
        return ObjectWriter(self, relied=relied)

    def tidy(self) -> None:
        """Merge small packs and tables if there are too many.

        Left out while another process does it, or when the disk is full or fails.
        """
        tidy(self)

    # --- proving -------------------------------------------------------------------------------

    def packs(self) -> Iterator[tuple[Digest, int]]:
        """Give digest and size of every pack, sorted."""
        return ((Digest(digest), size) for digest, size in self.index.listing())

    def loose_objects(self) -> Iterator[tuple[Digest, int]]:
        """Give digest and size of every loose object, sorted."""
        return self.loose.listing()

    def uncovered(self) -> Iterator[tuple[Digest, Iterator[bytes]]]:
        """Give the packs that no table covers, with the digests of what they hold.

        A writer that was killed may leave such a pack. But an object that a record names is in a
        table: if it is only here, a table was lost.
        """
        self.index.complete()
        for run in self.index.runs:
            blocks = run.entries.blocks()
            yield (
                Digest(run.packs[0].digest),
                (entry[DIGEST_AT] for block in blocks for entry in split(block)),
            )

    def of_kinds(self, *kinds: int) -> Iterator[Digest]:
        """Give the objects in packs that were written as one of these kinds, some maybe twice."""
        self.reload()
        self.index.complete()
        sources = [table.entries for table in self.index.tables]
        sources += [run.entries for run in self.index.runs]
        for entries in sources:
            for block in entries.blocks():
                for entry in ENTRY.iter_unpack(block):
                    if entry[6] in kinds:
                        yield Digest(entry[0])

    def check_pack(self, digest: bytes, *, quick: bool = False) -> Checked:
        """Prove a pack; `quick` looks at structure and sizes only."""
        return check_pack(self, digest, quick=quick)

    def check_loose(self, digests: Sequence[bytes], *, quick: bool = False) -> Checked:
        """Prove loose objects together; `quick` sees only that they are there."""
        return check_loose(self, digests, quick=quick)

    def check_objects(self, digests: Iterable[bytes]) -> Checked:
        """Read and hash objects wherever they lie."""
        return check_objects(self, digests)

    def check_tables(self, *, quick: bool = False) -> Checked:
        """Check the index tables against the packs; `quick` does not read their entries."""
        return check_tables(self, quick=quick)

    # --- for the other modules of this package ---------------------------------------------------

    def places(self, digest: bytes) -> Iterator[Location | None]:
        """Give every place where an object may lie, cheapest first; None is "loose".

        After what the tables say, the store is looked at again, and in the end every pack's own
        index is asked, so that whoever misses an object need only take the next place.
        """
        place = self.index.locate(digest)
        seen = {place}
        if place is not None:
            yield place
        loose = self.loose.size(digest) is not None
        if loose:
            yield None
        self.reload()
        self.index.complete()
        if not loose and self.loose.size(digest) is not None:
            yield None
        for places in (self.index.locate_all, self.index.ask_packs):
            for other in places(digest):
                if other not in seen:
                    seen.add(other)
                    yield other

    def fetch(self, digest: bytes, place: Location, max_bytes: int | None = None) -> bytes:
        """Return an object from one place, checked.

        Raises:
            Missing: The pack is not there.
            CorruptObjectError: Other bytes lie there.
            RefusedError: It is larger than `max_bytes`.
            EnvironmentFailure: The pack cannot be read.
        """
        if max_bytes is not None and place.size > max_bytes:
            raise too_large(digest, place.size, max_bytes)
        try:
            stored = self.open_packs.read(place.pack, place.offset, place.stored)
            if place.encoding == CHUNKS:
                chunks = parse_chunks(stored, place.size)
                data = b"".join(self._read_chunk(*chunk) for chunk in chunks)
                sound = hash_bytes(data) == digest
            else:
                data = self.decode(stored, place.size, place.encoding)
                sound = raw_hash(data) == digest
        except FormatError as error:
            raise corrupt(digest, place, str(error)) from None
        if not sound:
            raise corrupt(digest, place)
        return data

    def stream_chunks(self, digest: bytes, place: Location) -> Iterator[bytes]:
        """Give an object that is stored as chunks, checked when the last came.

        Raises:
            CasError: As for `read`.
        """
        hasher = Hasher()
        for chunk, size in self._chunks(digest, place):
            data = self._read_chunk(chunk, size)
            hasher.update(data)
            yield data
        if hasher.digest() != digest:
            raise corrupt(digest, place)

    @functools.cached_property
    def decompressor(self) -> Decompressor:
        """What decodes compressed objects, made when the first is met."""
        return Decompressor()

    def decode(self, stored: bytes, size: int, encoding: int) -> bytes:
        """Return the bytes that `stored` encodes, not checked against a digest.

        Raises:
            FormatError: It does not decode to `size` bytes.
        """
        if encoding == RAW:
            if len(stored) != size:
                raise FormatError(f"{len(stored)} bytes are stored for an object of {size}")
            return stored
        if encoding != ZSTD:
            raise FormatError(f"an object has the encoding {encoding}, which is not known here")
        return self.decompressor.decode(stored, size)

    def _lacks(self, digest: bytes) -> CasError:
        """Return the error that says that an object is nowhere, and why if that is known."""
        told = self.purged.get(digest)
        return missing(digest) if told is None else purged(digest, told)

    def _size(self, digest: bytes) -> int | None:
        place = self.index.locate(digest)
        if place is not None:
            return place.size
        return self.loose.size(digest)

    def _read_loose(self, digest: bytes, max_bytes: int | None) -> bytes:
        size = self.loose.size(digest)
        if max_bytes is not None and size is not None and size > max_bytes:
            raise too_large(digest, size, max_bytes)
        return b"".join(self.loose.pieces(digest))

    def _proven_reader(self, digest: bytes) -> Reader:
        reader = self.loose.open(digest)
        try:
            if not self.loose.proven(digest, reader):
                self.loose.prove(digest, reader)
        except BaseException:
            reader.close()
            raise
        return reader

    def _chunks(self, digest: bytes, place: Location) -> list[tuple[bytes, int]]:
        try:
            stored = self.open_packs.read(place.pack, place.offset, place.stored)
            return parse_chunks(stored, place.size)
        except FormatError as error:
            raise corrupt(digest, place, str(error)) from None

    def _read_chunk(self, digest: bytes, size: int) -> bytes:
        """Return a chunk, which must not be of chunks itself."""
        failure: Exception | None = None
        for place in self.places(digest):
            try:
                if place is None:
                    return self._read_loose(digest, size)
                if place.encoding != CHUNKS and place.size == size:
                    return self.fetch(digest, place)
            except Missing:
                continue
            except (CorruptObjectError, EnvironmentFailure, RefusedError) as error:
                failure = failure or error
        raise failure or self._lacks(digest)
