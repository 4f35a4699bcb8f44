"""Reading trees: one entry, one directory, everything below; page by page, in bounded memory.

Everything here believes nothing that a page says of the pages below it: each page is compared with
what the node above says (first name, counts, order), each directory with the entry that names it.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from itertools import chain
from typing import TYPE_CHECKING, Final

from cas.errors import FormatError, NotFoundError, RefusedError
from cas.manifests.tree import DIR, Child, Entry, Leaf, Node, Read, parse_tree
from cas.names import check_path

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH: Final = 1000
"""How deep directories may nest."""


def read_page(read: Read, digest: bytes) -> Leaf | Node:
    """Read the root page of a tree.

    Raises:
        FormatError: Not a tree; the message names the digest.
    """
    try:
        page = parse_tree(read(digest))
        if isinstance(page, Node) and len(page.children) < 2:
            raise FormatError("tree is malformed: its root is a node of one page")
    except FormatError as error:
        raise FormatError(f"{error} (tree {digest.hex()})", digest=digest.hex()) from None
    return page


def read_child(read: Read, child: Child, level: int, end: bytes | None = None) -> Leaf | Node:
    """Read a page and check all that the node above says of it.

    Args:
        read: Gives objects.
        child: What the node of `level` says of the page.
        level: The level of that node.
        end: The first name of the page after it, if there is one.

    Raises:
        FormatError: Not such a page.
    """
    first, count, files, total, digest = child
    try:
        page = parse_tree(read(digest))
        if isinstance(page, Leaf):
            rows: tuple[Entry, ...] | tuple[Child, ...] = page.entries
            entries = len(page.entries)
            below = 0
        else:
            rows = page.children
            entries = sum([row[1] for row in page.children])
            below = page.level
        if below != level - 1 or not rows:
            raise FormatError("tree is malformed: a page is at the wrong level")
        if (rows[0][0], entries, page.files, page.bytes) != (first, count, files, total):
            raise FormatError("tree is malformed: a page is not what its node says")
        if end is not None and rows[-1][0] >= end:
            raise FormatError("tree is malformed: pages overlap")
    except FormatError as error:
        raise FormatError(f"{error} (page {digest.hex()})", digest=digest.hex()) from None
    return page


def leaves(read: Read, page: Leaf | Node) -> Iterator[Leaf]:
    """Yield the leaves below a root page, in order; at most one page of each level is held."""
    if isinstance(page, Leaf):
        yield page
        return
    # A level's stack entry: its node, the next child to read, and where the node's names end.
    stack: list[tuple[Node, int, bytes | None]] = [(page, 0, None)]
    while stack:
        node, at, end = stack.pop()
        child = node.children[at]
        child_end = end
        if at + 1 < len(node.children):
            child_end = node.children[at + 1][0]
            stack.append((node, at + 1, end))
        below = read_child(read, child, node.level, child_end)
        if isinstance(below, Leaf):
            yield below
        else:
            stack.append((below, 0, child_end))


def leaf_pages(read: Read, node: Node, end: bytes | None = None) -> Iterator[Child]:
    """Yield what the lowest nodes below a root node say of the leaves, without reading those."""
    stack = [(node, 0, end)]
    while stack:
        node, at, end = stack.pop()
        if node.level == 1:
            yield from node.children
        elif at < len(node.children):
            stack.append((node, at + 1, end))
            if at + 1 < len(node.children):
                end = node.children[at + 1][0]
            below = read_child(read, node.children[at], node.level, end)
            if isinstance(below, Node):
                stack.append((below, 0, end))


def entries(read: Read, digest: bytes) -> Iterator[Entry]:
    """Yield the entries of one directory, sorted by name, reading page by page.

    Raises:
        FormatError: Not a tree, or a malformed one.
    """
    for leaf in leaves(read, read_page(read, digest)):
        yield from leaf.entries


def lookup(read: Read, digest: bytes, name: bytes) -> Entry | None:
    """Return the entry of this name in one directory, or None; reads one page of each level.

    Raises:
        FormatError: Not a tree, or a malformed one.
    """
    return Finder(read, read_page(read, digest)).find(name)


class Finder:
    """Looks names up in one directory; names in order cost one reading of each page.

    Args:
        read: Gives objects.
        page: The directory's root page.
    """

    __slots__ = ("_end", "_leaf", "_read", "page")

    def __init__(self, read: Read, page: Leaf | Node) -> None:
        """Read nothing yet."""
        self._read = read
        self.page = page
        self._leaf = page if isinstance(page, Leaf) else None
        self._end: bytes | None = None

    def find(self, name: bytes) -> Entry | None:
        """Return the entry of this name, or None.

        Raises:
            FormatError: A malformed page on the way.
        """
        leaf = self._leaf
        if leaf is None or (
            leaf is not self.page
            and (name < leaf.entries[0][0] or (self._end is not None and name >= self._end))
        ):
            leaf = self._descend(name)
            if leaf is None:
                return None
        at = bisect_right(leaf.entries, name, key=_first) - 1
        if at >= 0 and leaf.entries[at][0] == name:
            return leaf.entries[at]
        return None

    def _descend(self, name: bytes) -> Leaf | None:
        page = self.page
        end: bytes | None = None
        while isinstance(page, Node):
            at = bisect_right(page.children, name, key=_first) - 1
            if at < 0:
                return None
            if at + 1 < len(page.children):
                end = page.children[at + 1][0]
            page = read_child(self._read, page.children[at], page.level, end)
        self._leaf, self._end = page, end
        return page


def _first(row: Entry | Child) -> bytes:
    return row[0]


def resolve(read: Read, tree: bytes, path: bytes) -> Entry:
    """Return the entry at a path, never following a link.

    Args:
        read: Gives objects.
        tree: Digest of the directory that the path begins in.
        path: Names joined by ``/``; empty for the directory itself, whose entry has no name.

    Raises:
        NotFoundError: Nothing is there, or what should be a directory on the way is none.
        NameRefusedError: The path has an empty, ``.`` or ``..`` component.
        FormatError: A malformed tree on the way.
    """
    check_path(path)
    page = read_page(read, tree)
    if not path:
        return b"", DIR, page.bytes, bytes(tree)
    parts = path.split(b"/")
    for depth, name in enumerate(parts, 1):
        entry = Finder(read, page).find(name)
        here = b"/".join(parts[:depth])
        if entry is None:
            raise NotFoundError(f"{_text(here)} not found", path=os.fsdecode(here))
        if depth == len(parts):
            return entry
        if entry[1] != DIR:
            raise NotFoundError(
                f"{_text(path)} not found: {_text(here)} is not a directory",
                path=os.fsdecode(path),
            )
        page = read_page(read, entry[3])
        if page.bytes != entry[2]:
            raise _wrong_size(here)
    raise AssertionError("unreachable: a path has at least one part")


def _text(path: bytes) -> str:
    return repr(os.fsdecode(path))


def _wrong_size(path: bytes) -> FormatError:
    return FormatError(
        f"tree is malformed: directory {_text(path)} is not of the size that its entry says",
        path=os.fsdecode(path),
    )


def walk(read: Read, digest: bytes) -> Iterator[tuple[bytes, Entry]]:
    """Yield everything below a tree as (path, entry), each directory before what is in it.

    Siblings come in the order of their names. A tree deeper than `MAX_DEPTH` is refused, and so is
    one whose directories do not add up to what their entries say.

    Raises:
        RefusedError: Nested deeper than `MAX_DEPTH`.
        FormatError: A malformed tree; a directory's sums are checked when all of it was yielded.
    """
    stack = [_Level(b"", read_page(read, digest), read)]
    while stack:
        level = stack[-1]
        prefix = level.prefix
        for entry in level.rows:
            path = prefix + entry[0]
            if entry[1] != DIR:
                level.files += 1
                yield path, entry
                continue
            if len(stack) >= MAX_DEPTH:
                raise RefusedError(
                    f"tree {digest.hex()} is nested deeper than {MAX_DEPTH} directories",
                    digest=digest.hex(),
                )
            page = read_page(read, entry[3])
            if page.bytes != entry[2]:
                raise _wrong_size(path)
            level.files += page.files
            yield path, entry
            path += b"/"
            if isinstance(page, Leaf) and not page.directories:
                for below in page.entries:
                    yield path + below[0], below
                continue
            stack.append(_Level(path, page, read))
            break
        else:
            if level.files != level.claimed:
                raise FormatError(
                    f"tree is malformed: directory {_text(prefix[:-1])} has "
                    f"{level.files} files and says {level.claimed}",
                    path=os.fsdecode(prefix[:-1]),
                )
            stack.pop()


class _Level:
    """One directory of a walk that is under way."""

    __slots__ = ("claimed", "files", "prefix", "rows")

    def __init__(self, prefix: bytes, page: Leaf | Node, read: Read) -> None:
        self.prefix = prefix
        self.claimed = page.files
        self.files = 0
        self.rows = chain.from_iterable(leaf.entries for leaf in leaves(read, page))
