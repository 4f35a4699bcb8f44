"""The tree: one directory as sorted entries, in pages where there are many.

A directory of at most `LEAF_ENTRIES` entries is one leaf. A larger one is cut into pages, and the
list of its pages again, until one page is left. Where a page begins is decided by the hash of the
name it begins with (and by a cap), so the pages of a directory depend on its names alone, never on
the order of edits, and one change rewrites one leaf and the nodes above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import lt
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas import codec
from cas.digest import DIGEST_SIZE, raw_hash
from cas.errors import FormatError, RefusedError
from cas.manifests.record import MAX_COUNT, check_format
from cas.names import MAX_ENTRY_NAME

if TYPE_CHECKING:
    from cas.digest import Digest

FORMAT: Final = 1
FILE: Final = "f"
EXEC: Final = "x"
LINK: Final = "l"
DIR: Final = "d"
TYPES: Final = frozenset((FILE, EXEC, LINK, DIR))

LEAF_ENTRIES: Final = 1024
"""A directory of no more entries is one leaf, whatever its names."""
PAGE_ENTRIES: Final = 4096
"""Entries or pages that one page holds, at most."""
PAGE_BITS: Final = 8
"""Low zero bits in the hash of a name that begin a page, for each level."""
MAX_LEVEL: Final = 8
"""Levels of nodes above the leaves, at most: enough for every directory there can be."""
MAX_PAGE_BYTES: Final = 2 << 20
"""Bytes of one encoded page, at most: 4096 entries of the longest names fit."""

Entry = tuple[bytes, str, int, bytes]
"""Name, type, size in bytes, digest."""
Read = Callable[[bytes], bytes]
"""Gives the checked bytes of the object of a digest."""
Put = Callable[[bytes], bytes]
"""Stores the bytes of an object and gives their digest."""


class TreeRef(NamedTuple):
    """A tree that was stored: its digest and its recursive totals.

    Attributes:
        digest: Digest of its root page.
        files: Recursive count of what is not a directory.
        bytes: Recursive sum of sizes.
    """

    digest: Digest
    files: int
    bytes: int


Child = tuple[bytes, int, int, int, bytes]
"""A page below a node: first name, number of entries, files, bytes, digest."""


class Leaf(NamedTuple):
    """A page of entries: a whole directory, or one page of a large one.

    Attributes:
        files: Recursive count of what is not a directory.
        bytes: Recursive sum of sizes.
        entries: Sorted by name, each name once.
        directories: How many of the entries are directories.
    """

    files: int
    bytes: int
    entries: tuple[Entry, ...]
    directories: int = 0


class Node(NamedTuple):
    """A page of pages.

    Attributes:
        files: Recursive count of what is not a directory.
        bytes: Recursive sum of sizes.
        level: 1 above leaves, one more above each level of nodes.
        children: Sorted by first name.
    """

    files: int
    bytes: int
    level: int
    children: tuple[Child, ...]


def starts_page(name: bytes, level: int = 0) -> bool:
    """Tell whether a page of this level begins before `name`, wherever it stands.

    Level 0 is that of the leaves. From level 4 on, pages end only when they are full.
    """
    bits = PAGE_BITS * (level + 1)
    return bits <= 32 and not int.from_bytes(raw_hash(name)[:4], "big") & ((1 << bits) - 1)


def leaf_starts(names: Sequence[bytes]) -> list[int]:
    """Return the places of the names before which a leaf begins: `starts_page` for many."""
    mask = (1 << PAGE_BITS) - 1
    return [at for at, name in enumerate(names) if not raw_hash(name)[3] & mask]


def store_leaf(put: Put, entries: Sequence[Entry], files: int) -> Child:
    """Store a leaf and return what a node says of it.

    Args:
        put: Stores the page.
        entries: At least one; sorted, with names that were checked.
        files: Recursive count of what is not a directory.

    Raises:
        RefusedError: An unknown type, a size out of range, or a digest of the wrong length.
    """
    total = sum([entry[2] for entry in entries])
    data = encode_leaf(entries, files, total)
    return entries[0][0], len(entries), files, total, put(data)


def encode_leaf(entries: Sequence[Entry], files: int, total: int) -> bytes:
    """Return the bytes of a leaf; as for `store_leaf`, but there may be no entries."""
    if entries:
        _, types, sizes, digests = zip(*entries, strict=True)
        if (
            not TYPES.issuperset(types)
            or min(sizes) < 0
            or total > MAX_COUNT
            or set(map(len, digests)) != {DIGEST_SIZE}
        ):
            raise RefusedError(
                f"directory of {entries[0][0]!a}: an entry has an unknown type, "
                "a size out of range or a digest of the wrong length"
            )
    return codec.encode_plain(("tree", FORMAT, files, total, entries))


def store_node(put: Put, level: int, children: Sequence[Child]) -> Child:
    """Store a node of `level` over at least one page, and return what the node above says of it."""
    firsts, counts, filess, totals, _ = zip(*children, strict=True)
    files, total = sum(filess), sum(totals)
    data = codec.encode_plain(("tree-node", FORMAT, files, total, level, children))
    return firsts[0], sum(counts), files, total, put(data)


def parse_tree(data: bytes) -> Leaf | Node:
    """Read one page of a tree, and believe nothing.

    Checked is all that one page can show: canonical encoding, types and ranges, the grammar and
    strict order of names, digests' lengths, and sums. What takes the pages below to see is checked
    by those who read them.

    Raises:
        FormatError: Not a page of a tree, or one that breaks a rule.
        NewerFormatError: Of a format that this release does not know.
    """
    value = codec.decode_rows(data, max_bytes=MAX_PAGE_BYTES)
    if type(value) is tuple and len(value) >= 2:
        if value[0] == "tree":
            check_format(value[1], "tree", FORMAT)
            return _leaf(value)
        if value[0] == "tree-node":
            check_format(value[1], "tree", FORMAT)
            return _node(value)
    raise FormatError("object is not a tree")


def _bad(why: str) -> FormatError:
    return FormatError(f"tree is malformed: {why}")


def _leaf(value: tuple[Any, ...]) -> Leaf:
    if len(value) != 5:
        raise _bad("a leaf has five fields")
    files, total, entries = value[2:]
    if type(entries) is not tuple or len(entries) > PAGE_ENTRIES:
        raise _bad(f"entries are not a list of at most {PAGE_ENTRIES}")
    directories = size = 0
    if entries:
        names, types, sizes, digests = _columns(entries, 4)
        check_names(names)
        _check_digests(digests)
        if not TYPES.issuperset(types):
            raise _bad("an entry is of unknown type")
        if set(map(type, sizes)) != _INTEGERS or min(sizes) < 0:
            raise _bad("a size is not a count of bytes")
        size = sum(sizes)
        directories = types.count(DIR)
    if type(total) is not int or total != size or size > MAX_COUNT:
        raise _bad("bytes are not the sum of the entries' sizes")
    plain = len(entries) - directories
    if type(files) is not int or not plain <= files <= (MAX_COUNT if directories else plain):
        raise _bad("files are not the count of what is no directory")
    return Leaf(files, total, entries, directories)


def _node(value: tuple[Any, ...]) -> Node:
    if len(value) != 6:
        raise _bad("a node has six fields")
    files, total, level, children = value[2:]
    if type(level) is not int or not 1 <= level <= MAX_LEVEL:
        raise _bad("level is out of range")
    if type(children) is not tuple or not 1 <= len(children) <= PAGE_ENTRIES:
        raise _bad(f"pages are not a list of 1 to {PAGE_ENTRIES}")
    names, counts, filess, sizes, digests = _columns(children, 5)
    check_names(names)
    _check_digests(digests)
    if (
        set(map(type, counts + filess + sizes)) != _INTEGERS
        or min(counts) < 1
        or min(filess) < 0
        or min(sizes) < 0
        or sum(counts) > MAX_COUNT
    ):
        raise _bad("a page's totals are out of range")
    if type(total) is not int or total != sum(sizes) or total > MAX_COUNT:
        raise _bad("bytes are not the sum of the pages' bytes")
    if type(files) is not int or files != sum(filess) or files > MAX_COUNT:
        raise _bad("files are not the sum of the pages' files")
    return Node(files, total, level, children)


_INTEGERS: Final = {int}
_RESERVED: Final = frozenset((b".", b".."))


def _columns(rows: tuple[Any, ...], count: int) -> list[Any]:
    """Turn rows into columns; what is in them is checked column by column."""
    try:
        columns = list(zip(*rows, strict=True))
    except (TypeError, ValueError):
        columns = []
    if len(columns) != count:
        raise _bad(f"its rows are not lists of {count} fields")
    return columns


def check_names(names: Sequence[bytes]) -> None:
    """Check the names of the rows of a page, of which there is at least one.

    Raises:
        FormatError: Not in strictly ascending order, or one that no file can have.
    """
    try:
        joined = b"".join(names)  # anything but bytes is a TypeError
    except TypeError:
        raise _bad("a name is not bytes") from None
    if not all(map(lt, names, names[1:])):
        raise _bad("names are not in strictly ascending order")
    if (
        not names[0]
        or b"/" in joined
        or b"\0" in joined
        or max(map(len, names)) > MAX_ENTRY_NAME
        or not _RESERVED.isdisjoint(names)
    ):
        raise _bad("an entry has a name that no file can have")


def _check_digests(digests: tuple[bytes, ...]) -> None:
    try:
        size = len(b"".join(digests))
    except TypeError:
        raise _bad("a digest is not bytes") from None
    if size != DIGEST_SIZE * len(digests) or max(map(len, digests)) != DIGEST_SIZE:
        raise _bad("a digest has the wrong length")


def tree_children(data: bytes) -> list[tuple[bytes, bool]]:
    """Return the digests that one page names, each with whether it is a tree (or page) itself.

    Raises:
        FormatError: As for `parse_tree`.
    """
    page = parse_tree(data)
    if isinstance(page, Leaf):
        return [(digest, kind == DIR) for _, kind, _, digest in page.entries]
    return [(child[4], True) for child in page.children]
