"""Changing a tree without its files: only the pages that a change touches are written again.

The result is the tree that building it anew from its entries would give, byte for byte.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from cas.digest import Digest
from cas.errors import NotFoundError, RefusedError
from cas.manifests.builder import TreeBuilder
from cas.manifests.reading import MAX_DEPTH, Finder, leaf_pages, leaves, read_child, read_page
from cas.manifests.tree import (
    DIR,
    LEAF_ENTRIES,
    Child,
    Entry,
    Leaf,
    Node,
    Put,
    Read,
    TreeRef,
    encode_leaf,
    starts_page,
)
from cas.names import MEMORY, check_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

NewEntry = tuple[str, int, bytes, int]
"""Type, size, digest and recursive number of files (1 for what is not a directory)."""

_EMPTY: Final = Leaf(0, 0, ())


class _Directory:
    """A directory that an edit touches.

    Attributes:
        finder: Looks into what is there now; a directory that does not exist yet is empty.
        old: What is there now under the names that were looked up.
        removed: Names to take out.
        put: Names to put in; a directory that is itself edited gets here when it is done.
    """

    __slots__ = ("finder", "old", "put", "removed")

    def __init__(self, finder: Finder) -> None:
        self.finder = finder
        self.old: dict[bytes, Entry | None] = {}
        self.removed: set[bytes] = set()
        self.put: dict[bytes, NewEntry] = {}

    def find(self, name: bytes) -> Entry | None:
        """Return the entry that will be there as far as the plan goes."""
        planned = self.put.get(name)
        if planned is not None:
            return name, planned[0], planned[1], planned[2]
        if name in self.removed:
            return None
        if name not in self.old:
            self.old[name] = self.finder.find(name)
        return self.old[name]


def edit_tree(
    read: Read,
    put: Put,
    tree: bytes,
    puts: Mapping[bytes, NewEntry],
    removals: Iterable[bytes],
) -> TreeRef:
    """Return a tree like `tree` with some paths removed and then some put in.

    Directories on the way to what is put are made. A directory that loses its last entry stays,
    empty.

    Args:
        read: Gives objects.
        put: Stores new pages.
        tree: Digest of the tree to begin from.
        puts: What to put where. A directory may be put in place of a directory, anything else in
            place of anything that is no directory.
        removals: What to remove; a directory goes with all that is in it.

    Raises:
        NotFoundError: A path to remove does not exist.
        NameRefusedError: A path that cannot be in a tree.
        RefusedError: A put below or in place of something that it does not fit, two puts of which
            one lies below the other, or a path deeper than `MAX_DEPTH`.
        FormatError: A malformed tree on the way.
    """
    plan = _Plan(read, tree)
    for path in sorted(set(removals)):
        plan.remove(path)
    for path in sorted(puts):
        plan.put(path, puts[path])
    return plan.carry_out(put)


class _Plan:
    """The directories that an edit touches, by path."""

    def __init__(self, read: Read, tree: bytes) -> None:
        self._read = read
        self._directories = {b"": self._open(tree)}

    def _open(self, digest: bytes | None) -> _Directory:
        page = _EMPTY if digest is None else read_page(self._read, digest)
        return _Directory(Finder(self._read, page))

    def _directory(self, path: bytes, target: bytes, *, create: bool) -> _Directory:
        """Return the directory at a path, with all above it."""
        directory = self._directories[b""]
        if not path:
            return directory
        here = b""
        parts = path.split(b"/")
        if len(parts) >= MAX_DEPTH:
            raise RefusedError(f"a path of {len(parts) + 1} names is deeper than {MAX_DEPTH}")
        for name in parts:
            here = here + b"/" + name if here else name
            below = self._directories.get(here)
            if below is None:
                entry = directory.find(name)
                if entry is None and create:
                    below = self._open(None)
                elif entry is None:
                    raise NotFoundError(f"{_text(target)} not found", path=os.fsdecode(target))
                elif entry[1] != DIR or name in directory.put:
                    kind = NotFoundError if not create else RefusedError
                    why = "is put itself" if name in directory.put else "is not a directory"
                    raise kind(
                        f"{_text(target)} cannot be there: {_text(here)} {why}",
                        path=os.fsdecode(target),
                    )
                else:
                    below = self._open(entry[3])
                self._directories[here] = below
            directory = below
        return directory

    def remove(self, path: bytes) -> None:
        parent, name = _split(path)
        directory = self._directory(parent, path, create=False)
        if directory.find(name) is None:
            raise NotFoundError(f"{_text(path)} not found", path=os.fsdecode(path))
        directory.removed.add(name)

    def put(self, path: bytes, entry: NewEntry) -> None:
        parent, name = _split(path)
        if MEMORY in path.split(b"/"):
            raise RefusedError(
                f"{_text(path)} cannot be put: {os.fsdecode(MEMORY)} is the name of a workspace's "
                "own memory",
                path=os.fsdecode(path),
            )
        directory = self._directory(parent, path, create=True)
        if path in self._directories:
            raise RefusedError(
                f"{_text(path)} cannot be put: something in it is changed too",
                path=os.fsdecode(path),
            )
        old = directory.find(name)
        if old is not None and (old[1] == DIR) != (entry[0] == DIR):
            there = "a directory" if old[1] == DIR else "no directory"
            raise RefusedError(
                f"{_text(path)} is {there}: remove it first, or put it elsewhere",
                path=os.fsdecode(path),
            )
        directory.put[name] = entry

    def carry_out(self, put: Put) -> TreeRef:
        """Write the directories, deepest first."""
        deepest_first = sorted(self._directories, key=_depth, reverse=True)
        for path in deepest_first:
            directory = self._directories[path]
            ref = _edit_directory(self._read, put, directory)
            if not path:
                return ref
            parent, _, name = path.rpartition(b"/")
            self._directories[parent].put[name] = (DIR, ref.bytes, ref.digest, ref.files)
        raise AssertionError("unreachable: the root is in every plan")


def _depth(path: bytes) -> int:
    return path.count(b"/") + 1 if path else 0


def _split(path: bytes) -> tuple[bytes, bytes]:
    check_path(path)
    if not path:
        raise RefusedError("the root of a tree cannot be put or removed")
    parent, _, name = path.rpartition(b"/")
    return parent, name


def _text(path: bytes) -> str:
    return repr(os.fsdecode(path))


def _edit_directory(read: Read, put: Put, directory: _Directory) -> TreeRef:
    page = directory.finder.page
    changes: dict[bytes, NewEntry | None] = dict.fromkeys(directory.removed)
    changes.update(directory.put)
    count, files = _totals(page)
    for name, new in changes.items():
        old = directory.old[name]
        if old is not None:
            count -= 1
            files -= _files(read, old)
        if new is not None:
            count += 1
            files += new[3] if new[0] == DIR else 1
    if count <= LEAF_ENTRIES:
        merged = [row for row, _ in _merge(_all(read, page), sorted(changes), changes)]
        total = sum([row[2] for row in merged])
        return TreeRef(Digest(put(encode_leaf(merged, files, total))), files, total)
    builder = TreeBuilder(put)
    if isinstance(page, Leaf):
        _add(read, builder, _merge(page.entries, sorted(changes), changes))
    else:
        _edit_pages(read, builder, page, changes)
    return builder.finish()


def _totals(page: Leaf | Node) -> tuple[int, int]:
    if isinstance(page, Leaf):
        return len(page.entries), page.files
    return sum([child[1] for child in page.children]), page.files


def _files(read: Read, entry: Entry) -> int:
    """Return the recursive number of files of an entry, which for a directory its root says."""
    return read_page(read, entry[3]).files if entry[1] == DIR else 1


def _all(read: Read, page: Leaf | Node) -> Iterator[Entry]:
    for leaf in leaves(read, page):
        yield from leaf.entries


def _merge(
    old: Iterable[Entry], names: Sequence[bytes], changes: Mapping[bytes, NewEntry | None]
) -> Iterator[tuple[Entry, int | None]]:
    """Yield the entries of `old` with the changes of `names` made, in order.

    With each comes its recursive number of files, or None where only its tree can tell.
    """
    at = 0
    for entry in old:
        while at < len(names) and names[at] <= entry[0]:
            yield from _new(names[at], changes)
            at += 1
        if entry[0] not in changes:
            yield entry, None
    for name in names[at:]:
        yield from _new(name, changes)


def _new(
    name: bytes, changes: Mapping[bytes, NewEntry | None]
) -> Iterator[tuple[Entry, int | None]]:
    new = changes[name]
    if new is not None:
        yield (name, new[0], new[1], new[2]), new[3]


def _add(read: Read, builder: TreeBuilder, rows: Iterable[tuple[Entry, int | None]]) -> None:
    for entry, files in rows:
        builder.add(*entry, files=_files(read, entry) if files is None else files)


def _edit_pages(
    read: Read, builder: TreeBuilder, root: Node, changes: Mapping[bytes, NewEntry | None]
) -> None:
    """Give a builder the pages of a large directory with changes, whole where they are untouched.

    A page that begins because of its first name begins there whatever comes before. So the pages
    fall into runs that begin so, and a run without a change is what it was. A run whose first name
    goes becomes part of the run before it.
    """
    names = sorted(changes)
    at = 0
    for run, after in _runs(leaf_pages(read, root)):
        until = len(names) if after is None else bisect_left(names, after, lo=at)
        goes_on = after is not None and after in changes and changes[after] is None
        if until == at and not goes_on:
            for child, _ in run:
                builder.add_page(child)
            continue
        old = (row for child, end in run for row in _rows(read, child, end))
        _add(read, builder, _merge(old, names[at:until], changes))
        at = until


def _runs(
    pages: Iterable[Child],
) -> Iterator[tuple[list[tuple[Child, bytes | None]], bytes | None]]:
    """Group leaves into runs that begin because of their first name.

    Yields:
        A run, each leaf with the first name of the leaf after it, and the first name after the run.
    """
    run: list[tuple[Child, bytes | None]] = []
    last: Child | None = None
    for page in pages:
        if last is not None:
            run.append((last, page[0]))
            if starts_page(page[0]):
                yield run, page[0]
                run = []
        last = page
    if last is not None:
        run.append((last, None))
        yield run, None


def _rows(read: Read, child: Child, end: bytes | None) -> tuple[Entry, ...]:
    page = read_child(read, child, 1, end)
    return page.entries if isinstance(page, Leaf) else ()
