"""Repacking: writing packs anew, fuller and compressed as is wanted, with the same objects.

A few packs at a time. It may be killed at any point, and others read and add meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cas.digest import raw_hash
from cas.errors import FormatError
from cas.objects.compression import Compressor, Decompressor
from cas.objects.entries import CHUNKS, RAW
from cas.objects.rewriting import write_anew

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.objects.pack import Covered
    from cas.objects.store import ObjectStore


class Plan(NamedTuple):
    """Which packs are written anew.

    Attributes:
        groups: Packs whose objects go into about one new pack.
        space: Bytes that the disk must have free meanwhile, at most.
    """

    groups: list[list[Covered]]
    space: int


def plan(store: ObjectStore, *, every: bool) -> Plan:
    """Choose the packs that are written anew.

    Args:
        store: The objects, just reloaded.
        every: All of them; otherwise those that are less than half full, if more than one is.
    """
    store.index.complete()
    target = store.pack_target
    packs = sorted(store.index.covered.values(), key=lambda pack: (pack.size, pack.digest))
    groups: list[list[Covered]] = []
    total = 0
    for pack in packs:
        if not every and pack.size >= target // 2:
            break
        if not groups or total + pack.stored > target:
            groups.append([])
            total = 0
        groups[-1].append(pack)
        total += pack.stored
    if not every:
        groups = [group for group in groups if len(group) > 1]
    largest = max((sum(pack.size for pack in group) for group in groups), default=0)
    return Plan(groups, 2 * largest)


def repack(store: ObjectStore, groups: list[list[Covered]], level: int | None) -> Iterator[int]:
    """Write groups of packs anew, one after another.

    Nobody else may merge or delete packs meanwhile.

    Args:
        store: The objects.
        groups: As planned.
        level: Compress anew at this level of zstd; None leaves objects as they are stored.

    Yields:
        The bytes of the packs of each group, once it is done.

    Raises:
        EnvironmentFailure: The new packs cannot be written; nothing is lost.
    """
    recode = None if level is None else _Recoder(level)
    for group in groups:
        write_anew(store, group, recode=recode)
        yield sum(pack.size for pack in group)


class _Recoder:
    """Compresses stored objects anew; what is not what it should be is left as it is."""

    def __init__(self, level: int) -> None:
        self._compressor = Compressor(level)
        self._decompressor = Decompressor()

    def __call__(self, digest: bytes, stored: bytes, size: int, encoding: int) -> tuple[bytes, int]:
        if encoding == CHUNKS:
            return stored, encoding
        try:
            data = stored if encoding == RAW else self._decompressor.decode(stored, size)
        except FormatError:
            return stored, encoding
        if raw_hash(data) != digest:
            return stored, encoding
        return self._compressor.encode(data)
