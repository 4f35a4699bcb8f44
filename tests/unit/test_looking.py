"""Looking: what specs name, differences, lineage, statistics, remembered workspaces."""

from __future__ import annotations

import shutil

import pytest

import cas
from cas.testing.runs import record_run
from cas.testing.strategies import materialise

OLD = {
    b"same": ("file", b"same"),
    b"changed": ("file", b"old"),
    b"moved": ("file", b"moved content"),
    b"gone": ("file", b"gone"),
    b"bin": ("file", b"#!"),
    b"folder": {b"x": ("file", b"x"), b"empty": {}},
    b"becomes-file": {},
}
NEW = {
    b"same": ("file", b"same"),
    b"changed": ("file", b"new"),
    b"sub": {b"moved": ("file", b"moved content")},
    b"bin": ("exec", b"#!"),
    b"folder": {b"y": ("file", b"y")},
    b"becomes-file": ("file", b"now"),
    b"new-empty": {},
}


@pytest.fixture
def store(tmp_path):
    materialise(OLD, tmp_path / "old")
    materialise(NEW, tmp_path / "new")
    with cas.Store.init(tmp_path / "store") as store:
        store.versions.add("skills", tmp_path / "old")
        store.versions.add("skills", tmp_path / "new")
        yield store


def paths(changes):
    return [change.path for change in changes]


def check_old_to_new(found):
    assert paths(found.added) == [b"folder/y", b"new-empty"]
    assert paths(found.removed) == [b"folder/empty", b"folder/x", b"gone"]
    assert paths(found.changed) == [b"becomes-file", b"bin", b"changed"]
    assert [(r.old_path, r.path) for r in found.renamed] == [(b"moved", b"sub/moved")]


def test_a_diff_says_what_was_added_removed_changed_and_renamed(store):
    found = store.diff("skills@v1", "skills@v2")
    check_old_to_new(found)
    assert found
    told = found.to_json()
    assert told["added"] == ["folder/y", "new-empty"]
    assert told["renamed"] == [{"from": "moved", "to": "sub/moved"}]


def test_a_directory_is_compared_like_a_state_and_the_store_stays_as_it_is(store, tmp_path):
    objects = store.stats().objects
    (tmp_path / "new/unstored").write_bytes(b"x" * 2_000_000)
    found = store.diff("skills@v1", tmp_path / "new")
    assert b"unstored" in paths(found.added)
    (tmp_path / "new/unstored").unlink()
    check_old_to_new(store.diff(tmp_path / "old", tmp_path / "new"))
    check_old_to_new(store.diff(str(tmp_path / "old"), "skills@v2"))
    assert store.stats().objects == objects


def test_equal_states_have_no_difference(store, tmp_path):
    found = store.diff("skills@v2", tmp_path / "new")
    assert not found
    assert found.to_json() == {"added": [], "removed": [], "changed": [], "renamed": []}


def test_empty_files_are_not_taken_for_renamed(store, tmp_path):
    materialise({b"a": ("file", b"")}, tmp_path / "a")
    materialise({b"b": ("file", b"")}, tmp_path / "b")
    found = store.diff(tmp_path / "a", tmp_path / "b")
    assert (paths(found.added), paths(found.removed), found.renamed) == ([b"b"], [b"a"], ())


def test_of_many_equal_files_those_that_keep_their_name_are_paired_first(store, tmp_path):
    same = ("file", b"same content")
    materialise({b"1": {b"n": same, b"m": same}}, tmp_path / "a")
    materialise({b"2": {b"k": same, b"n": same, b"z": same}}, tmp_path / "b")
    found = store.diff(tmp_path / "a", tmp_path / "b")
    assert [(r.old_path, r.path) for r in found.renamed] == [(b"1/m", b"2/k"), (b"1/n", b"2/n")]
    assert paths(found.added) == [b"2/z"]


def test_a_diff_of_a_file_is_refused(store):
    with pytest.raises(cas.NotFoundError, match="is a file, not a directory"):
        store.diff("skills@v1:same", "skills@v2")


def test_a_text_diff_shows_one_path_of_two_states(store, tmp_path):
    expected = ["--- a/changed", "+++ b/changed", "@@ -1 +1 @@", "-old"]
    for b in ("skills@v2", tmp_path / "new"):
        lines = list(store.diff_text("skills@v1", b, "changed"))
        assert lines[:4] == expected
        assert lines[5] == "+new"
    assert list(store.diff_text("skills@v1", "skills@v2", "same")) == []


def test_a_text_diff_of_two_named_files_is_called_by_their_names(store, tmp_path):
    lines = list(store.diff_text("skills@v1:changed", tmp_path / "new/changed"))
    assert lines[:2] == ["--- skills@v1:changed", f"+++ {tmp_path / 'new/changed'}"]


def test_a_text_diff_of_a_path_that_one_side_lacks_is_against_nothing(store):
    assert list(store.diff_text("skills@v1", "skills@v2", "gone"))[:2] == [
        "--- a/gone",
        "+++ /dev/null",
    ]
    with pytest.raises(cas.NotFoundError, match=r"neither .* has the file nope"):
        list(store.diff_text("skills@v1", "skills@v2", "nope"))
    with pytest.raises(cas.RefusedError, match="is a directory"):
        list(store.diff_text("skills@v1", "skills@v2", "folder"))


def test_files_that_are_no_text_or_too_large_are_not_compared_line_by_line(store, tmp_path):
    materialise({b"bin": ("file", b"\0a"), b"big": ("file", b"x" * (9 << 20))}, tmp_path / "a")
    materialise({b"bin": ("file", b"\0b"), b"big": ("file", b"y")}, tmp_path / "b")
    lines = list(store.diff_text(tmp_path / "a", tmp_path / "b", "bin"))
    assert lines == ["Binary files a/bin and b/bin differ"]
    with pytest.raises(cas.RefusedError, match="at most"):
        list(store.diff_text(tmp_path / "a", tmp_path / "b", "big"))


# --- resolve ----------------------------------------------------------------------------------


def test_a_spec_resolves_to_a_version_a_tree_or_a_blob(store):
    version = store.versions.get("skills", 1)
    whole = store.resolve("skills@v1")
    assert (whole.kind, whole.name, whole.manifest, whole.tree) == (
        "version",
        "skills@v1",
        version.digest,
        version.tree,
    )
    inside = store.resolve("skills@v1:folder")
    assert (inside.kind, inside.type, inside.manifest) == ("tree", "dir", version.digest)
    assert inside.tree == inside.digest
    file = store.resolve("skills@latest:bin")
    assert (file.kind, file.type, file.size, file.tree, file.name) == (
        "blob",
        "exec",
        2,
        None,
        "skills@v2",
    )


def test_a_digest_prefix_names_a_manifest_a_tree_or_a_blob(store):
    version = store.versions.get("skills", 1)
    assert store.resolve(str(version.digest)[:12]).name == "skills@v1"
    tree = store.resolve(str(version.tree)[:12])
    assert (tree.kind, tree.name, tree.tree) == ("tree", None, version.tree)
    blob = store.resolve("skills@v1:same").digest
    assert store.resolve(str(blob)).kind == "blob"
    assert store.resolve(f"{version.digest}:same").digest == blob
    with pytest.raises(cas.NotFoundError, match="is a file"):
        store.resolve(f"{blob}:x")


def test_an_ambiguous_digest_prefix_is_refused_with_its_candidates(store, monkeypatch):
    found = [cas.Digest(bytes([1] * 31 + [last])) for last in (1, 2)]
    monkeypatch.setattr(store._context.objects, "find", lambda prefix: found)
    with pytest.raises(cas.RefusedError, match="fits several objects") as caught:
        store.resolve("010101")
    assert caught.value.facts["candidates"] == [str(digest) for digest in found]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("skills@v3", "version skills@v3 not found; the newest is skills@v2"),
        ("skilz@v1", "resource skilz not found; there is skills"),
        ("seed:initial", "seed initial not found; there is no seed yet"),
        ("tag:live", "tag live not found; there is no tag yet"),
        ("0123456789", "no object has a digest that begins with 0123456789"),
        ("skills@v1:nope", "in skills@v1: 'nope' not found"),
        ("skills@v1:same/x", "'same' is not a directory"),
    ],
)
def test_a_spec_that_names_nothing_says_what_there_is(store, spec, words):
    with pytest.raises(cas.NotFoundError, match=words):
        store.resolve(spec)


# --- lineage ----------------------------------------------------------------------------------


def test_a_lineage_goes_back_to_the_first_also_when_names_were_removed(store, tmp_path):
    record_run(tmp_path / "run.db", "r")
    store.seeds.create(
        "initial",
        skills="skills@v2",
        prompts=tmp_path / "old",
        baseline=tmp_path / "run.db",
        baseline_run_id="r",
    )
    store.versions.remove("skills@v1")
    found = store.log("seed:initial")
    assert [entry.spec for entry in found] == ["seed:initial", "skills@v2", "skills@v1"]
    assert [entry.removed for entry in found] == [False, False, True]
    assert [entry.kind for entry in found] == ["seed", "version", "version"]
    assert found[0].baseline_run_id == "r"
    assert found[0].parents == (found[1].digest,)
    assert [entry.spec for entry in store.log("seed:initial", limit=2)] == [
        "seed:initial",
        "skills@v2",
    ]


def test_a_lineage_with_a_fork_lists_every_child_before_its_parents(store, tmp_path):
    store.versions.add("skills", tmp_path / "old", parent="skills@v1")
    store.versions.add("other", "skills@v2", parent="skills@v3")
    order = [entry.spec for entry in store.log("other@v1")]
    assert order == ["other@v1", "skills@v3", "skills@v1"]


def test_a_tree_has_no_lineage(store):
    with pytest.raises(cas.NotFoundError, match="without a lineage"):
        store.log(str(store.versions.get("skills", 1).tree))


def test_a_long_lineage_is_followed_without_recursion(store):
    for _ in range(150):
        store.versions.add("long", "skills@v1")
    assert [entry.spec for entry in store.log("long@latest")] == [
        f"long@v{number}" for number in range(150, 0, -1)
    ]


# --- stats and workspaces -----------------------------------------------------------------------


def test_stats_count_shared_content_once(store, tmp_path):
    stats = store.stats()
    (skills,) = stats.resources
    old, new = store.versions.list("skills")
    assert (skills.name, skills.versions) == ("skills", 2)
    assert skills.logical_bytes == old.bytes + new.bytes == stats.logical_bytes
    distinct = {b"same", b"old", b"new", b"moved content", b"gone", b"#!", b"x", b"y", b"now"}
    assert skills.unique_bytes == stats.unique_bytes == sum(map(len, distinct))
    store.versions.add("copy", "skills@v1")
    after = store.stats()
    assert after.unique_bytes == stats.unique_bytes
    assert after.logical_bytes == stats.logical_bytes + old.bytes
    assert after.dedup_ratio > stats.dedup_ratio
    keys = "objects logical_bytes unique_bytes stored_bytes dedup_ratio files_on_disk"
    assert set(keys.split()) <= after.to_json().keys()


def test_stats_of_an_empty_store_are_zero(tmp_path):
    with cas.Store.init(tmp_path / "empty") as store:
        stats = store.stats()
    assert (stats.objects, stats.logical_bytes, stats.unique_bytes, stats.dedup_ratio) == (
        0,
        0,
        0,
        1,
    )


def test_a_checkout_is_remembered_until_it_is_forgotten(store, tmp_path):
    store.checkout("skills@latest", tmp_path / "b")
    store.checkout("skills@v1", tmp_path / "a")
    (tmp_path / "deep").mkdir()
    store.checkout("skills@v1", tmp_path / "deep/c")
    assert [(w.path.name, w.spec, w.state) for w in store.workspaces.list()] == [
        ("a", "skills@v1", "there"),
        ("b", "skills@v2", "there"),
        ("c", "skills@v1", "there"),
    ]
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b/.cas-workspace")
    shutil.rmtree(tmp_path / "deep")
    states = [workspace.state for workspace in store.workspaces.list()]
    assert states == ["gone", "other", "unreachable"]
    assert store.workspaces.forget(tmp_path / "a").path == tmp_path / "a"
    assert len(store.workspaces.list()) == 2
    with pytest.raises(cas.NotFoundError, match="remembers no workspace"):
        store.workspaces.forget(tmp_path / "a")


def test_an_update_moves_a_workspace_and_keeps_what_a_person_changed(store, tmp_path):
    store.checkout("skills@v1", tmp_path / "w")
    (tmp_path / "w/changed").write_text("mine")
    moved = store.checkout("skills@v2", tmp_path / "w", update=True)
    assert moved.kept == (b"changed",)
    assert moved.to_json()["kept"] == ["changed"]
    assert store.status(tmp_path / "w").changed == (b"changed",)
    with pytest.raises(cas.RefusedError):
        store.checkout("skills@v1", tmp_path / "w", update=True, force=True)
