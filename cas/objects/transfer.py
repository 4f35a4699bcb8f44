"""Copying objects from one store into another, in the order in which they lie there.

Each is checked against its digest on the way. What lies in a pack keeps its encoding, so that
nothing is compressed again; a large file shares its blocks where the filesystem can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.backends import Missing
from cas.digest import Digest, Hasher, raw_hash
from cas.errors import CorruptObjectError, EnvironmentFailure, FormatError
from cas.objects.entries import BLOB, CHUNKS, Location
from cas.objects.large import PIECE, Source, stage
from cas.objects.loose import loose_key
from cas.objects.reading import BATCH, BATCH_BYTES, runs
from cas.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Callable

    from cas.backends import Reader, Staging
    from cas.objects.store import ObjectStore
    from cas.objects.writer import ObjectWriter

_MEMORY: Final = 16 << 20
_DIGEST: Final = slice(-32, None)
_LOOSE: Final = b"\xff" * 40
"""Sorts behind every place in a pack."""


class Consignment:
    """Objects that are to be copied, in bounded memory.

    Args:
        source: Where they are.
    """

    def __init__(self, source: ObjectStore) -> None:
        """Begin empty."""
        self._source = source
        self._places = Spill(_MEMORY, unique=True)
        self.objects = 0
        """How many were added, about: one that was added twice counts twice."""
        self.bytes = 0

    def close(self) -> None:
        """Forget what was added."""
        self._places.close()

    def add(self, digest: bytes) -> None:
        """Add an object.

        Raises:
            MissingObjectError: The source does not hold it.
        """
        place = self._source.index.locate(digest)
        if place is not None:
            where, size = place.pack + place.offset.to_bytes(8), place.size
        else:
            where, size = _LOOSE, self._source.info(digest).size
        self._places.add(where + digest)
        self.objects += 1
        self.bytes += size

    def send(self, writer: ObjectWriter, done: Callable[[int, int], None]) -> None:
        """Copy all of them.

        Args:
            writer: Of the other store; it is not flushed.
            done: Told how many objects and bytes were copied.

        Raises:
            CasError: One cannot be read, or is not what it should be.
        """
        names: list[bytes] = []
        wanted: list[tuple[Location, int]] = []
        taken = 0
        for item in self._places:
            digest = item[_DIGEST]
            place = self._source.index.locate(digest)
            if place is None or place.encoding == CHUNKS:
                done(1, _send_large(self._source, writer, Digest(digest), place))
                continue
            wanted.append((place, len(names)))
            names.append(digest)
            taken += place.stored + place.size
            if len(names) >= BATCH or taken >= BATCH_BYTES:
                done(len(names), _send_batch(self._source, writer, names, wanted))
                names, wanted, taken = [], [], 0
        if names:
            done(len(names), _send_batch(self._source, writer, names, wanted))


def _send_batch(
    source: ObjectStore,
    writer: ObjectWriter,
    names: list[bytes],
    wanted: list[tuple[Location, int]],
) -> int:
    """Copy small objects that were located, and return their bytes."""
    size = 0
    for run in runs(wanted):
        start = run[0][0].offset
        stop = max(place.offset + place.stored for place, _ in run)
        try:
            data = source.open_packs.read(run[0][0].pack, start, stop - start)
        except (Missing, FormatError, EnvironmentFailure):
            data = b""
        contents = source.decompressor.decode_all(data, start, [place[1:5] for place, _ in run])
        for (place, number), content in zip(run, contents, strict=True):
            digest = Digest(names[number])
            at = place.offset - start
            if content is None or raw_hash(content) != digest:
                # The thorough way copes with what was merged away meanwhile, or says what is wrong.
                content = source.read(digest)
                writer.put(content, place.kind, digest)
            elif place.kind == BLOB and place.size >= writer.loose_threshold:
                writer.put(content, place.kind, digest)
            else:
                stored = data[at : at + place.stored]
                writer.put_stored(digest, stored, place.size, place.encoding, place.kind)
            size += len(content)
    return size


def _send_large(
    source: ObjectStore, writer: ObjectWriter, digest: Digest, place: Location | None
) -> int:
    """Copy an object that is a file of its own, or a list of chunks, and return its bytes."""
    reader = None if place is not None else source.open_loose(digest)
    if reader is None:
        size = source.info(digest).size
        if size < writer.loose_threshold:
            writer.put(source.read(digest), digest=digest)
            return size
        staging = writer.stage()
        try:
            for piece in source.stream(digest):
                staging.write(piece)
        except BaseException:
            staging.discard()
            raise
        writer.put_staged(digest, staging)
        return size
    with reader:
        copy_file(reader, writer, digest, loose_key(digest))
        return reader.size


def copy_file(reader: Reader, writer: ObjectWriter, digest: Digest, name: str) -> None:
    """Store a large object that is a whole file elsewhere.

    Args:
        reader: The file.
        writer: Of the store that it goes to.
        digest: What it should be.
        name: Of the file, for messages.

    Raises:
        CorruptObjectError: It is something else.
        SourceChangedError: It changed while it was read.
        EnvironmentFailure: It cannot be read, or its copy not be written.
    """
    staging = writer.stage()
    try:
        if _stage(reader, staging, name) != digest:
            raise CorruptObjectError(
                f"object {digest.hex()} is corrupt: {name} holds other bytes; "
                "restore it from another copy of the store",
                digest=digest.hex(),
                location=name,
            )
    except BaseException:
        staging.discard()
        raise
    writer.put_staged(digest, staging)


def _stage(reader: Reader, staging: Staging, name: str) -> Digest:
    """Bring a file into a staging, and return the digest of what is there."""
    fd = reader.fileno()
    if fd is not None:
        return stage(Source.of(fd, reader.size, name), staging, clone_ok=True)
    hasher = Hasher()
    for offset in range(0, reader.size, PIECE):
        piece = reader.read_at(offset, PIECE)
        hasher.update(piece)
        staging.write(piece)
    return hasher.digest()
