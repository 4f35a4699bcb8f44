"""Whatever manifests say, nothing is written outside the destination."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cas import codec
from cas.backends import LocalBackend
from cas.checkout import checkout, update
from cas.checkout.writing import Writer
from cas.digest import hash_bytes
from cas.errors import CasError, EnvironmentFailure
from cas.manifests import DIR, EXEC, FILE, LINK
from cas.objects import TREE, ObjectStore
from cas.testing.trees import put_model
from cas.workspace import WorkspaceState, status, verify_workspace

NAMES = [
    b"a",
    b"b",
    b"link",
    b"",
    b".",
    b"..",
    b"../escaped",
    b"../../escaped",
    b"/tmp/escaped",
    b"a/../../escaped",
    b"a/b",
    b"nul\0",
    b"n" * 256,
    b".cas-workspace",
]
TARGETS = [b".", b"..", b"../..", b"/", b"/tmp", b"a", b"../outside"]


def state():
    return WorkspaceState(store_path="/the/store", store_id="1" * 32, spec="r@v1")


@st.composite
def raw_trees(draw):
    """Trees as entries that no builder would write: (name, type, size, content or a raw tree)."""
    leaf = st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from([FILE, EXEC, LINK, "?"]),
        st.sampled_from([None, None, None, -1, 0, 5, 1 << 62]),
        st.sampled_from([b"", b"content", *TARGETS]),
    )
    node = st.recursive(
        leaf,
        lambda inner: st.tuples(
            st.sampled_from(NAMES),
            st.just(DIR),
            st.sampled_from([None, None, 7]),
            st.lists(inner, max_size=4),
        ),
        max_leaves=8,
    )
    order = draw(st.sampled_from(["as drawn", "sorted", "sorted"]))
    return draw(st.lists(node, max_size=5)), order


def put_raw(writer, nodes, order):
    """Write what the nodes say, right or wrong; give digest, files and bytes."""
    entries = []
    files = total = 0
    for name, kind, size, inner in nodes:
        if kind == DIR:
            digest, below, length = put_raw(writer, inner, order)
            files += below
        else:
            digest, length = writer.put(inner), len(inner)
            files += 1
        length = length if size is None else size
        total = min(total + max(length, 0), 1 << 63)  # what has an encoding
        entries.append([name, kind, length, digest])
    if order == "sorted":
        entries.sort()
    data = codec.encode_plain(["tree", 1, files, total, entries])
    return writer.put(data, TREE), files, total


def watched(top):
    """Everything around the destination, which has to stay as it is."""
    return sorted(str(path) for path in top.rglob("*") if "work" not in path.parts)


@given(raw=raw_trees(), mode=st.sampled_from(["auto", "hardlink"]))
def test_hostile_trees_never_escape(raw, mode):
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder) / "top"
        (top / "outside").mkdir(parents=True)
        objects = ObjectStore(LocalBackend(Path(folder) / "store", create=True), loose_threshold=4)
        with objects.writer() as writer:
            tree, _, _ = put_raw(writer, *raw)
            writer.flush()
        before = watched(top)
        tmp = os.path.exists("/tmp/escaped")
        try:
            checkout(objects, tree, top / "work", mode=mode, workers=1)
        except CasError:
            assert os.listdir(top) == ["outside"]
        assert watched(top) == before
        assert os.path.exists("/tmp/escaped") == tmp
        objects.close()


@given(raw=raw_trees())
def test_an_update_to_a_hostile_tree_never_escapes(raw):
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder) / "top"
        (top / "outside").mkdir(parents=True)
        objects = ObjectStore(LocalBackend(Path(folder) / "store", create=True))
        plain = put_model(objects, {b"a": {b"b": ("file", b"1")}, b"link": ("symlink", b"..")})
        with objects.writer() as writer:
            tree, _, _ = put_raw(writer, *raw)
            writer.flush()
        checkout(objects, plain.digest, top / "work", memory=state(), workers=1)
        before = watched(top)
        try:
            update(objects, top / "work", tree, memory=state(), workers=1)
        except CasError:
            pass
        assert watched(top) == before
        objects.close()


def hostile(objects, entries):
    with objects.writer() as writer:
        rows = [[name, kind, len(content), writer.put(content)] for name, kind, content in entries]
        total = sum(len(content) for _, _, content in entries)
        tree = writer.put(codec.encode_plain(["tree", 1, len(rows), total, rows]), TREE)
        writer.flush()
    return tree


@pytest.mark.parametrize(
    "entries",
    [
        [(b"..", FILE, b"x")],
        [(b"../x", FILE, b"x")],
        [(b"/x", FILE, b"x")],
        [(b"", FILE, b"x")],
        [(b"a", FILE, b"1"), (b"a", FILE, b"2")],
        [(b"b", FILE, b"1"), (b"a", FILE, b"2")],
        [(b"a", LINK, b"../outside"), (b"a", FILE, b"2")],
        [(b"a", DIR, b"")],
    ],
)
def test_malformed_trees_are_refused_and_leave_nothing(tmp_path, entries):
    objects = ObjectStore(LocalBackend(tmp_path / "store", create=True))
    with pytest.raises(CasError):
        checkout(objects, hostile(objects, entries), tmp_path / "work")
    assert os.listdir(tmp_path) == ["store"]


def test_a_tree_that_holds_itself_deeper_and_deeper_is_refused(tmp_path):
    objects = ObjectStore(LocalBackend(tmp_path / "store", create=True))
    with objects.writer() as writer:
        tree = writer.put(codec.encode_plain(["tree", 1, 0, 0, []]), TREE)
        for _ in range(1002):
            tree = writer.put(codec.encode_plain(["tree", 1, 0, 0, [[b"d", DIR, 0, tree]]]), TREE)
        writer.flush()
    with pytest.raises(CasError, match="deep"):
        checkout(objects, tree, tmp_path / "work")
    assert os.listdir(tmp_path) == ["store"]


def test_a_tree_as_deep_as_can_be_comes_back(tmp_path):
    objects = ObjectStore(LocalBackend(tmp_path / "store", create=True))
    with objects.writer() as writer:
        row = [b"bottom", FILE, 4, writer.put(b"here")]
        tree = writer.put(codec.encode_plain(["tree", 1, 1, 4, [row]]), TREE)
        for _ in range(990):
            tree = writer.put(codec.encode_plain(["tree", 1, 1, 4, [[b"d", DIR, 4, tree]]]), TREE)
        writer.flush()
    done = checkout(objects, tree, tmp_path / "work", memory=state())
    assert done.files == 1
    assert status(tmp_path / "work").clean
    assert verify_workspace(tmp_path / "work").ok
    empty = put_model(objects, {}).digest
    update(objects, tmp_path / "work", empty, memory=state())
    assert os.listdir(tmp_path / "work") == [".cas-workspace"]


def test_a_link_that_somebody_puts_into_the_staging_directory_is_not_followed(tmp_path):
    objects = ObjectStore(LocalBackend(tmp_path / "store", create=True))
    with objects.writer() as writer:
        digest = writer.put(b"x")
        writer.flush()
    (tmp_path / "outside").mkdir()
    (tmp_path / "stage").mkdir()
    (tmp_path / "stage" / "d").symlink_to(tmp_path / "outside")
    (tmp_path / "stage" / "f").symlink_to(tmp_path / "outside" / "f")
    root = os.open(tmp_path / "stage", os.O_RDONLY)
    with Writer(objects, root, "auto", sync=False) as writer:
        for folder, name in ((b"d", b"x"), (b"", b"f")):
            with pytest.raises((EnvironmentFailure, CasError)):
                writer.write([(folder, [(name, FILE, 1, digest)])])
    os.close(root)
    assert os.listdir(tmp_path / "outside") == []
    assert hash_bytes(b"x") == digest
