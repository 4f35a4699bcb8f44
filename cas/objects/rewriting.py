"""Writing packs anew, and taking packs away, such that nobody misses what is needed.

Write order: the new packs durable, then the tables that spoke of the old ones are replaced, then
the old packs go. Killed at any point, every object that is needed is found, and no table speaks of
one that is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.errors import DiskFullError
from cas.objects.mending import replace_tables
from cas.objects.merging import copy_packs
from cas.objects.pack import pack_key
from cas.objects.table import table_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cas.objects.pack import Covered
    from cas.objects.store import ObjectStore


def write_anew(
    store: ObjectStore,
    group: Sequence[Covered],
    *,
    needed: Callable[[bytes], bool] = lambda _digest: True,
    recode: Callable[[bytes, bytes, int, int], tuple[bytes, int]] | None = None,
) -> frozenset[bytes]:
    """Write the objects of a group of packs into new ones, and delete the old ones.

    Nobody else may place, merge or delete packs meanwhile.

    Args:
        store: Where they are.
        group: The packs. One that is damaged stays.
        needed: As for `copy_packs`.
        recode: As for `copy_packs`.

    Returns:
        The packs that are gone.

    Raises:
        EnvironmentFailure: The new packs cannot be written; nothing is lost.
    """
    going: set[bytes] = set()
    copy_packs(store, group, going, needed=needed, recode=recode)
    return drop_packs(store, frozenset(going))


def drop_packs(store: ObjectStore, packs: frozenset[bytes]) -> frozenset[bytes]:
    """Delete packs of which nothing is needed any more, and return them.

    Where the disk is too full for other tables, those that speak of them go all the same: the packs
    that stay are then asked themselves until the next table is written.
    """
    if not packs:
        return packs
    try:
        replace_tables(store, (), packs)
    except DiskFullError:
        store.reload()
        for table in store.index.tables:
            if any(pack.digest in packs for pack in table.packs):
                store.backend.delete(table_key(table.digest))
    for digest in packs:
        store.backend.delete(pack_key(digest))
    store.reload()
    store.index.complete()
    return packs
