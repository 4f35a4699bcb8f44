"""Building the tree of one directory from its entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.digest import Digest
from cas.errors import FormatError, RefusedError
from cas.manifests.tree import (
    DIR,
    LEAF_ENTRIES,
    PAGE_ENTRIES,
    Child,
    Entry,
    Put,
    TreeRef,
    check_names,
    encode_leaf,
    leaf_starts,
    starts_page,
    store_leaf,
    store_node,
)
from cas.names import check_entry_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_BATCH: Final = 4096


class TreeBuilder:
    """Makes the pages of one directory from its entries in order, in bounded memory.

    Entries are checked in batches, so a wrong one may be refused by a later call than the one that
    brought it; no tree with it comes out.

    Args:
        put: Stores a page and gives its digest.
    """

    __slots__ = ("_files", "_last", "_levels", "_limit", "_paged", "_put", "_rows", "_seen")

    def __init__(self, put: Put) -> None:
        """Start with an empty directory."""
        self._put = put
        self._rows: list[Entry] = []
        self._files: dict[bytes, int] = {}
        self._seen = 0
        self._limit = _BATCH
        self._last = b""
        self._paged = False
        self._levels: list[list[Child]] = []

    def add(self, name: bytes, type_: str, size: int, digest: bytes, files: int = 1) -> None:
        """Add the next entry.

        Args:
            name: Greater than the name before.
            type_: One of `FILE`, `EXEC`, `LINK`, `DIR`.
            size: Bytes; of a directory the recursive sum.
            digest: Of the blob or tree.
            files: Recursive count of what is not a directory; of interest for `DIR` only.

        Raises:
            RefusedError: This or an earlier entry has a name that no file can have, is out of
                order or there twice, is of unknown type, or has a size or digest that cannot be.
        """
        rows = self._rows
        rows.append((name, type_, size, digest))
        if type_ == DIR:
            self._files[name] = files
        if len(rows) >= self._limit:
            self._cut()

    def extend(self, rows: Iterable[Entry]) -> None:
        """Add the next entries, none of which is a directory.

        Raises:
            RefusedError: As for `add`.
        """
        self._rows.extend(rows)
        if len(self._rows) >= self._limit:
            self._cut()

    def add_page(self, page: Child) -> None:
        """Add a whole stored leaf of a large directory.

        The caller knows that it is a page there: its first name begins one, and so does the first
        name that comes after it. A directory to which one was added is stored in pages.
        """
        self._paged = True
        self._cut()
        self._flush(self._rows)
        self._rows, self._seen = [], 0
        self._last = page[0]
        self._add_child(0, page)

    def finish(self) -> TreeRef:
        """Store what is left and return the tree. The builder is spent.

        Raises:
            RefusedError: As for `add`.
        """
        self._cut()
        rows = self._rows
        if not self._paged:
            files, total = self._count(rows), sum([row[2] for row in rows])
            return TreeRef(Digest(self._put(encode_leaf(rows, files, total))), files, total)
        self._flush(rows)
        level = 0
        while True:
            pages = self._levels[level]
            if len(pages) == 1 and level + 1 == len(self._levels):
                _, _, files, total, digest = pages[0]
                return TreeRef(Digest(digest), files, total)
            level += 1
            self._add_child(level, store_node(self._put, level, pages))

    def _cut(self) -> None:
        """Check the entries that came since the last cut, and store the pages they complete."""
        rows = self._rows
        names = [row[0] for row in rows]
        self._check(names)
        if len(rows) > LEAF_ENTRIES:
            self._paged = True
        if self._paged:
            start = 0
            for at in (*leaf_starts(names[self._seen :]), len(names) - self._seen):
                end = at + self._seen
                while end - start > PAGE_ENTRIES:
                    self._flush(rows[start : start + PAGE_ENTRIES])
                    start += PAGE_ENTRIES
                if end < len(rows):
                    self._flush(rows[start:end])
                    start = end
            self._rows = rows[start:]
            self._seen = len(self._rows)
            self._limit = self._seen + _BATCH

    def _check(self, names: list[bytes]) -> None:
        try:
            if names:
                check_names(names)
                if names[0] <= self._last:
                    raise FormatError("names are not in strictly ascending order")
        except FormatError:
            last = self._last
            for name in names:
                check_entry_name(name)
                if name <= last:
                    what = "twice" if name == last else "out of order"
                    raise RefusedError(f"entry {name!a} comes {what}") from None
                last = name
            raise

    def _count(self, rows: Sequence[Entry]) -> int:
        """Return the recursive number of files of some entries."""
        if not self._files:
            return len(rows)
        return sum([self._files.pop(row[0]) if row[1] == DIR else 1 for row in rows])

    def _flush(self, rows: Sequence[Entry]) -> None:
        """Store a leaf that is complete, and the nodes that this completes."""
        if rows:
            self._last = rows[-1][0]
            self._add_child(0, store_leaf(self._put, rows, self._count(rows)))

    def _add_child(self, level: int, page: Child) -> None:
        while True:
            if level == len(self._levels):
                self._levels.append([])
            pages = self._levels[level]
            if not pages or not (len(pages) >= PAGE_ENTRIES or starts_page(page[0], level + 1)):
                pages.append(page)
                return
            self._levels[level] = [page]
            level += 1
            page = store_node(self._put, level, pages)
