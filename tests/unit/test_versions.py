"""Versions: numbers, parents, older states, edits, removal."""

from __future__ import annotations

import pytest

import cas
from cas.testing.stores import read_state
from cas.testing.strategies import materialise


@pytest.fixture
def store(tmp_path):
    with cas.Store.init(tmp_path / "store") as store:
        yield store


@pytest.fixture
def skills(tmp_path):
    folder = tmp_path / "skills"
    materialise({b"a.md": ("file", b"one"), b"bin": {b"run": ("exec", b"#!")}}, folder)
    return folder


def test_the_first_version_is_v1_and_has_no_parent(store, skills):
    added = store.versions.add("skills", skills, description="why", meta={"k": "v"})
    assert added.spec == "skills@v1"
    assert (added.number, added.version) == (1, "v1")
    assert (added.files, added.bytes) == (2, 5)
    assert added.parents == ()
    assert added.parent is None
    assert (added.source, added.description, added.meta) == ("manual", "why", {"k": "v"})
    assert not added.unchanged


def test_the_newest_version_is_the_parent_unless_another_is_given(store, skills):
    first = store.versions.add("skills", skills)
    second = store.versions.add("skills", skills)
    assert second.parents == (first.digest,)
    assert second.parent == "skills@v1"
    third = store.versions.add("skills", skills, parent="skills@v1")
    assert third.parents == (first.digest,)


def test_a_parent_spec_is_recorded_as_what_it_stood_for(store, skills):
    store.versions.add("skills", skills)
    second = store.versions.add("skills", skills)
    assert store.versions.add("prompts", skills, parent="skills@latest").parent == "skills@v2"
    bare = store.versions.add("skills", skills, parent="v2")
    assert bare.parent == "v2"
    assert bare.parents == (second.digest,)


@pytest.mark.parametrize("text", ["WORKSPACE:v3", "somebody's word", "deadbeef", "v77"])
def test_a_parent_that_is_no_spec_is_kept_as_text(store, skills, text):
    store.versions.add("skills", skills)
    added = store.versions.add("skills", skills, parent=text)
    assert added.parent == text
    assert added.parents == ()


@pytest.mark.parametrize("text", ["skills@v9", "seed:none", "tag:none"])
def test_a_parent_that_reads_as_a_spec_must_exist(store, skills, text):
    with pytest.raises(cas.NotFoundError):
        store.versions.add("skills", skills, parent=text)
    assert store.versions.list() == []


def test_versions_are_listed_in_number_order(store, skills):
    for _ in range(11):
        store.versions.add("skills", skills)
    store.versions.add("prompts", skills)
    assert [v.number for v in store.versions.list("skills")] == list(range(1, 12))
    assert store.versions.list()[0].spec == "prompts@v1"
    assert store.versions.resources() == ["prompts", "skills"]


def test_get_takes_latest_a_label_or_a_number(store, skills):
    store.versions.add("skills", skills)
    store.versions.add("skills", skills)
    assert store.versions.get("skills").number == 2
    assert store.versions.get("skills", "v1") == store.versions.get("skills", 1)
    with pytest.raises(
        cas.NotFoundError, match="version skills@v3 not found; the newest is skills@v2"
    ):
        store.versions.get("skills", 3)


def test_an_unknown_resource_is_not_found_and_the_known_ones_are_named(store, skills):
    store.versions.add("skills", skills)
    with pytest.raises(cas.NotFoundError, match="resource skilz not found; there is skills"):
        store.versions.list("skilz")


def test_if_changed_makes_no_version_of_an_equal_tree(store, skills):
    first = store.versions.add("skills", skills)
    again = store.versions.add("skills", skills, if_changed=True)
    assert again.unchanged
    assert (again.spec, again.digest) == (first.spec, first.digest)
    assert again.new_bytes == 0
    (skills / "a.md").write_text("two")
    assert store.versions.add("skills", skills, if_changed=True).number == 2


def test_equal_content_is_stored_once(store, skills):
    store.versions.add("skills", skills)
    again = store.versions.add("other", skills)
    assert (again.new_bytes, again.stored_bytes) == (0, 0)


def test_adding_a_spec_makes_an_older_state_the_newest_again(store, skills):
    first = store.versions.add("skills", skills)
    (skills / "a.md").write_text("two")
    store.versions.add("skills", skills)
    back = store.versions.add("skills", "skills@v1")
    assert back.number == 3
    assert back.tree == first.tree
    assert back.new_bytes == 0


def test_a_folder_and_a_file_of_another_state_can_be_added(store, skills):
    store.versions.add("skills", skills)
    folder = store.versions.add("tools", "skills@v1:bin")
    assert read_state(store, folder.spec) == {b"run": ("exec", b"#!")}
    file = store.versions.add("note", "skills@v1:a.md")
    assert read_state(store, file.spec) == {b"a.md": ("file", b"one")}


def test_a_single_file_becomes_a_tree_of_one(store, skills):
    added = store.versions.add("note", skills / "a.md")
    assert read_state(store, added.spec) == {b"a.md": ("file", b"one")}


def test_a_text_that_exists_is_a_path_also_if_it_reads_as_a_spec(
    store, skills, monkeypatch, tmp_path
):
    store.versions.add("skills", skills)
    materialise({b"x": ("file", b"path")}, tmp_path / "skills@v1")
    monkeypatch.chdir(tmp_path)
    assert read_state(store, store.versions.add("r", "skills@v1").spec) == {b"x": ("file", b"path")}


@pytest.mark.parametrize("source", ["./skills@v1", "nothing/here", "/nowhere"])
def test_a_source_that_does_not_exist_is_not_found(store, skills, monkeypatch, tmp_path, source):
    store.versions.add("skills", skills)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(cas.NotFoundError):
        store.versions.add("r", source)
    assert store.versions.resources() == ["skills"]


BAD_NAMES = [
    "../../x",
    "/absolute",
    "",
    "nul\0",
    "new\nline",
    "n" * 300,
    "a//b",
    ".",
    "a/..",
    "a b",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_outside_the_grammar_is_refused_and_nothing_changes(store, skills, name):
    position = store.versions._context.refs.refresh()
    with pytest.raises(cas.NameRefusedError):
        store.versions.add(name, skills)
    with pytest.raises(cas.NameRefusedError):
        store.tags.set(name, "skills@v1")
    with pytest.raises(cas.NameRefusedError):
        store.seeds.create(
            name, skills=skills, prompts=skills, baseline=skills, baseline_run_id="r"
        )
    assert store.versions._context.refs.refresh() == position


@pytest.mark.parametrize(
    "extra", [{"source": "\0"}, {"description": "\ud800"}, {"meta": {"k": "x" * 70_000}}]
)
def test_a_text_that_no_manifest_can_hold_is_refused_before_any_work(store, skills, extra):
    with pytest.raises(cas.NameRefusedError):
        store.versions.add("skills", skills, **extra)
    assert store.stats().objects == 0


def test_an_edit_makes_the_next_version_without_a_checkout(store, skills, tmp_path):
    first = store.versions.add("skills", skills)
    (skills / "new").write_text("new")
    edited = store.versions.edit(
        "skills@v1", put={"deep/er/file": skills / "new", "lib": skills / "bin"}, remove=["a.md"]
    )
    assert edited.number == 2
    assert edited.parents == (first.digest,)
    assert edited.parent == "skills@v1"
    assert read_state(store, "skills@v2") == {
        b"bin": {b"run": ("exec", b"#!")},
        b"deep": {b"er": {b"file": ("file", b"new")}},
        b"lib": {b"run": ("exec", b"#!")},
    }
    assert (edited.files, edited.bytes) == (3, 7)


def test_an_edit_can_take_a_file_from_another_version(store, skills):
    store.versions.add("skills", skills)
    edited = store.versions.edit("skills@v1", put={"b.md": "skills@v1:a.md"})
    assert read_state(store, edited.spec)[b"b.md"] == ("file", b"one")


@pytest.mark.parametrize(
    ("put", "remove", "error"),
    [
        ({}, ["nothing"], cas.NotFoundError),
        ({"x": "no/such/file"}, [], cas.NotFoundError),
        ({"../x": "skills@v1:a.md"}, [], cas.NameRefusedError),
        ({"": "skills@v1:a.md"}, [], cas.RefusedError),
        ({"a.md/x": "skills@v1:a.md"}, [], cas.RefusedError),
    ],
)
def test_an_edit_that_cannot_be_made_changes_nothing(store, skills, put, remove, error):
    store.versions.add("skills", skills)
    with pytest.raises(error):
        store.versions.edit("skills@v1", put=put, remove=remove)
    assert len(store.versions.list()) == 1


@pytest.mark.parametrize("spec", ["seed:x", "skills@v1:bin", "abcdef12"])
def test_only_a_whole_version_can_be_edited_or_removed(store, skills, spec):
    store.versions.add("skills", skills)
    with pytest.raises(cas.RefusedError, match="is not a version"):
        store.versions.edit(spec, remove=["a.md"])
    with pytest.raises(cas.RefusedError, match="is not a version"):
        store.versions.remove(spec)


def test_a_removed_number_is_never_given_again(store, skills):
    store.versions.add("skills", skills)
    store.versions.add("skills", skills)
    removed = store.versions.remove("skills@latest", reason="bad", by="me")
    assert removed.number == 2
    assert removed.removed_at is not None
    assert [v.number for v in store.versions.list("skills")] == [1]
    assert [v.number for v in store.versions.list("skills", removed=True)] == [1, 2]
    added = store.versions.add("skills", skills)
    assert added.number == 3
    assert added.parent == "skills@v1"


def test_a_removed_version_is_said_to_be_removed(store, skills):
    store.versions.add("skills", skills)
    store.versions.remove("skills@v1")
    with pytest.raises(cas.NotFoundError, match="skills@v1 was removed; undelete it"):
        store.versions.get("skills", 1)
    with pytest.raises(cas.NotFoundError, match="every version of skills was removed"):
        store.versions.get("skills")
    with pytest.raises(cas.NotFoundError, match="was removed"):
        store.versions.remove("skills@v1")
    assert store.versions.resources() == []
    assert store.versions.list("skills") == []


def test_undelete_brings_a_version_back_as_it_was(store, skills):
    added = store.versions.add("skills", skills)
    store.versions.remove("skills@v1")
    back = store.versions.undelete("skills@v1")
    assert (back.digest, back.removed_at) == (added.digest, None)
    assert store.versions.get("skills") == back
    with pytest.raises(cas.ConflictError, match="is not removed"):
        store.versions.undelete("skills@v1")
    with pytest.raises(cas.NotFoundError):
        store.versions.undelete("skills@v2")


def test_undelete_is_refused_when_content_is_gone(store, skills, tmp_path):
    store.versions.add("skills", skills)
    store.versions.remove("skills@v1")
    for pack in (tmp_path / "store" / "packs").iterdir():
        pack.unlink()
    with cas.Store.open(tmp_path / "store") as again:
        with pytest.raises(cas.MissingObjectError, match="no longer all there"):
            again.versions.undelete("skills@v1")
        assert again.versions.list() == []


def test_the_json_of_an_add_has_the_keys_that_scripts_rely_on(store, skills):
    keys = "spec resource version digest tree files bytes new_bytes stored_bytes unchanged"
    assert set(keys.split()) <= store.versions.add("skills", skills).to_json().keys()
    keys = (
        "spec resource version number digest tree parents source created_at description "
        "trigger_run trigger_workspace files bytes"
    )
    assert set(keys.split()) <= store.versions.list()[0].to_json().keys()


def test_a_set_with_its_own_meta_json_comes_back_byte_for_byte(store, tmp_path):
    model = {b"meta.json": ("file", b'{"version": "v9"}\n'), b"x": ("file", b"")}
    materialise(model, tmp_path / "set")
    assert read_state(store, store.versions.add("skills", tmp_path / "set").spec) == model
