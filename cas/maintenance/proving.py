"""Proving what lies in a store, unit by unit.

A unit is a pack, a loose object, some objects by name, or the index tables.

The units of a whole store come in the order of their digests, and so in no order of use. A run
with a budget remembers the last one that it proved and the next run goes on behind it, so that
repeated runs cover everything.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas.digest import DIGEST_SIZE, Digest
from cas.maintenance.prover import LOOSE, NAMED, PACK, TABLES, Prover
from cas.maintenance.report import Problem
from cas.objects import LARGE
from cas.progress import Meter
from cas.workers import worker_count
from cas.workspace.crew import Crew

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cas.objects import ObjectStore
    from cas.progress import Progress

_SMALL_FILE: Final = 16 << 10
"""Bytes whose proof takes about as long as starting on one small file."""
_BATCH: Final = 256
_BATCH_BYTES: Final = 8 << 20


class Unit(NamedTuple):
    """Something that is proven in one go."""

    kind: str
    digests: tuple[bytes, ...]
    """Of the pack, of loose objects, or of objects wherever they lie; none of tables."""
    size: int

    @property
    def mark(self) -> bytes:
        """Its place in the order of units."""
        return self.kind.encode() + self.digests[-1]


@dataclass(slots=True)
class Proven:
    """What was looked at so far."""

    read: int = 0
    """Bytes really read."""
    last: bytes = b""
    """The mark of the last unit in order that was proven."""
    complete: bool = True
    """Whether the units were gone through to the end."""
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is to be proven.

    Attributes:
        quick: Structure and sizes only.
        sample: Percentage of the bytes to read.
        deadline: When to begin nothing more, by `time.monotonic`.
    """

    quick: bool = False
    sample: float | None = None
    deadline: float | None = None


def anywhere() -> bytes:
    """Return a mark by chance: where a sample begins."""
    word = os.urandom(DIGEST_SIZE + 1)
    return (PACK if word[0] & 1 else LOOSE).encode() + word[1:]


def units(objects: ObjectStore, after: bytes = b"") -> Iterator[Unit]:
    """Give all units once, beginning behind a mark and going round."""

    def behind(unit: Unit) -> bool:
        return unit.mark > after

    yield from filter(behind, _listing(objects))
    if after:
        yield from (unit for unit in _listing(objects) if not behind(unit))


def _listing(objects: ObjectStore) -> Iterator[Unit]:
    for digest, size in objects.loose_objects():
        yield Unit(LOOSE, (digest,), size)
    for digest, size in objects.packs():
        yield Unit(PACK, (digest,), size)


def named(objects: Iterable[tuple[bytes, int]]) -> Iterator[Unit]:
    """Give units of objects by digest and size."""
    digests: list[bytes] = []
    size = 0
    for digest, bytes_ in objects:
        digests.append(digest)
        size += bytes_
        if len(digests) >= _BATCH or size >= _BATCH_BYTES:
            yield Unit(NAMED, tuple(digests), size)
            digests, size = [], 0
    if digests:
        yield Unit(NAMED, tuple(digests), size)


def prove(
    objects: ObjectStore,
    wanted: Iterable[Unit],
    extent: Extent,
    *,
    expected: int,
    shared: int,
    tables: bool = False,
    meanwhile: Iterable[None] = (),
    workers: int | None,
    progress: Progress | None,
) -> Proven:
    """Prove units on all cores.

    Args:
        objects: Where they are.
        wanted: Which, in which order.
        extent: How much of them.
        expected: How many bytes the units have in all.
        shared: How many of them lie in units that workers may get.
        tables: Whether to prove the index tables as well.
        meanwhile: Other work, a step at a time, done here while workers are busy.
        workers: How many processes; by default as many as there are cores.
        progress: Called with what was done so far.

    Raises:
        EnvironmentFailure: A worker cannot be started or was ended.
    """
    done = Proven()
    meter = Meter(progress, "verify", total_bytes=None if extent.quick else expected)

    cores = worker_count(workers)

    def tasks() -> Iterator[tuple[Unit, list[Any], int | None]]:
        if tables:
            yield Unit(TABLES, (), 0), [TABLES, (), extent.quick], 0
        for unit in _together(_chosen(wanted, extent, done), cores):
            # Threads here hash large files as well as workers, which would have to be started.
            weight = None if _is_large(unit) else len(unit.digests) + unit.size // _SMALL_FILE
            yield unit, [unit.kind, unit.digests, extent.quick], weight

    local = objects.backend.local
    init: list[Any] = [] if local is None else [os.fsencode(local.root), objects.loose_threshold]
    with Crew(
        Prover(objects),
        "cas.maintenance.prover:serve",
        init,
        size=1 if extent.quick or not init else cores,
        expected=shared // _SMALL_FILE,
    ) as crew:
        for unit, (count, read, findings) in crew.map(tasks(), meanwhile):
            done.problems += [_problem(*found) for found in findings if not _vanished(unit, found)]
            if unit.digests:
                done.read += read
                done.last = unit.mark
                meter.add(count, read)
    meter.finish()
    return done


def _chosen(wanted: Iterable[Unit], extent: Extent, done: Proven) -> Iterator[Unit]:
    """Leave out what is over the sample or the deadline; one unit is proven in any case."""
    share = 1.0 if extent.sample is None else extent.sample / 100
    seen = taken = 0
    for unit in wanted:
        if taken and extent.deadline is not None and time.monotonic() >= extent.deadline:
            done.complete = False
            return
        seen += unit.size
        if share >= 1 or taken < share * seen:
            taken += unit.size
            yield unit


def _together(units: Iterable[Unit], cores: int) -> Iterator[Unit]:
    """Join large loose objects that follow each other, as many as there are cores."""
    large: list[Unit] = []
    for unit in units:
        is_large = _is_large(unit)
        if large and (not is_large or len(large) == cores):
            yield _joined(large)
            large = []
        if is_large:
            large.append(unit)
        else:
            yield unit
    if large:
        yield _joined(large)


def _is_large(unit: Unit) -> bool:
    return unit.kind == LOOSE and unit.size >= LARGE


def _joined(units: list[Unit]) -> Unit:
    digests = tuple(digest for unit in units for digest in unit.digests)
    return Unit(LOOSE, digests, sum(unit.size for unit in units))


def _vanished(unit: Unit, found: list[Any]) -> bool:
    """Say whether a pack or loose object is only not there any more since it was listed.

    It was merged away then; if not, those who need what was in it miss it.
    """
    return unit.kind in (PACK, LOOSE) and found[0] == "missing"


def _problem(kind: str, digest: bytes | None, location: str, detail: str) -> Problem:
    return Problem(
        kind=kind,
        digest=None if digest is None else Digest(digest),
        location=location,
        detail=detail,
    )
