"""Push, pull and clone: what one store names is whole in the other, and no name changes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cas
from cas.testing.stores import check_names_are_whole, read_state
from cas.testing.strategies import materialise, trees

RESOURCES = ("skills", "videos/a")

ADD = st.tuples(st.just("add"), st.sampled_from(RESOURCES), trees(8, 60))
AGAIN = st.tuples(st.just("again"), st.sampled_from(RESOURCES), st.integers(1, 5))
REMOVE = st.tuples(st.just("remove"), st.sampled_from(RESOURCES), st.integers(1, 5))
TAG = st.tuples(st.just("tag"), st.sampled_from(RESOURCES), st.integers(1, 5))
UNTAG = st.tuples(st.just("untag"), st.just("skills"), st.just(1))
STEPS = st.lists(st.one_of(ADD, AGAIN, REMOVE, TAG, UNTAG), max_size=7)


def play(store, steps, base):
    """Do what steps say, where it can be done."""
    for what, resource, argument in steps:
        spec = f"{resource}@v{argument}"
        try:
            if what == "add":
                source = tempfile.mkdtemp(dir=base)
                materialise(argument, source)
                store.versions.add(resource, source)
            elif what == "again":
                store.versions.add(resource, spec)
            elif what == "remove":
                store.versions.remove(spec)
            elif what == "tag":
                store.tags.set("live", spec)
            else:
                store.tags.remove("live")
        except cas.NotFoundError:
            pass


def names(store):
    found = {version.spec: version.digest for version in store.versions.list()}
    found |= {seed.spec: seed.digest for seed in store.seeds.list()}
    return found | {tag.spec: tag.digest for tag in store.tags.list()}


def content(store):
    return {spec: read_state(store, spec) for spec in names(store)}


def removed(store):
    return {version.spec for version in store.versions.list(removed=True) if version.removed_at}


@given(before=STEPS, ours=STEPS, theirs=STEPS, renumber=st.booleans())
@settings(max_examples=25)
def test_a_pull_brings_what_is_new_and_changes_no_name(before, ours, theirs, renumber):
    with tempfile.TemporaryDirectory() as base:
        base = Path(base)
        theirs_store = cas.Store.init(base / "theirs")
        play(theirs_store, before, base)
        ours_store = cas.Store.clone(theirs_store, base / "ours")
        assert names(ours_store) == names(theirs_store)
        assert content(ours_store) == content(theirs_store)
        assert ours_store.id == theirs_store.id
        play(ours_store, ours, base)
        play(theirs_store, theirs, base)
        had, there = names(ours_store), content(theirs_store)
        gone = removed(ours_store)

        done = ours_store.pull(theirs_store, renumber=renumber)

        have = names(ours_store)
        specs = [spec for spec in had if not spec.startswith("tag:")]
        assert {spec: have[spec] for spec in specs} == {spec: had[spec] for spec in specs}
        landed = dict(done.renumbered)
        for spec, state in there.items():
            if spec in done.conflicts or spec in gone or spec.startswith("tag:"):
                continue
            assert read_state(ours_store, landed.get(spec, spec)) == state
        if renumber:
            assert not [spec for spec in done.conflicts if "@" in spec and spec not in gone]
        check_names_are_whole(ours_store)
        assert ours_store.verify(workers=1).ok

        again = ours_store.pull(theirs_store, renumber=renumber)
        assert (again.new, again.objects, again.conflicts) == ((), 0, done.conflicts)
        assert names(ours_store) == have
        assert names(theirs_store) == {spec: theirs_store.resolve(spec).manifest for spec in there}
        ours_store.close()
        theirs_store.close()


@given(steps=STEPS)
@settings(max_examples=10)
def test_a_push_to_an_empty_store_gives_it_every_name_and_no_more(steps):
    with tempfile.TemporaryDirectory() as base:
        base = Path(base)
        with cas.Store.init(base / "a") as a, cas.Store.init(base / "b") as b:
            play(a, steps, base)
            done = a.push(b)
            assert set(done.new) == set(names(a)) == set(names(b))
            assert content(b) == content(a)
            assert [v.number for v in b.versions.list()] == [v.number for v in a.versions.list()]
            assert b.verify(workers=1).ok
            if a.tags.list():
                assert b.tags.history("live") == a.tags.history("live")


def test_what_was_asked_for_and_conflicts_changes_nothing(tmp_path):
    with cas.Store.init(tmp_path / "a") as a, cas.Store.init(tmp_path / "b") as b:
        for store, text in ((a, b"one"), (b, b"two")):
            materialise({b"f": ("file", text)}, tmp_path / text.decode())
            store.versions.add("skills", tmp_path / text.decode())
        a.versions.add("prompts", tmp_path / "one")
        with pytest.raises(cas.ConflictError, match="skills@v1"):
            b.pull(a, ["prompts@v1", "skills@v1"])
        assert [v.spec for v in b.versions.list()] == ["skills@v1"]
        done = b.pull(a)
        assert (done.new, done.conflicts) == (("prompts@v1",), ("skills@v1",))
        assert dict(b.pull(a, ["skills@v1"], renumber=True).renumbered) == {
            "skills@v1": "skills@v2"
        }
        (entry, origin) = b.log("skills@v2")
        assert origin.digest == a.versions.get("skills").digest
        assert entry.source == origin.source
        assert b.versions.get("skills", "v2").created_at == a.versions.get("skills").created_at
