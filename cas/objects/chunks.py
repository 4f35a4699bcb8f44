"""Chunk lists: a way to store a large object as smaller ones. Read here, not yet written.

The stored bytes are the canonical list of [digest, size] of the chunks in order. A chunk is stored
in any way but as a chunk list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.codec import decode_rows
from cas.digest import DIGEST_SIZE
from cas.errors import FormatError
from cas.objects.entries import CHUNKS, ENTRY, MAX_PACKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.objects.store import ObjectStore


def parse_chunks(stored: bytes, size: int) -> list[tuple[bytes, int]]:
    """Return digest and size of each chunk of an object of `size` bytes.

    Raises:
        FormatError: It is not a chunk list, or not one of that size.
    """
    rows = decode_rows(stored, max_bytes=MAX_PACKED)
    if not isinstance(rows, tuple):
        raise FormatError("a chunk list is not a list")
    chunks: list[tuple[bytes, int]] = []
    total = 0
    for row in rows:
        match row:
            case (bytes(digest), int(length)) if (
                len(digest) == DIGEST_SIZE and 0 < length <= size and length is not True
            ):
                chunks.append((digest, length))
                total += length
            case _:
                raise FormatError("a chunk list holds something else than digest and size")
    if total != size:
        raise FormatError(f"a chunk list has {total} bytes, its object {size}")
    return chunks


def chunked(store: ObjectStore) -> Iterator[tuple[bytes, list[bytes]]]:
    """Give each object that is stored in chunks, once for every place, with its chunks' digests.

    Args:
        store: The objects, just reloaded.

    Raises:
        FormatError: A chunk list is damaged.
        EnvironmentFailure: One cannot be read.
    """
    store.index.complete()
    sources = [table.entries for table in store.index.tables]
    sources += [run.entries for run in store.index.runs]
    for entries in sources:
        for block in entries.blocks():
            for digest, _, _, _, _, encoding, _, _ in ENTRY.iter_unpack(block):
                if encoding != CHUNKS:
                    continue
                for place in store.index.locate_all(digest):
                    if place.encoding == CHUNKS:
                        stored = store.open_packs.read(place.pack, place.offset, place.stored)
                        yield digest, [chunk for chunk, _ in parse_chunks(stored, place.size)]
