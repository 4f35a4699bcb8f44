"""Compaction: publish the state as a snapshot, then let go what only older ones need.

Snapshots are numbered, and number n + 1 is made from number n by whoever creates it first, so that
two compactions can never publish states that do not follow each other. Write order: records seen
are settled, the new segment, the snapshot; only then deletions. A compaction that dies leaves
segments that no snapshot names, or files that the next one deletes.
"""

from __future__ import annotations

import itertools
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cas.errors import NotFoundError
from cas.eventlog.keys import DIGITS, numbers
from cas.eventlog.record import IDENTITY_SIZE
from cas.eventlog.runs import merge
from cas.eventlog.segment import KNOWN, Segment, SegmentWriter, weight
from cas.eventlog.snapshot import Snapshot, read_snapshot
from cas.eventlog.state import Layered
from cas.eventlog.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cas.eventlog.loading import Loader
    from cas.eventlog.runs import Run
    from cas.eventlog.segment import SegmentInfo

FAN: Final = 4
"""So many segments of one tier become one of the next."""
_SMALLEST: Final = 16 << 10


def tier(size: int) -> int:
    """Return the tier of a segment by the bytes in it: each is `FAN` times the one below."""
    return (max(size, _SMALLEST) // _SMALLEST).bit_length() // (FAN.bit_length() - 1)


def plan(sizes: Sequence[int], fresh: int) -> int:
    """Say which segments a new one is merged with.

    Every byte is then rewritten about once for each tier, and `FAN` - 1 segments at most stay in
    each, so both grow with the logarithm of the state.

    Args:
        sizes: Bytes that the segments hold, oldest first.
        fresh: Bytes that the new one would hold alone.

    Returns:
        Where the ones to merge begin, which always reach to the newest.
    """
    start = len(sizes)
    total = fresh
    while True:
        first = start
        while first and tier(sizes[first - 1]) <= tier(total):
            first -= 1
        if start - first + 1 < FAN:
            return start
        total += sum(sizes[first:start])
        start = first


def compact(loader: Loader, view: View, *, full: bool) -> View | None:
    """Publish a snapshot of a view.

    Args:
        loader: Of the log.
        view: The newest state.
        full: Merge all segments; without, nothing is done where there are no new records.

    Returns:
        The same state, read from the new snapshot; None where there was nothing to do or another
        process was quicker.

    Raises:
        DamagedLogError: A segment to merge is damaged.
        EnvironmentFailure: The medium is full or fails; what is left over is swept later.
    """
    backend, keys, base = loader.backend, loader.keys, view.base
    segments = view.layers.segments
    start = len(segments)
    if view.position > base.position:
        fresh = sum(itertools.starmap(weight, view.layers.changes.table.items()))
        start = 0 if full else plan([segment.info.plain for segment in segments], fresh)
        loader.settle(view)
    elif not full or _is_least(loader, base):
        return None
    elif start > 1:
        start = 0
    sequence = view.newest + 1
    written = None
    if start < len(segments) or view.position > base.position:
        written = _write_segment(loader, view, start, sequence)
    infos = [segment.info for segment in segments[:start]] + ([written] if written else [])
    snapshot = Snapshot(
        sequence=sequence,
        previous=base.sequence,
        position=view.position,
        digest=view.digest,
        nonce=os.urandom(IDENTITY_SIZE),
        at=datetime.now(UTC).isoformat(timespec="microseconds"),
        segments=tuple(infos),
    )
    if not _publish(loader, snapshot):
        if written:
            backend.delete(keys.segment(written.name))
        return None
    if loader.newest_snapshot() != sequence:
        # Either the next compaction was quick, or this number was given and deleted long ago.
        return None
    opened = segments[:start]
    if written:
        try:
            reader = backend.open(keys.segment(written.name))
        except NotFoundError:
            return None  # two more compactions were quick
        opened += (Segment(reader, written, loader.cache),)
    return View(snapshot, sequence, Layered(opened), view.position, view.digest)


def sweep(loader: Loader, newest: Snapshot, previous: Snapshot) -> None:
    """Delete what neither a snapshot nor the one before it needs.

    It may run late, also after further compactions: numbers below those of `previous` are never
    used again, and of the segments made for a snapshot up to `newest`, later ones can only hold
    those that it holds.

    Raises:
        EnvironmentFailure: The medium fails; the next compaction deletes the rest.
    """
    backend, keys = loader.backend, loader.keys
    for sequence in numbers(backend, keys.snapshots):
        if sequence < previous.sequence:
            backend.delete(keys.snapshot(sequence))
    for number in numbers(backend, keys.records):
        if number <= previous.position:
            backend.delete(keys.record(number))
    needed = {info.name for snapshot in (newest, previous) for info in snapshot.segments}
    for entry in list(backend.list(keys.segments)):
        name = entry.key[len(keys.segments) :]
        made_for = name[:DIGITS]
        if name not in needed and made_for.isdigit() and int(made_for) <= newest.sequence:
            backend.delete(entry.key)


def _is_least(loader: Loader, base: Snapshot) -> bool:
    """Say whether a further full compaction would free nothing."""
    if len(base.segments) > 1 or not base.previous:
        return False
    try:
        previous = read_snapshot(loader.backend, loader.keys, base.previous)
    except NotFoundError:
        return False
    return previous.position == base.position and previous.segments == base.segments


def _write_segment(loader: Loader, view: View, start: int, sequence: int) -> SegmentInfo:
    """Merge the segments from `start` on and the changes since into one."""
    backend, keys = loader.backend, loader.keys
    merged = view.layers.segments[start:]
    name = f"{sequence:0{DIGITS}d}-{os.urandom(16).hex()}"
    layers = [iter([view.layers.changes.run(b"", None)])]
    layers += [segment.runs(b"", None) for segment in reversed(merged)]
    with backend.stage() as staging:
        writer = SegmentWriter(staging)
        runs = merge(layers)
        for run in runs if start else _without_deleted(runs):
            writer.add(run)
        first = merged[0].info.first if merged else view.base.position + 1
        info = writer.finish(name, first, view.position, _identities(view, merged))
        if not backend.put_if_absent(keys.segment(name), staging):
            backend.settle([keys.segment(name)])  # the name is random: it is ours
    return info


def _without_deleted(runs: Iterator[Run]) -> Iterator[Run]:
    for keys, values in runs:
        if None in values:
            kept = [
                (key, value) for key, value in zip(keys, values, strict=True) if value is not None
            ]
            yield [key for key, _ in kept], [value for _, value in kept]
        else:
            yield keys, values


def _identities(view: View, merged: Sequence[Segment]) -> bytes:
    """Return the last identities without a gap before the view's position."""
    known = b"".join(view.identities)
    for segment in reversed(merged):
        if len(known) >= KNOWN * IDENTITY_SIZE:
            break
        first, more = segment.identities()
        known = more + known
        if first > segment.info.first:
            break
    return known


def _publish(loader: Loader, snapshot: Snapshot) -> bool:
    """Create a snapshot; False where another has its number."""
    backend, keys = loader.backend, loader.keys
    key = keys.snapshot(snapshot.sequence)
    if backend.put_if_absent(key, snapshot.to_bytes()):
        return True
    try:
        there = read_snapshot(backend, keys, snapshot.sequence)
    except NotFoundError:
        return False
    if there.nonce != snapshot.nonce:
        return False
    backend.settle([key])  # put by a retry whose acknowledgement was lost
    return True
