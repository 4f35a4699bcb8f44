"""Tags: names that move, with their history."""

from __future__ import annotations

import pytest

import cas
from cas.testing.strategies import materialise


@pytest.fixture
def store(tmp_path):
    with cas.Store.init(tmp_path / "store") as store:
        materialise({b"a": ("file", b"1")}, tmp_path / "set")
        store.versions.add("skills", tmp_path / "set")
        store.versions.add("skills", tmp_path / "set")
        yield store


def test_a_tag_names_what_its_spec_named_when_it_was_set(store, tmp_path):
    tag = store.tags.set("live", "skills@latest", reason="good", by="me")
    assert (tag.target, tag.by, tag.reason) == ("skills@v2", "me", "good")
    store.versions.add("skills", tmp_path / "set")
    assert store.resolve("tag:live").name == "skills@v2"
    assert store.tags.get("live") == tag
    assert store.tags.list() == [tag]


def test_every_move_stays_in_the_history(store):
    store.tags.set("live", "skills@v1", reason="first", by="a")
    store.tags.set("live", "skills@v2", reason="better", by="b")
    store.tags.remove("live", reason="done", by="c")
    moves = store.tags.history("live")
    assert [(m.target, m.by, m.reason, m.removed) for m in moves] == [
        ("skills@v1", "a", "first", False),
        ("skills@v2", "b", "better", False),
        (None, "c", "done", True),
    ]
    assert store.tags.list() == []
    with pytest.raises(cas.NotFoundError, match="tag live not found; there is no tag yet"):
        store.tags.get("live")


def test_a_tag_can_be_set_to_another_tag_or_a_tree(store):
    store.tags.set("one", "skills@v1")
    assert store.tags.set("two", "tag:one").target == "skills@v1"
    tree = store.versions.get("skills", 1).tree
    store.tags.set("tree", str(tree))
    assert store.resolve("tag:tree").tree == tree


def test_the_mover_is_by_default_the_user(store):
    assert store.tags.set("live", "skills@v1").by


@pytest.mark.parametrize(
    ("name", "spec", "error"),
    [
        ("live", "skills@v9", cas.NotFoundError),
        ("live", "skills@v1:a", cas.RefusedError),
        ("li ve", "skills@v1", cas.NameRefusedError),
        ("live", "nothing", cas.RefusedError),
    ],
)
def test_a_tag_that_cannot_be_set_changes_nothing(store, name, spec, error):
    with pytest.raises(error):
        store.tags.set(name, spec)
    assert store.tags.list() == []


def test_unknown_tags_are_not_found(store):
    for look in (store.tags.get, store.tags.remove, store.tags.history):
        with pytest.raises(cas.NotFoundError):
            look("none")


def test_a_tag_outlives_the_name_that_it_was_set_to(store):
    store.tags.set("live", "skills@v1")
    store.versions.remove("skills@v1")
    assert store.resolve("tag:live").name == "skills@v1"
    assert [entry.path for entry in store.walk("tag:live")] == [b"a"]
