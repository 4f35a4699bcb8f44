"""Properties of trees: canonical pages, editing, comparing, walking; against plain dicts."""

from __future__ import annotations

from itertools import pairwise

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cas.digest import raw_hash
from cas.errors import CasError, FormatError
from cas.manifests import (
    DIR,
    EXEC,
    FILE,
    LINK,
    TreeBuilder,
    builder,
    compare,
    edit,
    edit_tree,
    entries,
    lookup,
    parse_tree,
    resolve,
    tree,
    tree_children,
    walk,
)

names = st.binary(min_size=1, max_size=8).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)
few_names = st.sampled_from([b"a", b"b", b"a-", b"a.b", b"\xff", b"c", b"d", b"ab"])
blobs = st.tuples(
    st.sampled_from([FILE, EXEC, LINK]),
    st.integers(0, 5),
    st.integers(0, 3).map(lambda n: raw_hash(b"%d" % n)),
)


def models(names=few_names):
    """A directory as a dict: name → a blob's tuple, or another dict."""
    inner = st.recursive(
        blobs, lambda below: st.dictionaries(names, below, max_size=6), max_leaves=12
    )
    return st.dictionaries(names, inner, max_size=8)


@pytest.fixture(autouse=True, scope="module")
def _small_pages():
    """Pages of a few entries, so that a handful of names makes several levels of them."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (builder, edit):
            patch.setattr(module, "LEAF_ENTRIES", 4)
        for module in (tree, builder):
            patch.setattr(module, "PAGE_ENTRIES", 8)
        patch.setattr(builder, "_BATCH", 6)
        patch.setattr(tree, "PAGE_BITS", 2)
        yield


class Objects(dict[bytes, bytes]):
    """A store of objects in memory that counts what is written and read."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def put(self, data):
        digest = raw_hash(data)
        self[digest] = bytes(data)
        return digest

    def read(self, digest):
        self.reads += 1
        return self[digest]


def build(objects, model):
    """Build a model anew, and return its tree."""
    made = TreeBuilder(objects.put)
    for name in sorted(model):
        what = model[name]
        if isinstance(what, dict):
            below = build(objects, what)
            made.add(name, DIR, below.bytes, below.digest, files=below.files)
        else:
            made.add(name, *what)
    return made.finish()


def flat(objects, model, prefix=b""):
    """Everything below a model as {path: entry}, in the order of a walk."""
    found = {}
    for name in sorted(model):
        what = model[name]
        if isinstance(what, dict):
            below = build(objects, what)
            found[prefix + name] = (name, DIR, below.bytes, below.digest)
            found |= flat(objects, what, prefix + name + b"/")
        else:
            found[prefix + name] = (name, *what)
    return found


@given(models() | models(names))
def test_a_tree_gives_back_what_it_was_built_from(model):
    objects = Objects()
    ref = build(objects, model)
    everything = flat(objects, model)
    assert dict(walk(objects.read, ref.digest)) == everything
    assert list(dict(walk(objects.read, ref.digest))) == list(everything)
    assert [entry[0] for entry in entries(objects.read, ref.digest)] == sorted(model)
    assert ref.files == sum(entry[1] != DIR for entry in everything.values())
    assert ref.bytes == sum(entry[2] for entry in everything.values() if entry[1] != DIR)
    for path, entry in everything.items():
        assert resolve(objects.read, ref.digest, path) == entry
        if b"/" not in path:
            assert lookup(objects.read, ref.digest, path) == entry
    assert lookup(objects.read, ref.digest, b"not there") is None


def starts(name, bits):
    return bits <= 32 and int.from_bytes(raw_hash(name)[:4], "big") % (1 << bits) == 0


def cut(rows, bits, cap):
    """Cut rows into pages as docs/format.md says."""
    pages = [[]]
    for row in rows:
        if pages[-1] and (starts(row[0], bits) or len(pages[-1]) == cap):
            pages.append([])
        pages[-1].append(row)
    return pages


def specified(rows, objects, *, few, cap, bits):
    """The tree of some rows, written down from docs/format.md alone, all in memory."""

    def stored(value):
        return objects.put(msgpack.packb(value))

    files, total = sum(row[1] != "d" for row in rows), sum(row[2] for row in rows)
    if len(rows) <= few:
        return stored(["tree", 1, files, total, rows])
    pages = [
        [page[0][0], len(page), len(page), size, stored(["tree", 1, len(page), size, page])]
        for page in cut(rows, bits, cap)
        for size in [sum(row[2] for row in page)]
    ]
    level = 0
    while len(pages) > 1:
        level += 1
        pages = [
            [node[0][0], *sums, stored(["tree-node", 1, *sums[1:], level, node])]
            for node in cut(pages, bits * (level + 1), cap)
            for sums in [[sum(row[n] for row in node) for n in (1, 2, 3)]]
        ]
    return pages[0][4]


@given(st.dictionaries(names, blobs, max_size=200))
def test_a_tree_is_what_the_format_says(model):
    objects = Objects()
    rows = [[name, *model[name]] for name in sorted(model)]
    assert specified(rows, objects, few=4, cap=8, bits=2) == build(objects, model).digest


@given(st.dictionaries(names, blobs, max_size=120))
def test_pages_fit_together(model):
    objects = Objects()
    ref = build(objects, model)
    todo, leaves = [(ref.digest, None)], []
    while todo:
        digest, level = todo.pop()
        page = parse_tree(objects[digest])
        if isinstance(page, tree.Leaf):
            assert level in (None, 1)
            leaves.append(page)
        else:
            assert level in (None, page.level + 1)
            assert len(page.children) <= 8
            todo += [
                (child, page.level) for child, is_tree in tree_children(objects[digest]) if is_tree
            ]
    leaves.sort(key=lambda leaf: leaf.entries[0][0] if leaf.entries else b"")
    assert [entry[0] for leaf in leaves for entry in leaf.entries] == sorted(model)
    if len(model) > 4:
        for before, leaf in pairwise(leaves):
            first = leaf.entries[0][0]
            assert tree.starts_page(first) or len(before.entries) == 8
        for leaf in leaves:
            assert not any(tree.starts_page(entry[0]) for entry in leaf.entries[1:])
            assert len(leaf.entries) <= 8


edits = st.lists(st.tuples(st.lists(few_names, min_size=1, max_size=3), blobs), max_size=6)


def remove(model, path):
    *parents, name = path.split(b"/")
    for parent in parents:
        model = model[parent]
    del model[name]


def put(model, path, blob):
    *parents, name = path.split(b"/")
    for parent in parents:
        model = model.setdefault(parent, {})
    model[name] = blob


def copy(model):
    return {name: copy(what) if isinstance(what, dict) else what for name, what in model.items()}


@given(models(), edits, st.data())
def test_an_edited_tree_is_the_one_that_a_rebuild_makes(model, additions, data):
    objects = Objects()
    ref = build(objects, model)
    everything = sorted(flat(objects, model))
    removals = data.draw(st.lists(st.sampled_from(everything), max_size=3)) if everything else []
    removals = [
        path
        for path in set(removals)
        if not any(path.startswith(other + b"/") for other in removals)
    ]
    after = copy(model)
    for path in removals:
        remove(after, path)
    puts = {}
    for parts, blob in additions:
        path = b"/".join(parts)
        trial = copy(after)
        try:
            put(trial, path, blob)
        except (AttributeError, TypeError):
            continue  # below a file
        fits = flat(objects, after).get(path, (b"", FILE))[1] != DIR
        if fits and not any(path.startswith(o + b"/") or o.startswith(path + b"/") for o in puts):
            puts[path] = (*blob, 1)
            after = trial
    assert edit_tree(objects.read, objects.put, ref.digest, puts, removals) == build(objects, after)


@given(st.dictionaries(names, blobs, max_size=100), st.data())
def test_an_edited_large_directory_is_the_one_that_a_rebuild_makes(model, data):
    objects = Objects()
    ref = build(objects, model)
    gone = data.draw(st.lists(st.sampled_from(sorted(model)), unique=True)) if model else []
    new = data.draw(st.dictionaries(names, blobs, max_size=10))
    after = {name: blob for name, blob in model.items() if name not in gone} | new
    puts = {name: (*blob, 1) for name, blob in new.items()}
    assert edit_tree(objects.read, objects.put, ref.digest, puts, gone) == build(objects, after)


def subtrees(count):
    return {b"%d" % n: {b"x": (FILE, n, raw_hash(b"x"))} for n in range(count)}


@given(st.integers(0, 30), st.integers(0, 29), st.integers(0, 29))
def test_a_large_directory_of_directories_keeps_count_of_its_files(count, gone, changed):
    objects = Objects()
    model = subtrees(count)
    ref = build(objects, model)
    puts, removals = {}, []
    if b"%d" % gone in model:
        del model[b"%d" % gone]
        removals.append(b"%d" % gone)
    new = {b"p": (FILE, 1, raw_hash(b"p")), b"q": (FILE, 2, raw_hash(b"q"))}
    below = build(objects, new)
    model[b"%d" % changed] = new
    puts[b"%d" % changed] = (DIR, below.bytes, below.digest, below.files)
    assert edit_tree(objects.read, objects.put, ref.digest, puts, removals) == build(objects, model)


@given(models(), models())
def test_compare_gives_what_differs_and_nothing_else(old, new):
    objects = Objects()
    a, b = build(objects, old).digest, build(objects, new).digest
    left, right = flat(objects, old), flat(objects, new)
    expected = {}
    for path in left.keys() | right.keys():
        one, other = left.get(path), right.get(path)
        both_directories = one is not None and other is not None and one[1] == other[1] == DIR
        if one != other and not both_directories:
            expected[path] = (one, other)
    found = list(compare(objects.read, a, b))
    assert {path: (one, other) for path, one, other in found} == expected
    assert [path.split(b"/") for path, _, _ in found] == sorted(
        path.split(b"/") for path in expected
    )
    assert len(found) == len(expected)


@given(st.dictionaries(names, blobs, max_size=100), st.data())
def test_compare_of_large_directories_gives_what_differs(old, data):
    objects = Objects()
    gone = data.draw(st.lists(st.sampled_from(sorted(old)), unique=True)) if old else []
    new = {name: blob for name, blob in old.items() if name not in gone}
    new |= data.draw(st.dictionaries(names, blobs, max_size=10))
    a, b = build(objects, old).digest, build(objects, new).digest
    found = {
        path: (one and one[1:], other and other[1:])
        for path, one, other in compare(objects.read, a, b)
    }
    assert found == {
        name: (old.get(name), new.get(name))
        for name in old.keys() | new.keys()
        if old.get(name) != new.get(name)
    }
    assert list(compare(objects.read, a, a)) == []
    if old:
        assert [path for path, one, _ in compare(objects.read, a, None) if one] == sorted(old)


@given(models(), st.data())
@settings(max_examples=200)
def test_a_damaged_page_is_refused_or_still_a_well_formed_tree(model, data):
    objects = Objects()
    ref = build(objects, model)
    victim = data.draw(st.sampled_from(sorted(objects)))
    page = bytearray(objects[victim])
    at = data.draw(st.integers(0, len(page) - 1))
    page[at] ^= data.draw(st.integers(1, 255))
    objects[victim] = bytes(page)
    try:
        for path, _ in walk(objects.read, ref.digest):
            assert all(part not in (b"", b".", b"..") for part in path.split(b"/"))
            assert b"\0" not in path
    except (CasError, KeyError):  # KeyError: an object that is not there
        pass


@given(st.binary(max_size=200))
def test_random_bytes_are_no_tree(data):
    try:
        page = parse_tree(data)
    except FormatError:
        return
    assert page == tree.Leaf(0, 0, ())
