"""Comparing two trees by digest: what is equal is not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.errors import RefusedError
from cas.manifests.reading import MAX_DEPTH, read_child, read_page
from cas.manifests.tree import DIR, Child, Entry, Leaf, Node, Read

if TYPE_CHECKING:
    from collections.abc import Iterator

Difference = tuple[bytes, Entry | None, Entry | None]
"""A path and its entry on either side; None where there is none."""


def compare(read: Read, a: bytes | None, b: bytes | None) -> Iterator[Difference]:
    """Yield every path at which two trees differ, in the order of a walk.

    A directory that is on both sides is not a difference, only what differs in it is. One that is
    on one side only is yielded, and so is everything in it. Where a directory on one side meets
    something else on the other, that pair is yielded and then what is in the directory.

    Subtrees and pages with equal digests are not read.

    Args:
        read: Gives objects.
        a: Digest of the one tree; None for nothing at all.
        b: Digest of the other.

    Raises:
        FormatError: A malformed tree.
        RefusedError: Nested deeper than `MAX_DEPTH`.
    """
    stack = [(b"", _pairs(read, a, b))]
    while stack:
        prefix, pairs = stack[-1]
        for old, new in pairs:
            path = prefix + (old or new or _NO_ENTRY)[0]
            below_a = old[3] if old is not None and old[1] == DIR else None
            below_b = new[3] if new is not None and new[1] == DIR else None
            if below_a is None or below_b is None:
                yield path, old, new
            if below_a is not None or below_b is not None:
                if len(stack) >= MAX_DEPTH:
                    raise RefusedError(f"tree is nested deeper than {MAX_DEPTH} directories")
                stack.append((path + b"/", _pairs(read, below_a, below_b)))
                break
        else:
            stack.pop()


Pair = tuple[Entry | None, Entry | None]


def _pairs(read: Read, a: bytes | None, b: bytes | None) -> Iterator[Pair]:
    """Yield the entries of one directory that differ between two sides, matched by name."""
    if a == b:
        return iter(())
    left = read_page(read, a) if a is not None else _NOTHING
    right = read_page(read, b) if b is not None else _NOTHING
    if isinstance(left, Leaf) and isinstance(right, Leaf):
        return _pairs_of_leaves(left.entries, right.entries)
    return _pairs_of_pages(_Side(read, left), _Side(read, right))


_NO_ENTRY: Final[Entry] = (b"", DIR, 0, b"")
_NOTHING: Final = Leaf(0, 0, ())


def _pairs_of_leaves(left: tuple[Entry, ...], right: tuple[Entry, ...]) -> Iterator[Pair]:
    old = {entry[0]: entry for entry in set(left).difference(right)}
    new = {entry[0]: entry for entry in set(right).difference(left)}
    for name in sorted(old.keys() | new.keys()):
        yield old.get(name), new.get(name)


def _pairs_of_pages(left: _Side, right: _Side) -> Iterator[Pair]:
    while True:
        one, other = left.level, right.level
        if one == other == 0:
            if left.name < right.name:
                yield left.take(), None
            elif left.name > right.name:
                yield None, right.take()
            else:
                old, new = left.take(), right.take()
                if old != new:
                    yield old, new
        elif one < 0 and other < 0:
            return
        elif one == 0 and (other < 0 or left.name < right.name):
            yield left.take(), None
        elif other == 0 and (one < 0 or right.name < left.name):
            yield None, right.take()
        elif one == other and left.digest == right.digest:
            left.skip()
            right.skip()
        elif one > other or (one == other and left.name <= right.name):
            left.open()
        else:
            right.open()


class _Side:
    """One side of a comparison: a position in a directory, before an entry or a whole page.

    Attributes:
        level: 0 before an entry, the level of its node before a page, -1 at the end.
        name: The name of that entry, or the first one of that page.
        digest: Of that page.
    """

    __slots__ = ("_at", "_leaf", "_nodes", "_read", "digest", "level", "name")

    def __init__(self, read: Read, page: Leaf | Node) -> None:
        self._read = read
        self._nodes: list[tuple[Node, int, bytes | None]] = []
        self._leaf: tuple[Entry, ...] = ()
        self._at = 0
        self._enter(page, None)

    def _enter(self, page: Leaf | Node, end: bytes | None) -> None:
        if isinstance(page, Leaf):
            self._leaf, self._at = page.entries, 0
        else:
            self._nodes.append((page, 0, end))
        self._look()

    def _look(self) -> None:
        if self._at < len(self._leaf):
            self.level = 0
            self.name = self._leaf[self._at][0]
            return
        while self._nodes:
            node, at, _ = self._nodes[-1]
            if at < len(node.children):
                self.level = node.level
                self.name = node.children[at][0]
                self.digest = node.children[at][4]
                return
            self._nodes.pop()
        self.level = -1

    def take(self) -> Entry:
        """Return the entry here and go past it."""
        entry = self._leaf[self._at]
        self._at += 1
        self._look()
        return entry

    def skip(self) -> None:
        """Go past the page here."""
        self._past()
        self._look()

    def open(self) -> None:
        """Go before the first row of the page here."""
        child, level, end = self._past()
        self._enter(read_child(self._read, child, level, end), end)

    def _past(self) -> tuple[Child, int, bytes | None]:
        node, at, end = self._nodes[-1]
        self._nodes[-1] = (node, at + 1, end)
        if at + 1 < len(node.children):
            end = node.children[at + 1][0]
        return node.children[at], node.level, end
