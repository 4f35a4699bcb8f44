"""Sweeping: taking objects that nobody needs off the disk, and second copies of others.

First what frees space and needs none: loose objects, and packs of which nothing is needed. Then
packs that hold more are written anew without the rest, a few at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cas.backends import Missing
from cas.errors import DiskFullError, EnvironmentFailure, FormatError
from cas.objects.entries import ENTRY
from cas.objects.loose import PREFIX as LOOSE
from cas.objects.loose import loose_digest, loose_key
from cas.objects.pack import PREFIX as PACKS
from cas.objects.pack import pack_digest, pack_key
from cas.objects.rewriting import drop_packs, write_anew

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cas.digest import Digest
    from cas.objects.pack import Covered
    from cas.objects.store import ObjectStore

_WORTH: Final = 8
"""A large pack is written anew when this part of it, one in so many bytes, would go."""


class Waste(NamedTuple):
    """What of a pack would go.

    Attributes:
        pack: The pack.
        objects: Objects in it that nobody needs.
        bytes: Bytes that they take in the pack, together with second copies of others.
        whole: Whether nothing in it is needed.
    """

    pack: Covered
    objects: int
    bytes: int
    whole: bool


class Survey(NamedTuple):
    """What of a store would go.

    Attributes:
        loose: Loose objects that nobody needs: digest and size.
        packs: Packs that are deleted or written anew.
        objects: How many objects there are in all, a second copy counted again.
        young: How many objects nobody needs that are too young to go, and their bytes.
        left: The same of those that stay in packs that hardly hold any.
        damaged: Packs whose index cannot be read; they stay.
    """

    loose: list[tuple[Digest, int]]
    packs: list[Waste]
    objects: int
    young: tuple[int, int]
    left: tuple[int, int]
    damaged: list[str]

    @property
    def waste(self) -> tuple[int, int]:
        """How many objects would go, and what they take, second copies of others included."""
        sizes = [size for _, size in self.loose]
        return (
            len(sizes) + sum(waste.objects for waste in self.packs),
            sum(sizes) + sum(waste.bytes for waste in self.packs),
        )


class Needed:
    """What is needed, and which of it was met already.

    Args:
        place: Says of a digest which of the objects that are needed it is, counted from 0, or None.
        count: How many of them there are.
    """

    def __init__(self, place: Callable[[bytes], int | None], count: int) -> None:
        """Meet nothing yet."""
        self._place = place
        self._met = bytearray(count)

    def __contains__(self, digest: bytes) -> bool:
        """Say whether an object is needed."""
        return self._place(digest) is not None

    def meet(self, digest: bytes) -> bool | None:
        """Say whether an object is needed and met for the first time; None if it is not needed."""
        place = self._place(digest)
        if place is None:
            return None
        first = not self._met[place]
        self._met[place] = 1
        return first


def survey(store: ObjectStore, needed: Needed, before_ns: int) -> Survey:
    """See what would go.

    Args:
        store: The objects, just reloaded.
        needed: What stays.
        before_ns: Only what was placed until this time, by the backend's clock, may go.
    """
    store.index.complete()
    placed: dict[bytes, int] = {
        digest: entry.modified_ns
        for entry in store.backend.list(PACKS)
        if (digest := pack_digest(entry.key)) is not None
    }
    # Of second copies those go that lie in packs that may, and of these in the smaller ones.
    order = sorted(
        (pack for pack in store.index.covered.values() if pack.digest in placed),
        key=lambda pack: (placed[pack.digest] <= before_ns, -pack.size, pack.digest),
    )
    packs: list[Waste] = []
    damaged: list[str] = []
    young, left = [0, 0], [0, 0]
    objects = 0
    for pack in order:
        try:
            _, index = store.open_packs.index(pack.digest)
        except (Missing, FormatError, EnvironmentFailure):
            damaged.append(pack_key(pack.digest))
            continue
        old = placed[pack.digest] <= before_ns
        dead = size = again = 0
        for digest, _, _, stored, _, _, _, _ in ENTRY.iter_unpack(index):
            first = needed.meet(digest)
            if first is None:
                dead, size = dead + 1, size + stored
            elif not first:
                again += stored
        objects += pack.entries
        if not old:
            young[0], young[1] = young[0] + dead, young[1] + size
        elif _pays(pack, size + again, store.pack_target):
            packs.append(Waste(pack, dead, size + again, dead == pack.entries))
        else:
            left[0], left[1] = left[0] + dead, left[1] + size
    loose: list[tuple[Digest, int]] = []
    for entry in store.backend.list(LOOSE):
        found = loose_digest(entry.key)
        if found is None:
            continue
        objects += 1
        if found in needed:
            continue
        if entry.modified_ns <= before_ns:
            loose.append((found, entry.size))
        else:
            young[0], young[1] = young[0] + 1, young[1] + entry.size
    return Survey(loose, packs, objects, (young[0], young[1]), (left[0], left[1]), damaged)


def _pays(pack: Covered, size: int, target: int) -> bool:
    """Say whether a pack is worth writing anew: a small one always is, and costs little."""
    return size > 0 and (pack.size < target // 4 or size * _WORTH >= pack.stored)


def sweep(store: ObjectStore, found: Survey, needed: Needed) -> Iterator[tuple[int, int]]:
    """Take off the disk what a survey found, step by step.

    Nobody else may place, merge or delete objects meanwhile.

    Args:
        store: The objects.
        found: What goes.
        needed: What stays.

    Yields:
        How many objects, and how many bytes, a step took away. Where the disk is too full to write
        packs anew, none for these.

    Raises:
        EnvironmentFailure: Something cannot be deleted or written; nothing that is needed is lost.
    """
    backend = store.backend
    for digest, size in found.loose:
        backend.delete(loose_key(digest))
        store.loose.forget(digest)
        yield 1, size
    whole = [waste for waste in found.packs if waste.whole]
    drop_packs(store, frozenset(waste.pack.digest for waste in whole))
    yield sum(waste.objects for waste in whole), sum(waste.bytes for waste in whole)
    mixed = [waste for waste in found.packs if not waste.whole]
    for group in _groups(mixed, store.pack_target):
        try:
            packs = [waste.pack for waste in group]
            gone = write_anew(store, packs, needed=needed.__contains__)
        except DiskFullError:
            store.reload()
            return
        done = [waste for waste in group if waste.pack.digest in gone]
        yield sum(waste.objects for waste in done), sum(waste.bytes for waste in done)


def _groups(mixed: list[Waste], target: int) -> Iterator[list[Waste]]:
    """Give packs in groups that come to about one new pack, those that need the least first."""
    group: list[Waste] = []
    total = 0
    for waste in sorted(mixed, key=lambda waste: (waste.pack.stored - waste.bytes, waste.pack)):
        stays = waste.pack.stored - waste.bytes
        if group and total + stays > target:
            yield group
            group, total = [], 0
        group.append(waste)
        total += stays
    if group:
        yield group
