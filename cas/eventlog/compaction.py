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
from typing import TYPE_CHECKING

from cas.errors import NotFoundError
from cas.eventlog.keys import DIGITS, names, numbers
from cas.eventlog.record import IDENTITY_SIZE
from cas.eventlog.runs import merge
from cas.eventlog.segment import KNOWN, Segment, SegmentWriter, weight
from cas.eventlog.snapshot import Snapshot, read_snapshot
from cas.eventlog.state import Layered
from cas.eventlog.tiers import plan
from cas.eventlog.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cas.backends import Staging
    from cas.eventlog.loading import Loader
    from cas.eventlog.runs import Run
    from cas.eventlog.segment import SegmentInfo


def compact(
    loader: Loader, view: View, *, full: bool = False, limit: int | None = None
) -> View | None:
    """Publish a snapshot of a view.

    Args:
        loader: Of the log.
        view: The newest state.
        full: Merge all segments; without, nothing is done where there are no new records.
        limit: Bytes of new and old segments that may be merged now; any, if not given.

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
        start = 0 if full else plan([segment.info.plain for segment in segments], fresh, limit)
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
    snapshot = snapshot_after(view, view.position, view.digest, infos)
    if not publish(loader, snapshot):
        if written:
            backend.delete(keys.segment(written.name))
        return None
    if loader.newest_snapshot() != sequence:
        # Either the next compaction was quick, or this number was given and deleted long ago.
        return None
    opened = segments[:start]
    if written:
        try:
            opened += (open_segment(loader, written),)
        except NotFoundError:
            return None  # two more compactions were quick
    return View(snapshot, sequence, Layered(opened), view.position, view.digest)


def garbage(loader: Loader, newest: Snapshot, previous: Snapshot) -> list[str]:
    """Return the keys that neither a snapshot nor the one before it needs.

    They may be deleted late, also after further compactions: numbers below those of `previous` are
    never used again, and of the segments named for a snapshot up to `newest`, later ones can only
    hold those that it holds.

    Raises:
        EnvironmentFailure: The medium fails; the next compaction finds them again.
    """
    backend, keys = loader.backend, loader.keys
    found = [
        keys.snapshot(sequence)
        for sequence in numbers(backend, keys.snapshots)
        if sequence < previous.sequence
    ]
    found += [
        keys.record(number)
        for number in numbers(backend, keys.records)
        if number <= previous.position
    ]
    needed = {info.name for snapshot in (newest, previous) for info in snapshot.segments}
    for name in names(backend, keys.segments):
        made_for = name[:DIGITS]
        if name not in needed and made_for.isdigit() and int(made_for) <= newest.sequence:
            found.append(keys.segment(name))
    return found


def snapshot_after(
    view: View, position: int, digest: bytes, infos: Sequence[SegmentInfo]
) -> Snapshot:
    """Return the snapshot that may follow the newest one of a view, to be published.

    Args:
        view: Whose snapshot it is made from.
        position: The last record that it holds.
        digest: The digest of that record.
        infos: Its segments.
    """
    return Snapshot(
        sequence=view.newest + 1,
        previous=view.base.sequence,
        position=position,
        digest=digest,
        nonce=os.urandom(IDENTITY_SIZE),
        at=datetime.now(UTC).isoformat(timespec="microseconds"),
        segments=tuple(infos),
    )


def publish(loader: Loader, snapshot: Snapshot) -> bool:
    """Create a snapshot; False where another has its number.

    Raises:
        EnvironmentFailure: The medium fails; whether it is there is not known.
    """
    backend, keys = loader.backend, loader.keys
    key = keys.snapshot(snapshot.sequence)
    if snapshot.previous > loader.published:
        # Whoever made that one may have been killed before it was durable, and it must stay.
        backend.settle([keys.snapshot(snapshot.previous)])
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


def put_segment(
    loader: Loader,
    staging: Staging,
    writer: SegmentWriter,
    *,
    sequence: int,
    records: tuple[int, int],
    known: bytes,
) -> SegmentInfo:
    """Finish a segment and put it in place.

    Args:
        loader: Of the log.
        staging: What `writer` wrote to.
        writer: Has all entries.
        sequence: The number of the last snapshot that may be the first to hold it.
        records: The first and the last record whose changes it holds.
        known: The identities of records up to the last.
    """
    backend, keys = loader.backend, loader.keys
    name = f"{sequence:0{DIGITS}d}-{os.urandom(16).hex()}"
    info = writer.finish(name, *records, known)
    if not backend.put_if_absent(keys.segment(name), staging):
        backend.settle([keys.segment(name)])  # the name is random: it is ours
    return info


def open_segment(loader: Loader, info: SegmentInfo) -> Segment:
    """Open a segment.

    Raises:
        NotFoundError: It was deleted.
    """
    return Segment(loader.backend.open(loader.keys.segment(info.name)), info, loader.cache)


def identities(segments: Sequence[Segment], later: bytes = b"") -> bytes:
    """Return the last identities without a gap up to the end of segments and what follows them."""
    known = later
    for segment in reversed(segments):
        if len(known) >= KNOWN * IDENTITY_SIZE:
            break
        first, more = segment.identities()
        known = more + known
        if first > segment.info.first:
            break
    return known


def without_deleted(runs: Iterator[Run]) -> Iterator[Run]:
    """Give runs without the keys that were deleted: nothing below can have them."""
    for keys, values in runs:
        if None in values:
            kept = [
                (key, value) for key, value in zip(keys, values, strict=True) if value is not None
            ]
            yield [key for key, _ in kept], [value for _, value in kept]
        else:
            yield keys, values


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
    merged = view.layers.segments[start:]
    layers = [iter([view.layers.changes.run(b"", None)])]
    layers += [segment.runs(b"", None) for segment in reversed(merged)]
    runs = merge(layers)
    first = merged[0].info.first if merged else view.base.position + 1
    with loader.backend.stage() as staging:
        writer = SegmentWriter(staging)
        for run in runs if start else without_deleted(runs):
            writer.add(run)
        return put_segment(
            loader,
            staging,
            writer,
            sequence=sequence,
            records=(first, view.position),
            known=identities(merged, b"".join(view.identities)),
        )
