"""Reading many objects at once: those that lie close together with one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.backends import Missing
from cas.digest import raw_hash
from cas.errors import EnvironmentFailure, FormatError
from cas.objects.entries import CHUNKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cas.objects.entries import Location
    from cas.objects.store import ObjectStore

BATCH: Final = 512
"""Objects that are looked up and read together, at most."""
BATCH_BYTES: Final = 8 << 20
"""Bytes that a batch holds in memory, about, unless one object alone is larger."""
GAP: Final = 16 << 10
"""Bytes between two objects that are rather read along than skipped."""
ALONE: Final = 16 << 10
"""Objects of so many stored bytes are read by themselves: copying them costs more than a call."""
RUN: Final = 2 << 20
"""Bytes that are read with one call, at most, unless one object alone is larger."""

_Wanted = tuple["Location", int]


def read_many(store: ObjectStore, digests: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Give digest and checked bytes of each object, in the order asked for.

    Args:
        store: Where they are.
        digests: Which; taken from the iterator a batch at a time.

    Raises:
        CasError: As for `ObjectStore.read`.
    """
    locate = store.index.locate
    names: list[bytes] = []
    wanted: list[_Wanted] = []
    taken = 0
    for digest in digests:
        place = locate(digest)
        if place is not None and place.encoding != CHUNKS:
            wanted.append((place, len(names)))
            taken += place.stored + place.size
        names.append(digest)
        if len(names) >= BATCH or taken >= BATCH_BYTES:
            yield from _read_batch(store, names, wanted)
            names, wanted, taken = [], [], 0
    yield from _read_batch(store, names, wanted)


def _read_batch(
    store: ObjectStore, names: list[bytes], wanted: list[_Wanted]
) -> Iterator[tuple[bytes, bytes]]:
    found: list[bytes | None] = [None] * len(names)
    for run in runs(wanted):
        _read_run(store, names, run, found)
    for number, digest in enumerate(names):
        data = found[number]
        # Whatever was wrong with the quick way, the thorough one copes with it or says it.
        yield digest, store.read(digest) if data is None else data
        found[number] = None


def runs(wanted: list[_Wanted]) -> Iterator[list[_Wanted]]:
    """Give groups of places that are read with one call, each in order of their offsets."""
    wanted.sort()
    run: list[_Wanted] = []
    pack, end, limit = b"", 0, 0
    for item in wanted:
        place = item[0]
        stop = place.offset + place.stored
        if place.stored >= ALONE:
            yield [item]
            continue
        if place.pack != pack or place.offset > end + GAP or stop > limit:
            if run:
                yield run
            run = []
            pack, end, limit = place.pack, place.offset, place.offset + RUN
        run.append(item)
        end = max(end, stop)
    if run:
        yield run


def _read_run(
    store: ObjectStore, names: list[bytes], run: list[_Wanted], found: list[bytes | None]
) -> None:
    """Read one run and keep the objects that are right."""
    first = run[0][0]
    start = first.offset
    stop = max(place.offset + place.stored for place, _ in run)
    try:
        data = store.open_packs.read(first.pack, start, stop - start)
    except (Missing, FormatError, EnvironmentFailure):
        return
    places = [place[1:5] for place, _ in run]
    contents = store.decompressor.decode_all(data, start, places)
    for (_, number), content in zip(run, contents, strict=True):
        if content is not None and raw_hash(content) == names[number]:
            found[number] = content
