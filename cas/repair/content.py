"""Healing objects: good copies take the place of bad ones, and missing ones come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.backends import Missing
from cas.digest import Digest
from cas.errors import CasError
from cas.manifests import DIR, Leaf, parse_tree
from cas.objects import mend_pack, replace_tables
from cas.objects.loose import loose_digest
from cas.objects.pack import pack_digest
from cas.repair.quarantine import FOLDER, put_aside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.catalogue.context import Context
    from cas.maintenance.report import Problem
    from cas.repair.result import Diary
    from cas.repair.sources import Sources

_PAGE: Final = 2 << 20
"""Bytes of a page of a tree, at most."""


class Healer:
    """Heals the objects of a store that nobody else writes to.

    Args:
        context: The store.
        sources: Where good copies come from.
        diary: Takes note of what is done.
    """

    def __init__(self, context: Context, sources: Sources, diary: Diary) -> None:
        """Heal nothing yet."""
        self._context = context
        self._objects = context.objects
        self._sources = sources
        self._diary = diary

    def heal(self, problems: Iterable[Problem]) -> None:
        """Heal what a verification found, as far as it is about objects."""
        packs: dict[bytes, str] = {}
        loose: dict[bytes, str] = {}
        tables: list[str] = []
        missing: list[bytes] = []
        for problem in problems:
            key = problem.location.partition(":")[0]
            pack, blob = pack_digest(key), loose_digest(key)
            if pack is not None:
                if problem.kind == "missing" and problem.digest is not None:
                    missing.append(problem.digest)
                packs[pack] = key
            elif blob is not None:
                loose[blob] = key
            elif key.startswith("index/"):
                tables.append(key)
            elif problem.digest is not None:
                missing.append(problem.digest)
        self._objects.reload()
        self._objects.index.complete()
        self._heal_packs(packs, tables)
        for digest, key in loose.items():
            self._heal_loose(digest, key)
        self.bring(missing)

    # --- packs and tables ----------------------------------------------------------------------

    def _heal_packs(self, packs: dict[bytes, str], tables: list[str]) -> None:
        if not packs and not tables:
            return
        lost: dict[bytes, list[Digest]] = {}
        for pack, key in packs.items():
            mended = mend_pack(self._objects, pack, self._sources.read)
            lost[pack] = mended.lost
            for digest in mended.fetched:
                self._diary.heal(key, digest, f"replaced from {self._sources.used[digest]}")
            self._objects.reload()
            self._objects.index.complete()
        replace_tables(self._objects, tables, frozenset(packs))
        for key in tables:
            self._diary.heal(key, None, "made anew from the packs")
        for pack, key in packs.items():
            self._drop_pack(pack, key, lost[pack])
        self._objects.reload()

    def _drop_pack(self, pack: bytes, key: str, lost: list[Digest]) -> None:
        """Take a pack away all of whose good objects lie elsewhere now."""
        if not any(digest == pack for digest, _ in self._objects.packs()):
            self._diary.heal(key, None, "was missing; what it held was brought back")
        elif lost:
            self._diary.quarantined.append(put_aside(self._context.backend, key))
        else:
            self._context.backend.delete(key)
            self._diary.heal(key, None, "made anew")

    # --- loose objects -------------------------------------------------------------------------

    def _heal_loose(self, digest: bytes, key: str) -> None:
        """Put a good copy in the place of a bad one, which is kept until there is one."""
        try:
            with self._objects.loose.open(digest) as reader:
                self._objects.loose.prove(digest, reader)
            return
        except Missing:
            aside = None
        except CasError:
            self._objects.loose.forget(digest)
            aside = put_aside(self._context.backend, key)
        self.bring([digest], key)
        if aside is not None:
            if self._is_there(digest):
                self._context.backend.delete(aside)
            else:
                self._diary.quarantined.append(aside)

    # --- missing objects -----------------------------------------------------------------------

    def bring(self, digests: Iterable[bytes], location: str = "nowhere in the store") -> None:
        """Bring objects that lie nowhere, and what is missing below those that are trees."""
        waiting = list(dict.fromkeys(digests))
        with self._objects.writer() as writer:
            while waiting:
                brought = []
                for digest in waiting:
                    if not self._is_lacking(digest):
                        continue
                    if self._sources.copy(digest, writer):
                        how = f"brought from {self._sources.used[digest]}"
                        self._diary.heal(location, Digest(digest), how)
                        brought.append(digest)
                writer.flush()
                below = [child for digest in brought for _, child in self._below(digest)]
                waiting = self._lacking(dict.fromkeys(below))

    def complete(self, tree: bytes) -> bool:
        """See to it that everything below a tree is there; False where that cannot be done."""
        waiting = {tree}
        seen = set(waiting)
        while waiting:
            below = {child for digest in waiting for child in self._below(digest)}
            lacking = self._lacking({digest for _, digest in below} | waiting)
            self.bring(lacking)
            if self._lacking(lacking):
                return False
            waiting = {digest for is_tree, digest in below if is_tree} - seen
            seen |= waiting
        return True

    def _lacking(self, digests: Iterable[bytes]) -> list[bytes]:
        return [digest for digest in digests if self._is_lacking(digest)]

    def _is_lacking(self, digest: bytes) -> bool:
        """Say whether an object is to be there and is not."""
        return digest not in self._objects.purged and not self._is_there(digest)

    def _is_there(self, digest: bytes) -> bool:
        """Say whether an object is there, without a second look: nobody else adds any."""
        objects = self._objects
        return objects.index.holds(digest) or objects.loose.size(digest) is not None

    def _below(self, digest: bytes) -> list[tuple[bool, bytes]]:
        """Return what a page of a tree names, and whether it is a page as well."""
        try:
            page = parse_tree(self._objects.read(digest, max_bytes=_PAGE))
        except CasError:
            return []
        if isinstance(page, Leaf):
            return [(kind == DIR, below) for _, kind, _, below in page.entries]
        return [(True, child[4]) for child in page.children]


def tidy_quarantine(context: Context) -> list[str]:
    """Delete what lies in the quarantine of which the store has everything again.

    Returns:
        The keys of what stays.
    """
    staying = []
    for entry in list(context.backend.list(f"{FOLDER}/")):
        digest = loose_digest(entry.key.removeprefix(f"{FOLDER}/").rpartition("-")[0])
        if digest is not None and context.objects.has(digest):
            context.backend.delete(entry.key)
        else:
            staying.append(entry.key)
    return staying
