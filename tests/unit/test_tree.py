"""Trees: hostile pages, paging at full size, errors of editing and of finding."""

from __future__ import annotations

import tracemalloc

import pytest

from cas import codec
from cas.digest import raw_hash
from cas.errors import FormatError, NameRefusedError, NewerFormatError, NotFoundError, RefusedError
from cas.manifests import (
    DIR,
    EXEC,
    FILE,
    LINK,
    MAX_DEPTH,
    TreeBuilder,
    compare,
    edit_tree,
    entries,
    lookup,
    parse_tree,
    resolve,
    tree,
    tree_children,
    walk,
)

LARGE = "8bde219fbba311eedfa7765b1cd5779256c3acd359a08518c1e4f4447745fcab"
D = raw_hash(b"content")
E = raw_hash(b"other")


class Objects(dict[bytes, bytes]):
    """Objects in memory; `written` and `reads` tell what an operation did."""

    def __init__(self):
        super().__init__()
        self.written: list[bytes] = []
        self.reads = 0

    def put(self, data):
        digest = raw_hash(data)
        if digest not in self:
            self[digest] = data
            self.written.append(digest)
        return digest

    def read(self, digest):
        self.reads += 1
        return self[digest]


def build(objects, rows):
    builder = TreeBuilder(objects.put)
    for row in rows:
        builder.add(*row)
    return builder.finish()


def leaf(*rows, files=None, total=None):
    files = sum(row[1] != DIR for row in rows) if files is None else files
    total = sum(row[2] for row in rows) if total is None else total
    return codec.encode_plain(["tree", 1, files, total, [list(row) for row in rows]])


def row(name=b"a", kind=FILE, size=1, digest=D):
    return (name, kind, size, digest)


def page(first=b"a", count=1, files=1, size=1, digest=D):
    return (first, count, files, size, digest)


def node(*rows, level=1, files=None, total=None):
    files = sum(row[2] for row in rows) if files is None else files
    total = sum(row[3] for row in rows) if total is None else total
    return codec.encode_plain(["tree-node", 1, files, total, level, [list(row) for row in rows]])


def test_the_pages_of_these_tests_are_well_formed():
    assert parse_tree(leaf(row(), row(b"b", LINK, 0))).files == 2
    assert parse_tree(node(page(), page(b"b", 7, 0, 0), level=2)).level == 2
    assert parse_tree(leaf()) == tree.Leaf(0, 0, ())
    assert parse_tree(leaf(row(kind=DIR, size=9), files=4)).files == 4


HOSTILE = {
    "name ..": leaf(row(b"..")),
    "name .": leaf(row(b".")),
    "name with a slash": leaf(row(b"/x")),
    "name with a slash inside": leaf(row(b"a/b")),
    "name with NUL": leaf(row(b"a\0b")),
    "empty name": leaf(row(b"")),
    "name of 256 bytes": leaf(row(b"n" * 256)),
    "name that is text": leaf(("a", FILE, 1, D)),
    "name twice": leaf(row(), row()),
    "names out of order": leaf(row(b"b"), row(b"a")),
    ".. among others": leaf(row(b"-"), row(b".."), row(b"a")),
    "slash among others": leaf(row(b"a"), row(b"b/"), row(b"c")),
    "unknown type": leaf(row(kind="p")),
    "type that is bytes": leaf(row(kind=b"f")),
    "negative size": leaf(row(size=-1), row(b"b", size=2)),
    "size that is a float": codec.encode(["tree", 1, 1, 1, [[b"a", FILE, 1.0, D]]]),
    "size that is true": leaf(row(size=True)),
    "sizes beyond 63 bits": leaf(row(size=1 << 62), row(b"b", size=1 << 62)),
    "short digest": leaf(row(digest=D[:31])),
    "long digest": leaf(row(digest=D + b"x")),
    "no digest": leaf((b"a", FILE, 1)),
    "five fields": leaf((b"a", FILE, 1, D, 1)),
    "entries of two lengths": leaf(row(), (b"b", FILE, 1)),
    "entry that is text": codec.encode_plain(["tree", 1, 0, 0, ["abcd"]]),
    "entry that is a map": codec.encode(["tree", 1, 0, 0, [{"a": 1}]]),
    "wrong sum of bytes": leaf(row(), total=2),
    "too few files": leaf(row(), files=0),
    "too many files": leaf(row(), files=2),
    "negative files": leaf(row(kind=DIR), files=-1),
    "files that are text": codec.encode_plain(["tree", 1, "1", 1, [list(row())]]),
    "files that are false": codec.encode_plain(["tree", 1, False, 0, []]),
    "bytes that are false": codec.encode_plain(["tree", 1, 0, False, []]),
    "bytes in an empty directory": codec.encode_plain(["tree", 1, 0, 5, []]),
    "files in an empty directory": codec.encode_plain(["tree", 1, 5, 0, []]),
    "a field too many": codec.encode_plain(["tree", 1, 0, 0, [], 0]),
    "a field too few": codec.encode_plain(["tree", 1, 0, 0]),
    "entries that are a number": codec.encode_plain(["tree", 1, 0, 0, 5]),
    "format 0": codec.encode_plain(["tree", 0, 0, 0, []]),
    "format that is text": codec.encode_plain(["tree", "1", 0, 0, []]),
    "format that is true": codec.encode_plain(["tree", True, 0, 0, []]),
    "unknown kind": codec.encode_plain(["bush", 1, 0, 0, []]),
    "kind that is bytes": codec.encode_plain([b"tree", 1, 0, 0, []]),
    "a map": codec.encode({"tree": 1}),
    "a number": b"\x01",
    "nothing": b"",
    "not canonical": leaf(row())[:6] + b"\xcc\x01" + leaf(row())[7:],
    "more bytes": leaf(row()) + b"\x00",
    "node without pages": node(),
    "node of level 0": node(page(), page(b"b"), level=0),
    "node of level 9": node(page(), page(b"b"), level=9),
    "node of level true": node(page(), page(b"b"), level=True),
    "node with wrong files": node(page(), page(b"b"), files=3),
    "node with wrong bytes": node(page(), page(b"b"), total=3),
    "node with pages out of order": node(page(b"b"), page(b"a")),
    "node with a page twice": node(page(), page()),
    "node with an empty page": node(page(count=0), page(b"b")),
    "node with negative files": node(page(files=-1), page(b"b", files=3)),
    "node with negative bytes": node(page(size=-1), page(b"b", size=3)),
    "node with a short digest": node(page(digest=D[:31]), page(b"b")),
    "node with name ..": node(page(b".."), page(b"b")),
    "node with a field too many": codec.encode_plain(["tree-node", 1, 1, 1, 1, [list(page())], 0]),
    "node with a page of four fields": node(page(), (b"b", 1, 1, 1)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_is_refused(name):
    with pytest.raises(FormatError):
        parse_tree(HOSTILE[name])
    with pytest.raises(FormatError):
        tree_children(HOSTILE[name])


@pytest.mark.parametrize("kind", ["tree", "tree-node"])
def test_a_newer_format_is_refused_by_its_number(kind):
    with pytest.raises(NewerFormatError, match="format 2"):
        parse_tree(codec.encode_plain([kind, 2, "whatever", []]))


def test_a_page_beyond_the_limits_is_refused():
    rows = [row(b"%05d" % n) for n in range(tree.PAGE_ENTRIES + 1)]
    assert len(parse_tree(leaf(*rows[1:])).entries) == tree.PAGE_ENTRIES
    with pytest.raises(FormatError, match="at most 4096"):
        parse_tree(leaf(*rows))
    longest = [row(b"%05d" % n + b"n" * 250, size=1 << 48) for n in range(tree.PAGE_ENTRIES)]
    assert len(leaf(*longest)) < tree.MAX_PAGE_BYTES
    assert parse_tree(leaf(*longest)).files == tree.PAGE_ENTRIES
    with pytest.raises(FormatError, match="limit"):
        parse_tree(bytes(tree.MAX_PAGE_BYTES + 1))


def two_leaves(objects):
    a, b = objects.put(leaf(row(b"a"), row(b"b"))), objects.put(leaf(row(b"c"), row(b"d")))
    return page(b"a", 2, 2, 2, a), page(b"c", 2, 2, 2, b)


@pytest.mark.parametrize(
    "change",
    [
        lambda a, b: node(a, (b"bb", *b[1:])),
        lambda a, b: node((a[0], 3, *a[2:]), b),
        lambda a, b: node((*a[:2], 1, *a[3:]), b),
        lambda a, b: node((*a[:3], 1, a[4]), b),
        lambda a, b: node(a, (*b[:4], a[4])),
        lambda a, b: node(a),
        lambda a, b: node(a, b, level=2),
        lambda a, b: node(a, (b"b", *b[1:])),
    ],
    ids=["first name", "entries", "files", "bytes", "other page", "alone", "level", "overlap"],
)
def test_a_node_that_lies_about_its_pages_is_refused(change):
    objects = Objects()
    a, b = two_leaves(objects)
    root = objects.put(change(a, b))
    with pytest.raises(FormatError):
        list(entries(objects.read, root))
    with pytest.raises(FormatError):
        list(walk(objects.read, root))
    with pytest.raises(FormatError):
        list(compare(objects.read, root, None))


def test_pages_that_overlap_are_refused():
    objects = Objects()
    _, b = two_leaves(objects)
    wide = objects.put(leaf(row(b"a"), row(b"x")))
    root = objects.put(node(page(b"a", 2, 2, 2, wide), b))
    for reading in (
        lambda: list(entries(objects.read, root)),
        lambda: lookup(objects.read, root, b"b"),
        lambda: list(compare(objects.read, root, objects.put(leaf()))),
    ):
        with pytest.raises(FormatError, match="overlap"):
            reading()


@pytest.mark.parametrize(("size", "files"), [(2, 1), (1, 2), (1, 0)])
def test_a_directory_that_is_not_what_its_entry_says_is_refused(size, files):
    objects = Objects()
    below = objects.put(leaf(row()))
    root = objects.put(leaf(row(b"d", DIR, size, below), files=files))
    with pytest.raises(FormatError, match="directory"):
        list(walk(objects.read, root))
    if size == 2:
        with pytest.raises(FormatError, match="'d'"):
            resolve(objects.read, root, b"d/a")


def test_a_blob_where_a_directory_should_be_is_refused_with_its_digest():
    objects = Objects()
    blob = objects.put(b"just text")
    root = objects.put(leaf(row(b"d", DIR, 9, blob)))
    with pytest.raises(FormatError, match=blob.hex()):
        list(walk(objects.read, root))


def nested(objects, depth):
    ref = build(objects, [row()])
    for _ in range(depth):
        builder = TreeBuilder(objects.put)
        builder.add(b"d", DIR, ref.bytes, ref.digest, files=ref.files)
        ref = builder.finish()
    return ref


def test_depth_is_limited_and_needs_no_recursion():
    objects = Objects()
    deepest = nested(objects, MAX_DEPTH - 1)
    assert sum(1 for _ in walk(objects.read, deepest.digest)) == MAX_DEPTH
    assert sum(1 for _ in compare(objects.read, deepest.digest, None)) == MAX_DEPTH
    path = b"/".join([b"d"] * (MAX_DEPTH - 1) + [b"b"])
    edited = edit_tree(objects.read, objects.put, deepest.digest, {path: (FILE, 1, D, 1)}, [])
    assert edited.files == 2
    deeper = nested(objects, MAX_DEPTH)
    for reading in (
        lambda: list(walk(objects.read, deeper.digest)),
        lambda: list(compare(objects.read, deeper.digest, None)),
        lambda: edit_tree(
            objects.read, objects.put, deeper.digest, {b"d/" + path: (FILE, 1, D, 1)}, []
        ),
    ):
        with pytest.raises(RefusedError, match="deep"):
            reading()


def test_resolve_follows_directories_only():
    objects = Objects()
    below = build(objects, [row(b"f"), row(b"link", LINK)])
    builder = TreeBuilder(objects.put)
    builder.add(b"d", DIR, below.bytes, below.digest, files=below.files)
    builder.add(b"here", LINK, 1, D)
    root = builder.finish().digest
    assert resolve(objects.read, root, b"d/f") == row(b"f")
    assert resolve(objects.read, root, b"") == (b"", DIR, 3, root)
    for missing, why in [
        (b"x", "'x' not found"),
        (b"d/x", "'d/x' not found"),
        (b"here/f", "'here' is not a directory"),
        (b"d/link/f", "'d/link' is not a directory"),
        (b"d/f/g", "'d/f' is not a directory"),
    ]:
        with pytest.raises(NotFoundError, match=why):
            resolve(objects.read, root, missing)
    for refused in (b"..", b"d/../d", b"/d", b"d//f", b"d/.", b"d\0"):
        with pytest.raises(NameRefusedError):
            resolve(objects.read, root, refused)


@pytest.mark.parametrize(
    "rows",
    [
        [row(b"b"), row(b"a")],
        [row(b"a"), row(b"a")],
        [row(b"..")],
        [row(b"")],
        [row(b"a/b")],
        [row(b"a\0")],
        [row(b"n" * 256)],
        [row(kind="p")],
        [row(size=-1)],
        [row(size=1 << 63)],
        [row(digest=b"short")],
    ],
)
def test_the_builder_refuses_what_cannot_be_read_back(rows):
    objects = Objects()
    with pytest.raises(RefusedError):
        build(objects, rows)
    assert not objects
    many = [row(b"A%06d" % n) for n in range(10_000)]
    with pytest.raises(RefusedError):
        build(objects, many + rows)


def numbered(count):
    return [row(b"%08d.jpg" % n, size=n) for n in range(count)]


@pytest.mark.parametrize("count", [1024, 1025])
def test_only_a_directory_of_more_than_1024_entries_is_cut(count):
    objects = Objects()
    ref = build(objects, numbered(count))
    assert list(entries(objects.read, ref.digest)) == numbered(count)
    assert (len(objects) == 1) == (count == 1024)
    assert build(objects, numbered(count)) == ref


def test_names_that_begin_no_page_still_fill_pages_of_4096():
    names = [name for n in range(9000) if not tree.starts_page(name := b"%06d" % n)]
    objects = Objects()
    ref = build(objects, [row(name) for name in names[:4096]])
    assert len(parse_tree(objects[ref.digest]).entries) == 4096
    ref = build(objects, [row(name) for name in names[:8200]])
    assert [child[1] for child in parse_tree(objects[ref.digest]).children] == [4096, 4096, 8]


def test_the_digest_of_a_large_directory_is_what_it_was():
    # Computed by the straightforward reading of docs/format.md in tests/property/test_tree.py.
    objects = Objects()
    assert build(objects, numbered(100_000)).digest.hex() == LARGE
    assert build(objects, []).digest == raw_hash(codec.encode(["tree", 1, 0, 0, []]))


def test_one_change_in_a_large_directory_rewrites_one_leaf():
    objects = Objects()
    rows = numbered(50_000)
    ref = build(objects, rows)
    changes = {
        "change": ({rows[30_000][0]: (EXEC, 5, E, 1)}, []),
        "removal": ({}, [rows[30_000][0]]),
        "addition": ({b"00030000.jpg2": (FILE, 5, E, 1)}, []),
    }
    for puts, removals in changes.values():
        objects.written.clear()
        objects.reads = 0
        edit_tree(objects.read, objects.put, ref.digest, puts, removals)
        pages = [parse_tree(objects[digest]) for digest in objects.written]
        assert sum(isinstance(page, tree.Leaf) for page in pages) == 1
        assert len(pages) <= 3
        assert objects.reads <= 6


def test_comparing_large_directories_reads_only_what_differs():
    objects = Objects()
    rows = numbered(50_000)
    ref = build(objects, rows)
    other = edit_tree(objects.read, objects.put, ref.digest, {rows[7][0]: (EXEC, 5, E, 1)}, [])
    objects.reads = 0
    found = list(compare(objects.read, ref.digest, other.digest))
    assert found == [(rows[7][0], rows[7], (rows[7][0], EXEC, 5, E))]
    assert objects.reads <= 6


def test_memory_does_not_grow_with_the_directory():
    sizes: dict[bytes, int] = {}

    def put(data):
        sizes[digest := raw_hash(data)] = len(data)
        return digest

    def peak(count):
        builder = TreeBuilder(put)
        tracemalloc.start()
        for n in range(count):
            builder.add(b"%08d.jpg" % n, FILE, n, D)
        builder.finish()
        high = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return high

    small, large = peak(20_000), peak(120_000)
    assert large < small + (1 << 20)


def edited(rows, puts, removals):
    objects = Objects()
    return edit_tree(objects.read, objects.put, build(objects, rows).digest, puts, removals)


@pytest.mark.parametrize(
    ("puts", "removals", "error", "why"),
    [
        ({}, [b"x"], NotFoundError, "'x' not found"),
        ({}, [b"f/x"], NotFoundError, "'f' is not a directory"),
        ({}, [b"x/y"], NotFoundError, "'x/y' not found"),
        ({}, [b""], RefusedError, "root"),
        ({b"": (FILE, 1, D, 1)}, [], RefusedError, "root"),
        ({b"../x": (FILE, 1, D, 1)}, [], NameRefusedError, "not a path"),
        ({b"a//x": (FILE, 1, D, 1)}, [], NameRefusedError, "not a path"),
        ({}, [b"./f"], NameRefusedError, "not a path"),
        ({b"f/x": (FILE, 1, D, 1)}, [], RefusedError, "'f' is not a directory"),
        ({b"f": (DIR, 0, D, 0)}, [], RefusedError, "'f' is no directory"),
        ({b"n": (FILE, 1, D, 1), b"n/x": (FILE, 1, D, 1)}, [], RefusedError, "'n' is put itself"),
        ({b"n" * 256: (FILE, 1, D, 1)}, [], NameRefusedError, "name of a file"),
    ],
)
def test_edits_that_make_no_sense_are_refused(puts, removals, error, why):
    with pytest.raises(error, match=why):
        edited([row(b"f")], puts, removals)


def test_a_directory_is_replaced_only_when_that_is_said():
    objects = Objects()
    old = edit_tree(
        objects.read, objects.put, build(objects, []).digest, {b"d/e/f": (FILE, 1, D, 1)}, []
    )
    one_file = {b"d": (FILE, 1, D, 1)}
    with pytest.raises(RefusedError, match="is a directory"):
        edit_tree(objects.read, objects.put, old.digest, one_file, [])
    new = edit_tree(objects.read, objects.put, old.digest, one_file, [b"d"])
    assert dict(walk(objects.read, new.digest)) == {b"d": row(b"d")}
    again = edit_tree(objects.read, objects.put, new.digest, {b"d/e/f": (FILE, 1, D, 1)}, [b"d"])
    assert again == old
    with pytest.raises(RefusedError, match="changed too"):
        edit_tree(objects.read, objects.put, old.digest, {b"d": (DIR, 0, D, 0)}, [b"d/e"])


def test_a_directory_that_loses_its_last_entry_stays():
    objects = Objects()
    start = build(objects, []).digest
    tree_ = edit_tree(objects.read, objects.put, start, {b"d/f": (FILE, 1, D, 1)}, []).digest
    emptied = edit_tree(objects.read, objects.put, tree_, {}, [b"d/f"])
    assert [(path, entry[1]) for path, entry in walk(objects.read, emptied.digest)] == [(b"d", DIR)]
    assert (emptied.files, emptied.bytes) == (0, 0)


def test_an_edit_of_nothing_is_the_same_tree():
    objects = Objects()
    for count in (0, 3, 3000):
        ref = build(objects, numbered(count))
        assert edit_tree(objects.read, objects.put, ref.digest, {}, []) == ref
