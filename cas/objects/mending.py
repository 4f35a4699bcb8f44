"""Replacing damaged packs and index tables by sound ones.

Write order: the new packs durable, then their table, then the tables that spoke of the old packs
are replaced; the old packs themselves are left to the caller. Killed at any point, every object
that could be read before can be read still. Nobody else may place, merge or delete packs meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cas.backends import Missing
from cas.digest import Digest
from cas.errors import CasError, CorruptObjectError, EnvironmentFailure, FormatError
from cas.objects.compression import Compressor
from cas.objects.entries import (
    BLOB,
    CHUNKS,
    ENTRY,
    ENTRY_SIZE,
    KINDS,
    MAX_PACKED,
    Location,
    in_memory,
)
from cas.objects.merging import PACK_OBJECTS
from cas.objects.pack import PackBuilder, pack_key, read_end, read_index
from cas.objects.table import PREFIX as TABLES
from cas.objects.table import Run, table_key, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cas.objects.store import ObjectStore


class Mended:
    """What became of the objects of damaged packs.

    Attributes:
        packs: The packs that were written in their place.
        fetched: Objects that came from elsewhere.
        lost: Objects of which there is no good copy.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self.packs: set[bytes] = set()
        self.fetched: list[Digest] = []
        self.lost: list[Digest] = []


def mend_pack(store: ObjectStore, pack: bytes, fetch: Callable[[bytes], bytes | None]) -> Mended:
    """Write what can be saved of a damaged pack into new ones, durably and with their table.

    What lies, sound, in another place is not copied.

    Args:
        store: Where it is.
        pack: Its digest.
        fetch: Gives the right bytes of an object from elsewhere, or None.

    Raises:
        EnvironmentFailure: The new packs cannot be written.
    """
    mended = Mended()
    builder: PackBuilder | None = None
    compressor = Compressor()
    try:
        for digest, rows in _rows(store, pack).items():
            found = _first_sound(store, digest, rows)
            if found is None:
                if _lies_elsewhere(store, digest, pack):
                    continue
                content = fetch(digest)
                if content is None or len(content) > MAX_PACKED:
                    if any(row.sure for row in rows):
                        mended.lost.append(Digest(digest))
                    continue
                mended.fetched.append(Digest(digest))
                found = (*compressor.encode(content), len(content), rows[-1].place.kind)
            if builder is None:
                builder = PackBuilder(store.backend.stage())
            stored, encoding, size, kind = found
            builder.add(digest, stored, size, encoding, kind)
            if builder.size >= store.pack_target or builder.count >= PACK_OBJECTS:
                done, builder = builder, None
                mended.packs.add(_place(store, done))
        if builder is not None:
            done, builder = builder, None
            mended.packs.add(_place(store, done))
    finally:
        if builder is not None:
            builder.staging.discard()
    return mended


def _place(store: ObjectStore, builder: PackBuilder) -> bytes:
    with builder.staging as staging:
        covered, index = builder.seal()
        store.backend.put_if_absent(pack_key(covered.digest), staging)
    run = Run(in_memory(index), (covered,))
    write_table(store.backend, [run], frozenset((covered.digest,)))
    return covered.digest


class _Told(NamedTuple):
    """Where an object is said to lie."""

    place: Location
    sure: bool
    """Whether it is said by something whose checksum fits."""


def _rows(store: ObjectStore, pack: bytes) -> dict[bytes, list[_Told]]:
    """Return what is said to be in a pack: by its own index, checked or not, and by tables.

    Where an object lies is not believed before it was compared with its digest.
    """
    told: dict[bytes, list[_Told]] = {}
    own, sure = _own_index(store, pack)
    for index, certain in ((own, sure), (_tabled(store, pack), True)):
        for digest, _, offset, stored, size, encoding, kind, _ in ENTRY.iter_unpack(index):
            known = kind if kind < len(KINDS) else BLOB
            said = _Told(Location(pack, offset, stored, size, encoding, known), certain)
            told.setdefault(digest, []).append(said)
    return dict(sorted(told.items(), key=lambda item: item[1][0].place.offset))


def _own_index(store: ObjectStore, pack: bytes) -> tuple[bytes, bool]:
    """Return the entries in a pack's own index, and whether they are what was written."""
    key = pack_key(pack)
    try:
        reader = store.open_packs.reader(pack)
        end = read_end(reader.read_at, reader.size, key)
        try:
            return read_index(reader.read_at, end, key), True
        except FormatError:
            return reader.read_at(end.index_offset, end.entries * ENTRY_SIZE), False
    except (Missing, FormatError, EnvironmentFailure):
        return b"", False


def _tabled(store: ObjectStore, pack: bytes) -> bytes:
    for table in store.index.tables:
        listed = [covered.digest for covered in table.packs]
        try:
            if pack in listed and table.sound():
                ordinal = listed.index(pack)
                rows = [
                    block[at : at + ENTRY_SIZE]
                    for block in table.entries.blocks()
                    for at in range(0, len(block), ENTRY_SIZE)
                    if int.from_bytes(block[at + 32 : at + 36]) == ordinal
                ]
                return b"".join(rows)
        except EnvironmentFailure:
            continue
    return b""


def _first_sound(
    store: ObjectStore, digest: bytes, rows: list[_Told]
) -> tuple[bytes, int, int, int] | None:
    """Return stored bytes, encoding, size and kind of an object, from where it is sound."""
    for place, _ in rows:
        stored = _stored(store, digest, place)
        if stored is not None:
            return stored, place.encoding, place.size, place.kind
    return None


def _stored(store: ObjectStore, digest: bytes, place: Location) -> bytes | None:
    """Return the stored bytes of an object, or None if they are not what they should be."""
    try:
        if place.encoding == CHUNKS:
            for _ in store.stream_chunks(digest, place):
                pass
        else:
            store.fetch(digest, place)
        return store.open_packs.read(place.pack, place.offset, place.stored)
    except (CasError, Missing):
        return None


def _lies_elsewhere(store: ObjectStore, digest: bytes, pack: bytes) -> bool:
    """Say whether a sound copy lies loose or in another pack."""
    for place in store.index.locate_all(digest):
        if place.pack != pack and _stored(store, digest, place) is not None:
            return True
    try:
        with store.loose.open(digest) as reader:
            store.loose.prove(digest, reader)
    except (Missing, CorruptObjectError, EnvironmentFailure):
        return False
    return True


# --- tables ------------------------------------------------------------------------------------


def replace_tables(store: ObjectStore, damaged: Iterable[str], packs: frozenset[bytes]) -> None:
    """Write one table in place of those that are damaged or speak of packs that are to go.

    Args:
        store: Where they are.
        damaged: Keys of damaged tables.
        packs: Digests of the packs that are to go.

    Raises:
        EnvironmentFailure: It cannot be written.
    """
    store.reload()
    store.index.complete()
    bad = set(damaged) | {key for key in store.index.damaged if key.startswith(TABLES)}
    for key in bad:
        # First, since what is written in its place may well get the same name.
        store.backend.delete(key)
    store.reload()
    store.index.complete()
    old = [t for t in store.index.tables if any(p.digest in packs for p in t.packs)]
    runs = [Run(table.entries, table.packs) for table in old]
    runs += [Run(run.entries, run.packs) for run in store.index.runs]
    sound = [run for run in runs if run.packs]
    keep = frozenset(
        pack.digest
        for run in sound
        for pack in run.packs
        if pack.digest not in packs and pack.digest not in store.index.gone
    )
    written = write_table(store.backend, sound, keep) if keep else None
    for table in old:
        if table.digest != written:
            store.backend.delete(table_key(table.digest))
    store.reload()
