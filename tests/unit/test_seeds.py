"""Seeds: frozen states, their layout, and promoting a workspace."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing

import pytest

import cas
from cas.testing.runs import record_run, runs_in
from cas.testing.stores import read_state
from cas.testing.strategies import materialise, read_back


@pytest.fixture
def store(tmp_path):
    with cas.Store.init(tmp_path / "store") as store:
        yield store


@pytest.fixture
def parts(tmp_path):
    """Directories and a database that a seed can be made of."""
    materialise({b"a.md": ("file", b"skill"), b"run": ("exec", b"#!")}, tmp_path / "skills")
    materialise({b"p.txt": ("file", b"prompt")}, tmp_path / "prompts")
    record_run(tmp_path / "run.db", "r1", skills="v3", prompts="v2")
    return {
        "skills": tmp_path / "skills",
        "prompts": tmp_path / "prompts",
        "baseline": tmp_path / "run.db",
        "baseline_run_id": "r1",
    }


def leftovers(store):
    """Return what lies in the store's folder for files on their way."""
    folder = store.root / "cache" / "scratch"
    return os.listdir(folder) if folder.exists() else []


def test_a_seed_is_a_workspace_with_the_labels_that_its_run_names(store, parts):
    seed = store.seeds.create("initial", **parts, description="first")
    state = read_state(store, "seed:initial")
    assert state[b"skills"] == {b"v3": read_back(parts["skills"])}
    assert state[b"prompts"] == {b"v2": read_back(parts["prompts"])}
    assert state.keys() == {b"skills", b"prompts", b"harness.db", b"seed.json"}
    assert (seed.parts["skills"].label, seed.parts["prompts"].label) == ("v3", "v2")
    assert seed.parts["baseline"].kind == "blob"
    assert (seed.baseline_run_id, seed.description) == ("r1", "first")
    told = json.loads(state[b"seed.json"][1])
    assert told["name"] == "initial"
    assert told["created_at"] == seed.created_at
    assert told["parts"]["skills"]["digest"] == str(seed.parts["skills"].digest)
    assert leftovers(store) == []


def test_labels_are_v1_where_the_run_names_no_version(store, parts, tmp_path):
    record_run(tmp_path / "null.db", "r", skills=None, prompts=None)
    parts |= {"baseline": tmp_path / "null.db", "baseline_run_id": "r"}
    seed = store.seeds.create("initial", **parts)
    assert {part.label for part in seed.parts.values()} == {"v1", None}


def test_a_part_is_the_tree_that_a_version_of_it_is(store, parts):
    version = store.versions.add("skills", parts["skills"])
    seed = store.seeds.create("initial", **(parts | {"skills": "skills@v1"}))
    assert seed.parts["skills"].digest == version.tree
    assert seed.parents == (version.digest,)


def test_more_parts_are_files_or_directories_under_their_own_names(store, parts, tmp_path):
    (tmp_path / "tool").write_text("#!")
    (tmp_path / "tool").chmod(0o755)
    store.versions.add("config", parts["prompts"])
    seed = store.seeds.create(
        "initial", **parts, parts={"tool": tmp_path / "tool", "config": "config@v1"}
    )
    state = read_state(store, "seed:initial")
    assert state[b"tool"] == ("exec", b"#!")
    assert state[b"config"] == {b"p.txt": ("file", b"prompt")}
    assert (seed.parts["tool"].kind, seed.parts["config"].kind) == ("blob", "tree")


@pytest.mark.parametrize(
    "name",
    [
        "skills",
        "Prompts",
        "baseline",
        "harness.db",
        "harness.db-wal",
        "seed.json",
        "../x",
        ".cas-workspace",
    ],
)
def test_a_part_cannot_take_a_place_that_a_seed_needs(store, parts, name):
    with pytest.raises(cas.RefusedError):
        store.seeds.create("initial", **parts, parts={name: parts["prompts"]})
    assert store.seeds.list() == []


def test_a_seed_is_never_overwritten(store, parts):
    first = store.seeds.create("initial", **parts)
    with pytest.raises(cas.ConflictError, match="seed initial exists and is never overwritten"):
        store.seeds.create("initial", **parts)
    assert store.seeds.get("initial").digest == first.digest


def test_a_missing_folder_is_refused_and_the_right_one_then_works(store, parts, tmp_path):
    with pytest.raises(cas.NotFoundError, match=r"the prompts of seed initial: .* not found"):
        store.seeds.create("initial", **(parts | {"prompts": tmp_path / "nowhere"}))
    assert store.seeds.list() == []
    assert leftovers(store) == []
    assert store.seeds.create("initial", **parts).name == "initial"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"prompts": "prompts@v7"}, cas.NotFoundError),
        ({"prompts": "run.db"}, cas.RefusedError),
        ({"baseline": "nothing.db"}, cas.NotFoundError),
        ({"baseline": "prompts/p.txt"}, cas.RefusedError),
        ({"baseline_run_id": "r9"}, cas.NotFoundError),
        ({"baseline_run_id": ""}, cas.NameRefusedError),
        ({"parent": "seed:none"}, cas.NotFoundError),
    ],
)
def test_what_a_seed_cannot_take_leaves_nothing_behind(
    store, parts, tmp_path, monkeypatch, change, error
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error):
        store.seeds.create("initial", **(parts | change))
    assert store.seeds.list(removed=True) == []
    assert leftovers(store) == []
    assert not (tmp_path / "nothing.db").exists()


def test_a_baseline_that_a_writer_holds_open_comes_with_every_committed_row(store, parts, tmp_path):
    with closing(sqlite3.connect(tmp_path / "run.db", isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("INSERT INTO predictions VALUES ('r1', 'late', 'x')")
        store.seeds.create("initial", **parts)
    (tmp_path / "copy.db").write_bytes(read_state(store, "seed:initial")[b"harness.db"][1])
    assert runs_in(tmp_path / "copy.db") == {"r1": 4}


def test_seeds_are_listed_by_name(store, parts):
    for name in ("b", "a", "c"):
        store.seeds.create(name, **parts)
    assert [seed.name for seed in store.seeds.list()] == ["a", "b", "c"]
    with pytest.raises(cas.NotFoundError, match="seed d not found; there are a, b, c"):
        store.seeds.get("d")


def test_a_removed_seeds_name_is_kept_unless_its_reuse_is_asked_for(store, parts):
    first = store.seeds.create("initial", **parts)
    assert store.seeds.remove("initial").removed_at is not None
    assert store.seeds.list() == []
    with pytest.raises(cas.ConflictError, match="was removed and its name is kept"):
        store.seeds.create("initial", **parts)
    again = store.seeds.create("initial", **parts, description="again", reuse_name=True)
    assert again.digest != first.digest
    assert store.seeds.get("initial").description == "again"


def test_undelete_brings_a_seed_back(store, parts):
    first = store.seeds.create("initial", **parts)
    store.seeds.remove("initial")
    assert store.seeds.undelete("initial").digest == first.digest
    assert store.seeds.get("initial").removed_at is None
    with pytest.raises(cas.ConflictError):
        store.seeds.undelete("initial")
    with pytest.raises(cas.NotFoundError):
        store.seeds.undelete("other")


@pytest.mark.parametrize("text", ["seed:first", "first"])
def test_the_parent_of_a_seed_is_linked_by_spec_or_bare_name(store, parts, text):
    first = store.seeds.create("first", **parts)
    second = store.seeds.create("second", **parts, parent=text)
    assert second.parent == text
    assert second.parents == (first.digest,)


def test_the_json_of_a_seed_has_the_keys_that_scripts_rely_on(store, parts):
    told = store.seeds.create("initial", **parts).to_json()
    keys = "name digest parts baseline_run_id parent created_at description"
    assert set(keys.split()) <= told.keys()
    assert set(told["parts"]["skills"]) == {"kind", "digest", "files", "bytes", "label"}


# --- promote ---------------------------------------------------------------------------------


@pytest.fixture
def workspace(store, parts, tmp_path):
    """A checkout of a seed in which skills evolved to v4."""
    store.seeds.create("initial", **parts)
    store.checkout("seed:initial", tmp_path / "work")
    shutil.copytree(tmp_path / "work/skills/v3", tmp_path / "work/skills/v4")
    (tmp_path / "work/skills/v4/new.md").write_text("new")
    return tmp_path / "work"


def test_promote_freezes_what_one_run_has_earned(store, workspace, tmp_path):
    record_run(workspace / "harness.db", "eval", skills="v4", prompts="v2", answers=7)
    seed = store.seeds.promote(workspace, version="v4", eval_run_id="eval", name="next")
    state = read_state(store, "seed:next")
    assert state[b"skills"] == {b"v4": read_back(workspace / "skills/v4")}
    assert state[b"prompts"] == {b"v2": read_back(workspace / "prompts/v2")}
    (tmp_path / "copy.db").write_bytes(state[b"harness.db"][1])
    assert runs_in(tmp_path / "copy.db") == {"eval": 7}
    assert seed.baseline_run_id == "eval"
    assert seed.parent == "work:v4"
    assert seed.parents == (store.seeds.get("initial").digest,)
    assert leftovers(store) == []


def test_a_promoted_seed_keeps_the_other_parts_of_the_seed_it_came_from(store, parts, tmp_path):
    store.seeds.create(
        "initial", **parts, parts={"config": parts["prompts"], "gone": parts["skills"]}
    )
    store.checkout("seed:initial", tmp_path / "work")
    (tmp_path / "work/config/more").write_text("more")
    shutil.rmtree(tmp_path / "work/gone")
    record_run(tmp_path / "work/harness.db", "eval", skills="v3", prompts="v2")
    seed = store.seeds.promote(tmp_path / "work", version="v3", eval_run_id="eval", name="next")
    assert seed.parts.keys() == {"skills", "prompts", "baseline", "config"}
    assert read_state(store, "seed:next:config")[b"more"] == ("file", b"more")


@pytest.mark.parametrize(
    ("run", "error", "words"),
    [
        ({"status": "running"}, cas.RefusedError, "not finished"),
        ({"skills": None}, cas.RefusedError, "no skills version"),
        ({"prompts": None}, cas.RefusedError, "no prompts version"),
        ({"skills": "v3"}, cas.RefusedError, "used skills v3, not v4"),
        ({"prompts": "v9"}, cas.NotFoundError, "no prompts/v9"),
    ],
)
def test_a_run_that_has_not_earned_it_is_not_promoted(store, workspace, run, error, words):
    record_run(workspace / "harness.db", "eval", **({"skills": "v4", "prompts": "v2"} | run))
    with pytest.raises(error, match=words):
        store.seeds.promote(workspace, version="v4", eval_run_id="eval", name="next")
    assert [seed.name for seed in store.seeds.list(removed=True)] == ["initial"]
    assert leftovers(store) == []


def test_a_run_that_is_not_finished_can_be_forced(store, workspace):
    record_run(workspace / "harness.db", "eval", skills="v4", prompts="v2", status="running")
    store.seeds.promote(workspace, version="v4", eval_run_id="eval", name="next", force=True)
    assert store.seeds.get("next").baseline_run_id == "eval"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"version": "v9"}, cas.NotFoundError),
        ({"version": "../v3"}, cas.NameRefusedError),
        ({"eval_run_id": "other"}, cas.NotFoundError),
        ({"name": "initial"}, cas.ConflictError),
        ({"name": "a/b"}, cas.NameRefusedError),
        ({"workspace": "nowhere"}, cas.NotFoundError),
    ],
)
def test_a_promotion_that_names_nothing_is_refused(store, workspace, change, error):
    record_run(workspace / "harness.db", "eval", skills="v4", prompts="v2")
    asked = {"workspace": workspace, "version": "v4", "eval_run_id": "eval", "name": "next"}
    with pytest.raises(error):
        store.seeds.promote(**(asked | change))
    assert [seed.name for seed in store.seeds.list(removed=True)] == ["initial"]


def test_a_directory_that_no_checkout_made_can_be_promoted_without_a_link(
    store, workspace, tmp_path
):
    shutil.copytree(workspace, tmp_path / "copy", ignore=shutil.ignore_patterns(".cas-workspace"))
    record_run(tmp_path / "copy/harness.db", "eval", skills="v4", prompts="v2")
    seed = store.seeds.promote(tmp_path / "copy", version="v4", eval_run_id="eval", name="next")
    assert (seed.parent, seed.parents) == ("copy:v4", ())


def test_the_promotion_of_a_workspace_of_a_version_is_linked_to_that_version(
    store, parts, tmp_path
):
    materialise(
        {b"skills": {b"v1": {b"x": ("file", b"x")}}, b"prompts": {b"v1": {}}}, tmp_path / "w"
    )
    version = store.versions.add("bundle", tmp_path / "w")
    store.checkout("bundle@v1", tmp_path / "out")
    record_run(tmp_path / "out/harness.db", "eval")
    seed = store.seeds.promote(tmp_path / "out", version="v1", eval_run_id="eval", name="next")
    assert seed.parents == (version.digest,)
