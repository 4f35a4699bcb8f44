"""Merging small packs and index tables in the course of ordinary adds.

Write order: merged pack durable, then its table durable, then the old tables go, then the old
packs. Killed at any point, every object is still found: through old or new tables, or in a pack
that no table covers. Readers and writers work on beside it; who misses something looks again.

Packs fall into tiers by size, and a tier is merged when it holds `FAN` of them, so an object is
copied once a tier. Tables are kept such that each is at least twice as large as all smaller ones
together, but for a tail of fewer than `FAN`. So both numbers grow with the logarithm of what is
stored, packs besides with what is stored over a quarter of the pack target.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NoReturn

from cas import locking
from cas.backends import Missing
from cas.digest import hash_bytes
from cas.errors import BusyError, CorruptObjectError, EnvironmentFailure, FormatError
from cas.objects.entries import ENTRY, in_memory
from cas.objects.pack import PackBuilder, pack_key, read_end, read_index
from cas.objects.table import PREFIX as TABLES
from cas.objects.table import Run, Table, table_key, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cas.backends import Backend
    from cas.objects.pack import Covered
    from cas.objects.store import ObjectStore

FAN: Final = 8
"""So many packs of a tier, or small tables, are merged into one."""
PACK_OBJECTS: Final = 1 << 16
"""Objects in a pack, at most: what its writer keeps in memory for each is bounded by it."""

_SMALLEST_TIER: Final = 128 << 10
_GROUP_OBJECTS: Final = 1 << 18
_LOCK: Final = "locks/merge"

_merging: weakref.WeakSet[Backend] = weakref.WeakSet()
_guard = threading.Lock()


def tidy(store: ObjectStore) -> None:
    """Merge packs and tables if there are too many.

    Left out while another process does it, and left for another time where the disk is full or
    fails: whoever asks for it has just stored something, and that stands.
    """
    _try(store, packs=True)


def tidy_tables(store: ObjectStore) -> None:
    """Merge tables only: for a writer in the middle of a long add."""
    _try(store, packs=False)


def _try(store: ObjectStore, *, packs: bool) -> None:
    try:
        with merge_lock(store.backend) as held:
            if held:
                _tidy(store, packs=packs)
    except EnvironmentFailure:
        store.reload()


@contextmanager
def merge_lock(backend: Backend, *, patience: float = 0) -> Iterator[bool]:
    """Give True while nobody else merges, or False if somebody does.

    A backend that is not local belongs to this process alone and is guarded in it.

    Args:
        backend: The store's.
        patience: Seconds to wait.
    """
    local = backend.local
    if local is None:
        with _guard:
            held = backend not in _merging
            _merging.add(backend)
        try:
            yield held
        finally:
            if held:
                _merging.discard(backend)
        return
    if not local.writable:
        yield False
        return
    local.make_directories(["locks"])
    try:
        lock = locking.exclusive(local.path(_LOCK), patience)
        lock.__enter__()
    except BusyError:
        yield False
        return
    try:
        yield True
    finally:
        lock.__exit__(None, None, None)


def _tidy(store: ObjectStore, *, packs: bool) -> None:
    index = store.index
    store.reload()
    index.complete()
    merged: set[bytes] = set()
    runs: list[Run] = []
    if packs:
        for group in _crowded(index.covered.values(), store.pack_target):
            runs += copy_packs(store, group, merged, least=FAN // 2)
    runs += [Run(run.entries, run.packs) for run in index.runs if run.packs[0].digest not in merged]
    present = frozenset(index.covered) - merged
    tables = _worth_merging(index.tables, present, runs)
    for table in tables:
        if not table.sound():
            # Its packs are asked themselves from now on, so the next tidy covers them anew.
            index.put_aside(table)
            tables = []
            break
    runs += [Run(table.entries, table.packs) for table in tables]
    staying = {pack.digest for table in index.tables if table not in tables for pack in table.packs}
    new = {pack.digest for run in runs for pack in run.packs} - set(index.covered)
    keep = frozenset(
        pack.digest
        for run in runs
        for pack in run.packs
        if pack.digest in new or (pack.digest in present and pack.digest not in staying)
    )
    if keep:
        # First, since what is written in their place may well get the same name.
        for key in [key for key in index.damaged if key.startswith(TABLES)]:
            store.backend.delete(key)
    written = write_table(store.backend, runs, keep) if keep else None
    dead = [
        table.digest
        for table in index.tables
        if table in tables or not any(pack.digest in present for pack in table.packs)
    ]
    for digest in dead:
        if digest != written:
            store.backend.delete(table_key(digest))
    for digest in merged:
        store.backend.delete(pack_key(digest))
    if merged or written is not None or dead:
        store.reload()
        index.complete()


# --- packs -------------------------------------------------------------------------------------


def _crowded(packs: Iterable[Covered], target: int) -> Iterator[list[Covered]]:
    """Give the groups of packs that are to be merged."""
    tiers: dict[int, list[Covered]] = {}
    for pack in packs:
        if pack.size < target // 4 and pack.entries < PACK_OBJECTS // 2:
            tier, limit = 0, min(_SMALLEST_TIER, max(target // 512, 1))
            while pack.size >= limit:
                tier, limit = tier + 1, limit * FAN
            tiers.setdefault(tier, []).append(pack)
    for tier in sorted(tiers):
        if len(tiers[tier]) < FAN:
            continue
        group: list[Covered] = []
        objects = 0
        for pack in sorted(tiers[tier]):
            if objects + pack.entries > _GROUP_OBJECTS:
                yield group
                group, objects = [], 0
            group.append(pack)
            objects += pack.entries
        if len(group) > 1:
            yield group


def copy_packs(
    store: ObjectStore,
    group: Sequence[Covered],
    merged: set[bytes],
    *,
    least: int = 1,
    needed: Callable[[bytes], bool] = lambda _digest: True,
    recode: Callable[[bytes, bytes, int, int], tuple[bytes, int]] | None = None,
) -> list[Run]:
    """Copy the objects of a group of packs into new ones, durably; the old ones stay.

    A pack that is damaged is left as it is, for verify to report. An object that also lies, sound,
    in a pack that stays is not copied. Nobody else may merge or delete packs meanwhile.

    Args:
        store: Where they are.
        group: The packs.
        merged: Takes the digests of those that are not needed any more.
        least: Do nothing unless so many of them are sound.
        needed: Says of an object, by its digest, whether it is to be copied.
        recode: Given the digest, stored bytes, size and encoding of an object, returns the bytes to
            store for it, and their encoding.

    Returns:
        The new packs.

    Raises:
        EnvironmentFailure: They cannot be written; what was written is not used by anybody.
    """
    sound = [pack for pack in group if _sound_content(store.backend, pack) is not None]
    if len(sound) < least:
        return []
    going = {pack.digest for pack in sound}
    away = going | merged
    done: set[bytes] = set()
    runs: list[Run] = []
    builder: PackBuilder | None = None
    try:
        for pack in sound:
            data, index = _sound_content(store.backend, pack) or _vanished(pack)
            rows = sorted(ENTRY.iter_unpack(index), key=itemgetter(2))
            for digest, _, offset, length, size, encoding, kind, _ in rows:
                if digest in done or not needed(digest):
                    continue
                if _lies_elsewhere(store, digest, away):
                    continue
                done.add(digest)
                if builder is None:
                    builder = PackBuilder(store.backend.stage())
                stored = data[offset : offset + length]
                if recode is not None:
                    stored, encoding = recode(digest, stored, size, encoding)
                builder.add(digest, stored, size, encoding, kind)
                if builder.size >= store.pack_target or builder.count >= PACK_OBJECTS:
                    runs.append(_place(store.backend, builder))
                    builder = None
        if builder is not None:
            runs.append(_place(store.backend, builder))
            builder = None
    finally:
        if builder is not None:
            builder.staging.discard()
    merged |= going
    return runs


def _sound_content(backend: Backend, pack: Covered) -> tuple[bytes, bytes] | None:
    """Return a small pack's bytes and its entries, or None if they are not what they were."""
    key = pack_key(pack.digest)
    try:
        data = backend.get(key, max_bytes=pack.size)
        if hash_bytes(data) != pack.digest:
            return None

        def read_at(offset: int, length: int) -> bytes:
            return data[offset : offset + length]

        return data, read_index(read_at, read_end(read_at, len(data), key), key)
    except (Missing, FormatError, EnvironmentFailure):
        return None


def _vanished(pack: Covered) -> NoReturn:
    key = pack_key(pack.digest)
    raise EnvironmentFailure(f"{key} changed while it was merged; nothing is lost", location=key)


def _lies_elsewhere(store: ObjectStore, digest: bytes, going: set[bytes]) -> bool:
    """Say whether a sound copy lies in a pack that stays."""
    for place in store.index.locate_all(digest):
        if place.pack not in going:
            try:
                store.fetch(digest, place)
            except (Missing, CorruptObjectError, EnvironmentFailure):
                continue
            return True
    return False


def _place(backend: Backend, builder: PackBuilder) -> Run:
    with builder.staging as staging:
        covered, index = builder.seal()
        backend.put_if_absent(pack_key(covered.digest), staging)
    return Run(in_memory(index), (covered,))


# --- tables ------------------------------------------------------------------------------------


def _worth_merging(
    tables: Iterable[Table], present: frozenset[bytes], runs: Sequence[Run]
) -> list[Table]:
    """Return the tables that are to go into a new one, together with `runs`."""
    live = sorted(
        (
            (sum(pack.entries for pack in table.packs if pack.digest in present), table.digest)
            for table in tables
        ),
        reverse=True,
    )
    by_digest = {table.digest: table for table in tables}
    extra = sum(run.entries.count for run in runs)
    left = extra + sum(count for count, _ in live)
    tail: list[bytes] = []
    for number, (count, _) in enumerate(live):
        left -= count
        if count < 2 * left:
            tail = [digest for _, digest in live[number:]]
            break
    if len(tail) + bool(runs) >= FAN:
        return [by_digest[digest] for digest in tail]
    # Otherwise only those that mostly speak of packs that are gone.
    return [
        by_digest[digest]
        for count, digest in live
        if 0 < count * 2 < by_digest[digest].entries.count
    ]
