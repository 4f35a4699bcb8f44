"""Old version stores: what an import takes in, skips and refuses, and what an export writes."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing

import pytest

import cas
from cas.layouts import told
from cas.testing.runs import record_run, runs_in
from cas.testing.stores import read_state
from cas.testing.strategies import materialise, read_back

WHOLE = {
    "version": "v1",
    "source": "evolution",
    "parent": None,
    "trigger_run": "20260101_120000",
    "trigger_workspace": "ws",
    "description": "why",
    "created_at": "2026-01-01T12:00:00+00:00",
}


@pytest.fixture
def store(tmp_path):
    with cas.Store.init(tmp_path / "store") as store:
        yield store


@pytest.fixture
def other(tmp_path):
    """Another store, to import an export into."""
    with cas.Store.init(tmp_path / "other") as store:
        yield store


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old"
    path.mkdir()
    return path


def version(path, *, content="x", **said):
    """Make a version's folder with all that an old store tells, but for what is said otherwise."""
    path.mkdir(parents=True)
    (path / "a.md").write_text(content)
    told = WHOLE | {"version": path.name} | said
    (path / "meta.json").write_text(json.dumps(told))
    return path


def seed(path, *, run="r1", **said):
    for part in ("skills", "prompts"):
        (path / part).mkdir(parents=True)
        (path / part / "a.md").write_text(part)
    record_run(path / "baseline.db", "r1", skills="v3", prompts="v2")
    told = {"baseline_run_id": run, "created_at": "2026-01-02T00:00:00+00:00"} | said
    (path / "seed.json").write_text(json.dumps(told))
    return path


def reasons(done):
    return {os.fsdecode(one.path): one.reason for one in done.skipped}


def specs(store):
    return [v.spec for v in store.versions.list()] + [s.spec for s in store.seeds.list()]


def meta_of(path):
    return json.loads((path / "meta.json").read_text())


# --- what is recognised --------------------------------------------------------------------------


def test_a_whole_store_comes_in_with_one_record(store, old):
    for number in (1, 2, 5, 10):
        version(old / f"skills/v{number}", content=str(number))
    version(old / "prompts/v1")
    version(old / "questions/generated/v2")
    materialise({b"q.json": ("file", b"[]")}, old / "questions/benchmarks")
    materialise({b"bird": {b"tree.json": ("file", b"{}")}}, old / "videos")
    seed(old / "seeds/initial", parent="ws:v1", description="first")
    before, position = read_back(old), store._context.refs.refresh()

    done = store.import_layout(old)

    assert store._context.refs.refresh() == position + 1
    assert done.skipped == ()
    assert specs(store) == [
        "prompts@v1",
        "questions/benchmarks@v1",
        "questions/generated@v2",
        "skills@v1",
        "skills@v2",
        "skills@v5",
        "skills@v10",
        "videos@v1",
        "seed:initial",
    ]
    assert read_state(store, "skills@v10") == {b"a.md": ("file", b"10")}
    assert read_state(store, "videos@v1") == read_back(old / "videos")
    frozen = store.seeds.get("initial")
    assert (frozen.parent, frozen.parents, frozen.description) == ("ws:v1", (), "first")
    assert frozen.created_at == "2026-01-02T00:00:00+00:00"
    assert read_back(old) == before
    assert store.verify().ok
    assert [v.spec for v in done.versions] + [s.spec for s in done.seeds] == specs(store)


def test_what_meta_json_says_becomes_the_versions_own(store, old):
    version(old / "skills/v1")
    store.import_layout(old)
    made = store.versions.get("skills", 1)
    for name, value in WHOLE.items():
        assert getattr(made, name) == value
    assert made.meta == {}


def test_the_next_version_goes_on_after_the_highest_number(store, old):
    version(old / "skills/v7")
    store.import_layout(old)
    assert store.versions.add("skills", old).number == 8


def test_parents_are_linked_to_what_the_layout_holds(store, old):
    version(old / "skills/v1")
    version(old / "skills/v2", parent="v1")
    version(old / "skills/v3", parent="skills@v2")
    version(old / "skills/v4", parent="seed:initial")
    version(old / "skills/v5", parent="v99")
    version(old / "skills/v6", parent="ws:v1")
    seed(old / "seeds/initial", parent="skills@v3")
    seed(old / "seeds/next", parent="initial")
    store.import_layout(old)
    made = [store.versions.get("skills", number) for number in range(1, 7)]
    seeds = {one.name: one for one in store.seeds.list()}
    assert [one.parents for one in made] == [
        (),
        (made[0].digest,),
        (made[1].digest,),
        (seeds["initial"].digest,),
        (),
        (),
    ]
    assert [one.parent for one in made][3:] == ["seed:initial", "v99", "ws:v1"]
    assert seeds["initial"].parents == (made[2].digest,)
    assert seeds["next"].parents == (seeds["initial"].digest,)
    assert len(store.log("seed:next")) == 5


def test_parents_in_a_circle_are_linked_as_far_as_can_be(store, old):
    version(old / "skills/v1", parent="v2")
    version(old / "skills/v2", parent="v1")
    version(old / "skills/v3", parent="v3")
    store.import_layout(old)
    made = store.versions.list("skills")
    assert [one.parent for one in made] == ["v2", "v1", "v3"]
    assert sorted(len(one.parents) for one in made) == [0, 0, 1]


def test_other_folders_of_versions_are_resources_of_their_name(store, old):
    version(old / "rubrics/v1")
    version(old / "team/a/skills/v2")
    version(old / "skills/drafts/v1")
    done = store.import_layout(old)
    assert specs(store) == ["rubrics@v1", "skills/drafts@v1", "team/a/skills@v2"]
    assert done.skipped == ()


def test_videos_are_plain_unless_they_are_nothing_but_versions(store, other, old):
    version(old / "videos/v1")
    version(old / "videos/v2")
    store.import_layout(old)
    assert specs(store) == ["videos@v1", "videos@v2"]
    (old / "videos/index.json").write_text("[]")
    other.import_layout(old)
    assert specs(other) == ["videos@v1"]
    assert read_state(other, "videos@v1") == read_back(old / "videos")


def test_a_plain_folder_is_as_old_as_its_last_change_and_that_is_said(store, old):
    materialise({b"bird": {}}, old / "videos")
    os.utime(old / "videos", (1_700_000_000.25, 1_700_000_000.25))
    done = store.import_layout(old)
    assert store.versions.get("videos").created_at == "2023-11-14T22:13:20.250000+00:00"
    assert any(notice.startswith("videos: created_at") for notice in done.notices)


def test_an_empty_folder_of_videos_is_no_version(store, old):
    (old / "videos").mkdir()
    version(old / "skills/v1")
    assert [v.spec for v in store.import_layout(old).versions] == ["skills@v1"]


def test_ignore_files_of_an_old_store_are_content(store, old):
    path = version(old / "skills/v1")
    (path / ".casignore").write_text("*.md\n")
    store.import_layout(old)
    assert read_state(store, "skills@v1").keys() == {b".casignore", b"a.md"}


def test_links_inside_a_version_stay_links(store, old):
    path = version(old / "skills/v1")
    (path / "out").symlink_to("/etc")
    store.import_layout(old)
    assert read_state(store, "skills@v1")[b"out"] == ("symlink", b"/etc")


def test_a_directory_may_be_named_through_a_link(store, old, tmp_path):
    version(old / "skills/v1")
    (tmp_path / "link").symlink_to(old)
    assert store.import_layout(tmp_path / "link").versions[0].spec == "skills@v1"


def test_progress_counts_on_over_all_versions(store, old):
    for number in range(1, 4):
        version(old / f"skills/v{number}", content=str(number))
    seen = []
    store.import_layout(old, progress=lambda phase, files, *_: seen.append(files))
    assert seen[-1] == 3
    assert seen == sorted(seen)


# --- what is skipped -----------------------------------------------------------------------------


def test_what_is_damaged_is_skipped_by_name_and_the_rest_comes_in(store, old, tmp_path):
    version(old / "skills/v1")
    version(old / "skills/v2").joinpath("meta.json").unlink()
    version(old / "skills/v3").joinpath("meta.json").write_text('{"source": "man')
    (old / "skills/v4").write_text("a file")
    (old / "skills/v5").symlink_to(old / "skills/v1")
    version(old / "skills/v6").joinpath("meta.json").unlink()
    (old / "skills/v6/meta.json").symlink_to(old / "skills/v1/meta.json")
    version(old / "skills/v7").joinpath("meta.json").unlink()
    (old / "skills/v7/meta.json").mkdir()
    os.mkfifo(version(old / "skills/v8") / "pipe")
    version(old / "skills/v9").joinpath("meta.json").unlink()
    os.mkfifo(old / "skills/v9/meta.json")
    for name in ("v0", "v01", "V2", "v99999999999999999999", "drafts", "v2.bak"):
        version(old / "skills" / name)
    (old / "skills/notes.txt").write_text("")
    (old / "prompts").write_text("a file")
    version(tmp_path / "elsewhere/v1")
    (old / "questions").symlink_to(tmp_path / "elsewhere")
    (old / "README").write_text("")
    (old / "workspaces/w1/skills").mkdir(parents=True)

    done = store.import_layout(old)

    assert specs(store) == ["skills@v1"]
    assert reasons(done).keys() == {
        "README",
        "prompts",
        "questions",
        "workspaces",
        "skills/notes.txt",
        *(f"skills/v{number}" for number in range(2, 10)),
        *(f"skills/{name}" for name in ("v0", "v01", "V2", "drafts", "v2.bak")),
        "skills/v99999999999999999999",
    }
    assert "not finished" in reasons(done)["skills/v2"]
    assert "no JSON" in reasons(done)["skills/v3"]
    assert "file where a folder belongs" in reasons(done)["skills/v4"]
    assert "symlink" in reasons(done)["skills/v5"]
    assert "symlink" in reasons(done)["skills/v6"]
    assert "no file" in reasons(done)["skills/v7"]
    assert "pipe is a FIFO" in reasons(done)["skills/v8"]
    assert "symlink" in reasons(done)["questions"]
    assert store.verify().ok


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'"text"',
        b"null",
        b"\xff{}",
        b"\xef\xbb\xbf{}",
        b'{"source": 5}',
        b'{"parent": ["v1"]}',
        b'{"description": {}}',
        b'{"trigger_run": false}',
        b'{"source": "a", "source": "b"}',
        b'{"deep": {"x": 1, "x": 2}}',
        b'{"score": NaN}',
        b'{"score": [Infinity]}',
        b'{"score": 1e999}',
        b'{"score": ' + b"1" * 5000 + b"}",
        b'{"text": "a\\u0000b"}',
        b'{"a\\u0000b": 1}',
        b'{"text": "\\ud800"}',
        b'{"list": ["\\ud800"]}',
        b'{"source": "a\x00b"}',
        b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"x": ' * 50 + b"1" + b"}" * 50,
        b'{"x": "' + b"y" * 70_000 + b'"}',
        b'{"x": "' + b"y" * 3_000_000 + b'"}',
        b"{" + b",".join(b'"%d": "%s"' % (i, b"y" * 60_000) for i in range(6)) + b"}",
        b'{"cas": 1}',
        b'{"cas": {"parents": "v1"}}',
        b'{"cas": {"moved": {"meta.json": "../../a.md"}}}',
        b'{"cas": {"moved": {"meta.json": "meta.json"}}}',
        b'{"cas": {"moved": {"meta.json": "gone"}}}',
        b'{"cas": {"moved": {"a.md": "a.md"}}}',
        b'{"cas": {"meta": {"not_taken": "x"}}}',
        b'{"cas": {"newer": 1}}',
    ],
    ids=lambda content: ascii(content[:40]),
)
def test_a_hostile_meta_json_is_reported_and_skipped(store, old, content):
    version(old / "skills/v1").joinpath("meta.json").write_bytes(content)
    version(old / "skills/v2")
    done = store.import_layout(old)
    assert specs(store) == ["skills@v2"]
    assert reasons(done).keys() == {"skills/v1"}
    assert len(reasons(done)["skills/v1"]) < 300


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("2026-01-01T12:00:00", "2026-01-01T12:00:00"),
        ("2026-01-01T12:00:00.5Z", "2026-01-01T12:00:00.5Z"),
        ("2026-01-01T12:00:00+02:00", "2026-01-01T10:00:00+00:00"),
        ("2026-01-01", "2026-01-01T00:00:00"),
    ],
)
def test_times_are_kept_in_utc_and_come_back_as_they_were(store, old, tmp_path, said, kept):
    version(old / "skills/v1", created_at=said)
    done = store.import_layout(old)
    assert store.versions.get("skills").created_at == kept
    assert done.notices == ()
    store.export_layout(tmp_path / "out")
    assert meta_of(tmp_path / "out/skills/v1") == meta_of(old / "skills/v1")


@pytest.mark.parametrize("said", ["yesterday", "", 17, ["x"], "0001-01-01T00:00:00+14:00"])
def test_a_time_that_is_none_gives_way_to_the_folders_and_is_said(
    store, other, old, tmp_path, said
):
    os.utime(version(old / "skills/v1", created_at=said, score=1), (1e9, 1e9))
    done = store.import_layout(old)
    made = store.versions.get("skills")
    assert made.created_at == "2001-09-09T01:46:40.000000+00:00"
    assert made.meta["created_at"] == (said if isinstance(said, str) else json.dumps(said))
    assert done.notices == (
        "skills/v1: its meta.json has a created_at that is no time: that of the folder was taken",
    )
    store.export_layout(tmp_path / "out")
    other.import_layout(tmp_path / "out")
    assert other.versions.get("skills") == made


def test_a_meta_json_that_names_another_version_gives_way_to_the_folder(store, old):
    version(old / "skills/v2", version="v7")
    done = store.import_layout(old)
    assert specs(store) == ["skills@v2"]
    assert done.notices == ("skills/v2: its meta.json says 'v7': the folder's name counts",)


@pytest.mark.parametrize("said", ["v2", "2", 2, None])
def test_a_meta_json_may_say_its_number_in_many_ways(store, old, tmp_path, said):
    version(old / "skills/v2", version=said)
    assert store.import_layout(old).notices == ()
    store.export_layout(tmp_path / "out")
    assert meta_of(tmp_path / "out/skills/v2") == meta_of(old / "skills/v2")


@pytest.mark.parametrize("part", ["skills", "prompts", "baseline.db", "seed.json"])
def test_a_seed_that_lacks_a_part_is_skipped(store, old, part):
    seed(old / "seeds/whole")
    path = seed(old / "seeds/broken") / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = store.import_layout(old)
    assert specs(store) == ["seed:whole"]
    assert f"has no {part}" in reasons(done)["seeds/broken"]


def test_a_seed_whose_parts_are_no_such_thing_is_skipped(store, old, tmp_path):
    seed(old / "seeds/a", run="gone")
    seed(old / "seeds/b").joinpath("baseline.db").write_text("no database, but quite some text")
    path = seed(old / "seeds/c") / "baseline.db"
    path.rename(tmp_path / "elsewhere.db")
    path.symlink_to(tmp_path / "elsewhere.db")
    shutil.rmtree(seed(old / "seeds/d") / "skills")
    (old / "seeds/d/skills").symlink_to(old / "seeds/c/skills")
    seed(old / "seeds/e").joinpath("seed.json").write_text('{"parent": null}')
    seed(old / "seeds/f", run="")
    seed(old / "seeds/g", run=7)
    seed(old / "seeds/bad name")
    (old / "seeds/file").write_text("")
    done = store.import_layout(old)
    assert specs(store) == []
    found = reasons(done)
    assert found.keys() == {f"seeds/{name}" for name in [*"abcdefg", "bad name", "file"]}
    assert "run gone not found in it" in found["seeds/a"]
    assert "not a SQLite database" in found["seeds/b"]
    assert "has a baseline.db that is a symlink" in found["seeds/c"]
    assert "has a skills that is a symlink" in found["seeds/d"]
    assert "says no baseline_run_id" in found["seeds/e"]


def test_a_store_of_which_everything_is_damaged_is_still_an_old_store(store, old):
    version(old / "skills/v1").joinpath("meta.json").unlink()
    done = store.import_layout(old)
    assert (done.versions, done.seeds) == ((), ())
    assert reasons(done).keys() == {"skills/v1"}


def test_what_is_no_old_store_is_refused(store, old, tmp_path):
    with pytest.raises(cas.RefusedError, match="no old version store"):
        store.import_layout(old)
    (old / "notes").mkdir()
    with pytest.raises(cas.RefusedError, match="no old version store"):
        store.import_layout(old)
    with pytest.raises(cas.NotFoundError, match="gone not found"):
        store.import_layout(tmp_path / "gone")
    (tmp_path / "file").write_text("")
    with pytest.raises(cas.RefusedError, match="no directory"):
        store.import_layout(tmp_path / "file")


# --- again, and into a store that is in use ------------------------------------------------------


def test_an_import_may_be_repeated(store, old):
    version(old / "skills/v2")
    materialise({b"bird": {}}, old / "videos")
    seed(old / "seeds/initial")
    first = store.import_layout(old)
    position, before = store._context.refs.refresh(), store.stats()
    again = store.import_layout(old)
    assert (again.versions, again.seeds, again.notices) == ((), (), ())
    assert again.present == ("seed:initial", "skills@v2", "videos@v1")
    assert len(first.versions) + len(first.seeds) == len(again.present)
    assert store._context.refs.refresh() == position
    assert store.stats().objects == before.objects


def test_what_was_damaged_can_be_put_right_and_imported_later(store, old):
    version(old / "skills/v1")
    path = version(old / "skills/v2", parent="v1")
    meta = (path / "meta.json").read_text()
    (path / "meta.json").unlink()
    version(old / "skills/v3", content="3")
    store.import_layout(old)
    assert specs(store) == ["skills@v1", "skills@v3"]
    (path / "meta.json").write_text(meta)
    store.import_layout(old)
    assert specs(store) == ["skills@v1", "skills@v2", "skills@v3"]
    assert store.versions.get("skills").number == 3
    parents = store.versions.get("skills", 2).parents
    assert parents == (store.versions.get("skills", 1).digest,)
    assert store.versions.add("skills", path).number == 4


def test_a_number_that_was_removed_is_not_given_again(store, old):
    version(old / "skills/v1")
    version(old / "skills/v2", content="2")
    store.import_layout(old)
    store.versions.remove("skills@v1")
    done = store.import_layout(old)
    assert specs(store) == ["skills@v2"]
    assert done.notices == ("skills@v1 was removed here; undelete it to bring it back",)
    (old / "skills/v1/a.md").write_text("other")
    with pytest.raises(cas.ConflictError, match="skills@v1"):
        store.import_layout(old)


def test_a_name_that_means_something_else_is_a_conflict_and_nothing_changes(store, old, tmp_path):
    version(old / "skills/v1")
    version(old / "skills/v2", content="2")
    version(old / "prompts/v1")
    seed(old / "seeds/initial")
    materialise({b"mine": ("file", b"mine")}, tmp_path / "mine")
    store.versions.add("skills", tmp_path / "mine")
    position = store._context.refs.refresh()
    with pytest.raises(cas.ConflictError, match=r"^skills@v1: the store has something else"):
        store.import_layout(old)
    assert store._context.refs.refresh() == position
    assert specs(store) == ["skills@v1"]


def test_a_seed_that_means_something_else_is_a_conflict(store, old):
    seed(old / "seeds/initial")
    store.import_layout(old)
    (old / "seeds/initial/skills/new.md").write_text("")
    with pytest.raises(cas.ConflictError, match="seed:initial"):
        store.import_layout(old)


def test_equal_content_with_other_metadata_stays_as_it_is_and_is_said(store, old):
    path = version(old / "skills/v1")
    store.import_layout(old)
    (path / "meta.json").write_text(json.dumps(WHOLE | {"description": "now", "more": "x"}))
    done = store.import_layout(old)
    assert done.notices == (
        "skills@v1 is here already, with another description, meta: it stays as it is",
    )
    assert store.versions.get("skills").description == "why"


def test_an_import_goes_on_where_the_store_has_equal_versions(store, old, tmp_path):
    materialise({b"a.md": ("file", b"1")}, tmp_path / "one")
    store.versions.add("skills", tmp_path / "one")
    version(old / "skills/v1", content="1")
    version(old / "skills/v2", content="2", parent="v1")
    done = store.import_layout(old)
    assert [v.spec for v in done.versions] == ["skills@v2"]
    assert done.versions[0].parents == (store.versions.get("skills", 1).digest,)


def test_a_version_that_came_in_meanwhile_is_seen_before_the_record(store, old, tmp_path):
    version(old / "skills/v1")
    version(old / "prompts/v1")
    materialise({b"mine": ("file", b"mine")}, tmp_path / "mine")

    def meanwhile(*_):
        with cas.Store.open(store.root) as second:
            if not second.versions.resources():
                second.versions.add("skills", tmp_path / "mine")

    with pytest.raises(cas.ConflictError, match="skills@v1"):
        store.import_layout(old, progress=meanwhile)
    assert specs(store) == ["skills@v1"]


def test_two_imports_at_once_end_as_one(store, old):
    version(old / "skills/v1")
    version(old / "prompts/v1")

    def meanwhile(*_):
        with cas.Store.open(store.root) as second:
            second.import_layout(old)

    done = store.import_layout(old, progress=meanwhile)
    assert done.present == ("prompts@v1", "skills@v1")
    assert specs(store) == ["prompts@v1", "skills@v1"]


def test_more_names_than_a_record_holds_are_refused_before_anything_is_named(
    store, old, monkeypatch
):
    monkeypatch.setattr("cas.layouts.importing._ROOM", 2000)
    for number in range(1, 9):
        version(old / f"skills/v{number}")
    with pytest.raises(cas.RefusedError, match="do not fit into one record"):
        store.import_layout(old)
    assert specs(store) == []


# --- metadata, and the way back ------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        WHOLE,
        WHOLE | {"author": "ann", "tags": ["a", 1, None, {"b": 2.5}], "score": 0.81, "n": 10**30},
        {"created_at": "2026-01-01T00:00:00"},
        WHOLE | {"description": None, "source": None},
        WHOLE | {"meta.json": "a member of that name", "score": 1},
        WHOLE | {"number": "1", "meta": {"x": "y"}, "": "empty", "é": "ü\n\u2028"},
        dict(reversed(WHOLE.items())),
    ],
)
def test_an_export_writes_back_an_equal_meta_json(store, other, old, tmp_path, said):
    version(old / "skills/v1").joinpath("meta.json").write_text(json.dumps(said))
    store.import_layout(old)
    store.export_layout(tmp_path / "out")
    assert meta_of(tmp_path / "out/skills/v1") == said
    other.import_layout(tmp_path / "out")
    assert other.versions.get("skills") == store.versions.get("skills")


def test_members_that_are_unknown_become_meta(store, old):
    version(old / "skills/v1", author="ann", score=0.5, tags=["a"], nothing=None)
    store.import_layout(old)
    meta = store.versions.get("skills").meta
    assert meta["author"] == "ann"
    assert (meta["score"], meta["tags"], meta["nothing"]) == ("0.5", '["a"]', "null")


def test_an_old_store_comes_back_folder_by_folder(store, old, tmp_path):
    for number in (1, 3):
        version(old / f"skills/v{number}", content=str(number), score=number)
    materialise({b"bird": {b"tree.json": ("file", b"{}"), b"empty": {}}}, old / "videos")
    materialise({b"q.json": ("exec", b"[]")}, old / "questions/benchmarks")
    seed(old / "seeds/initial", name="initial", parent=None, description="", owner="ann")
    store.import_layout(old)
    done = store.export_layout(tmp_path / "out")
    assert (len(done.versions), done.seeds, done.notices) == (4, ("seed:initial",), ())
    before, after = read_back(old), read_back(tmp_path / "out")
    for model in (before, after):
        for folder, name in [("v1", "meta.json"), ("v3", "meta.json")]:
            kind, content = model[b"skills"][folder.encode()][name.encode()]
            model[b"skills"][folder.encode()][name.encode()] = (kind, json.loads(content))
        kind, content = model[b"seeds"][b"initial"][b"seed.json"]
        model[b"seeds"][b"initial"][b"seed.json"] = (kind, json.loads(content))
    assert after == before
    assert (tmp_path / "out/videos").stat().st_mtime_ns // 1000 == (
        (old / "videos").stat().st_mtime_ns // 1000
    )


@pytest.mark.parametrize(
    "own",
    [("file", b'{"mine": 1}'), ("exec", b""), ("symlink", b"a.md"), {b"x": ("file", b"x")}, {}],
)
def test_a_sets_own_meta_json_survives_the_way_out_and_in(store, other, tmp_path, own):
    model = {b"meta.json": own, b"own-meta.json": ("file", b"also mine"), b"a.md": ("file", b"")}
    materialise(model, tmp_path / "set")
    store.versions.add("skills", tmp_path / "set")
    store.export_layout(tmp_path / "out")
    assert meta_of(tmp_path / "out/skills/v1")["source"] == "manual"
    other.import_layout(tmp_path / "out")
    assert read_state(other, "skills@v1") == model
    assert other.versions.get("skills") == store.versions.get("skills")


def test_a_plain_folder_with_more_to_tell_has_it_told_beside(store, other, tmp_path):
    materialise({b"bird": {b"tree.json": ("file", b"{}")}}, tmp_path / "videos")
    store.versions.add("videos", tmp_path / "videos")
    store.versions.add("videos", tmp_path / "videos", description="why", meta={"k": "v"})
    store.versions.remove("videos@v1")
    store.export_layout(tmp_path / "out")
    assert read_back(tmp_path / "out/videos") == read_back(tmp_path / "videos")
    told = json.loads((tmp_path / "out/videos.meta.json").read_text())
    assert (told["version"], told["description"], told["k"]) == ("v2", "why", "v")
    other.import_layout(tmp_path / "out")
    assert specs(other) == ["videos@v2"]
    found, wanted = other.versions.get("videos"), store.versions.get("videos")
    assert (found.tree, found.meta, found.created_at) == (
        wanted.tree,
        wanted.meta,
        wanted.created_at,
    )


@pytest.mark.parametrize(
    "model",
    [
        {},
        {b"v1": {b"meta.json": ("file", b"{}")}},
        {b"x": {b"v1": {b"meta.json": ("file", b"{}")}}},
        {b"v1": {}, b"v2": {b"meta.json": ("exec", b"{}")}},
    ],
)
def test_plain_content_that_looks_otherwise_is_told_beside(store, other, old, tmp_path, model):
    materialise(model, old / "videos")
    (old / "videos.meta.json").write_text(
        '{"version": "v1", "created_at": "2026-01-01T00:00:00.000000+00:00", "source": "import"}'
    )
    store.import_layout(old)
    assert read_state(store, "videos@v1") == model
    store.export_layout(tmp_path / "out")
    assert (tmp_path / "out/videos.meta.json").exists()
    other.import_layout(tmp_path / "out")
    assert other.versions.get("videos") == store.versions.get("videos")


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"version": 1}', b'{"version": "v0"}'])
def test_a_damaged_file_beside_a_plain_folder_is_reported(store, old, content):
    materialise({b"bird": {}}, old / "videos")
    (old / "videos.meta.json").write_bytes(content)
    version(old / "skills/v1")
    done = store.import_layout(old)
    assert specs(store) == ["skills@v1"]
    assert reasons(done).keys() == {"videos"}


def test_seeds_come_back_with_all_their_parts(store, other, tmp_path):
    materialise({b"a": ("file", b"a"), b"b": ("exec", b"b")}, tmp_path / "set")
    (tmp_path / "tool").write_text("#!")
    (tmp_path / "tool").chmod(0o755)
    store.versions.add("skills", tmp_path / "set")
    record_run(tmp_path / "run.db", "r1", skills="v7")
    store.seeds.create(
        "first",
        skills="skills@v1",
        prompts=tmp_path / "set",
        baseline=tmp_path / "run.db",
        baseline_run_id="r1",
        parts={
            "baseline.db": tmp_path / "tool",
            "own-baseline.db": tmp_path / "tool",
            "baseline.db-wal": tmp_path / "tool",
            "tool": tmp_path / "tool",
            "more": tmp_path / "set",
        },
        parent="seed text",
        description="why",
        meta={"name": "other", "k": "v"},
    )
    store.seeds.create(
        "second",
        skills="seed:first:skills/v7",
        prompts=tmp_path / "set",
        baseline=tmp_path / "run.db",
        baseline_run_id="r1",
        parent="first",
    )
    store.checkout("seed:first", tmp_path / "ws")
    store.seeds.promote(tmp_path / "ws", version="v7", eval_run_id="r1", name="third", force=True)
    store.export_layout(tmp_path / "out")
    done = other.import_layout(tmp_path / "out")
    assert done.skipped == ()
    assert other.seeds.list() == store.seeds.list()
    assert other.versions.list() == store.versions.list()
    exported = tmp_path / "out/seeds/first"
    with store.open("seed:first:harness.db") as stored:
        assert (exported / "baseline.db").read_bytes() == stored.read()
    assert runs_in(exported / "baseline.db") == {"r1": 3}
    assert store.verify().ok
    assert other.verify().ok


def test_a_baseline_that_somebody_has_open_comes_in_with_all_that_was_committed(store, old):
    path = seed(old / "seeds/initial") / "baseline.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("INSERT INTO predictions VALUES ('r1', 'q', 'late')")
        writer.commit()
        done = store.import_layout(old)
    assert done.skipped == ()
    store.checkout("seed:initial", old.parent / "work")
    assert runs_in(old.parent / "work/harness.db") == {"r1": 4}


def test_a_quiet_baseline_is_taken_byte_for_byte(store, old):
    path = seed(old / "seeds/initial") / "baseline.db"
    store.import_layout(old)
    with store.open("seed:initial:harness.db") as stored:
        assert stored.read() == path.read_bytes()


def test_an_imported_seed_is_a_workspace_that_promote_accepts(store, old, tmp_path):
    seed(old / "seeds/initial")
    store.import_layout(old)
    assert store.seeds.get("initial").parts["skills"].label == "v3"
    store.checkout("seed:initial", tmp_path / "work")
    record_run(tmp_path / "work/harness.db", "r2", skills="v3", prompts="v2")
    made = store.seeds.promote(tmp_path / "work", version="v3", eval_run_id="r2", name="next")
    assert made.parents == (store.seeds.get("initial").digest,)


def test_parts_of_a_seed_that_cannot_be_parts_are_skipped_by_name(store, old):
    path = seed(old / "seeds/initial")
    (path / ".DS_Store").write_text("")
    (path / "harness.db").write_text("")
    (path / "eval").mkdir()
    done = store.import_layout(old)
    assert reasons(done).keys() == {"seeds/initial/.DS_Store", "seeds/initial/harness.db"}
    assert store.seeds.get("initial").parts.keys() == {"skills", "prompts", "baseline", "eval"}


# --- what an export does and does not ------------------------------------------------------------


def test_what_has_no_place_in_an_old_store_is_left_out_and_said(store, other, tmp_path):
    materialise({b"a": ("file", b"a")}, tmp_path / "set")
    for resource in ("skills", "skills/v1", "seeds", "seeds/x", "v1", "videos/raw", "videos"):
        store.versions.add(resource, tmp_path / "set")
    store.tags.set("live", "skills@v1")
    done = store.export_layout(tmp_path / "out")
    assert done.left_out == ("seeds@v1", "seeds/x@v1", "skills/v1@v1")
    assert any("tags" in notice for notice in done.notices)
    assert any("seeds@v1" in notice for notice in done.notices)
    other.import_layout(tmp_path / "out")
    assert (
        tuple(specs(other)) == done.versions == ("skills@v1", "v1@v1", "videos@v1", "videos/raw@v1")
    )


def test_a_link_to_what_was_removed_is_not_exported_and_said(store, other, tmp_path):
    materialise({b"a": ("file", b"a")}, tmp_path / "set")
    store.versions.add("skills", tmp_path / "set")
    store.versions.add("skills", tmp_path / "set")
    store.versions.remove("skills@v1")
    done = store.export_layout(tmp_path / "out")
    assert done.notices[0].startswith("skills@v2 came from skills@v1, which is not exported")
    other.import_layout(tmp_path / "out")
    found = other.versions.get("skills")
    assert (found.spec, found.parent, found.parents) == ("skills@v2", "skills@v1", ())


def test_meta_that_only_looks_like_a_kept_object_is_a_text_like_any_other(store, other, tmp_path):
    materialise({b"a": ("file", b"a")}, tmp_path / "set")
    texts = {"meta.json": '{"created_at": "2026-01-01T00:00:00"}', "version": "x", "cas": "y"}
    store.versions.add("skills", tmp_path / "set", meta=texts, source="", description="d")
    store.export_layout(tmp_path / "out")
    other.import_layout(tmp_path / "out")
    assert other.versions.get("skills") == store.versions.get("skills")
    assert other.versions.get("skills").meta == texts


def test_a_destination_in_use_is_not_touched(store, old, tmp_path):
    version(old / "skills/v1")
    store.import_layout(old)
    before = read_back(old)
    with pytest.raises(cas.ConflictError, match="is there already"):
        store.export_layout(old)
    assert read_back(old) == before
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for taken in ("file", "link"):
        with pytest.raises(cas.ConflictError, match="is there already"):
            store.export_layout(tmp_path / taken)
    (tmp_path / "empty").mkdir()
    assert store.export_layout(tmp_path / "empty").files == 1


def test_an_empty_store_has_nothing_to_export(store, tmp_path):
    with pytest.raises(cas.RefusedError, match="no versions, seeds or candidates"):
        store.export_layout(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_stores_nothing(store, old, tmp_path):
    version(old / "skills/v1")
    seed(old / "seeds/initial")
    store.import_layout(old)
    before = read_back(store.root)
    store.export_layout(tmp_path / "out")
    assert read_back(store.root) == before


def test_exported_files_are_ones_own_to_change(store, old, tmp_path):
    version(old / "skills/v1")
    store.import_layout(old)
    store.export_layout(tmp_path / "out")
    (tmp_path / "out/skills/v1/a.md").write_text("changed")
    (tmp_path / "out/skills/v1/meta.json").write_text("{}")
    assert store.verify().ok


def test_results_say_in_json_what_happened(store, old, tmp_path):
    version(old / "skills/v1")
    (old / os.fsdecode(b"odd\xff")).write_text("")
    done = store.import_layout(old).to_json()
    assert json.loads(json.dumps(done)) == done
    assert [one["spec"] for one in done["versions"]] == ["skills@v1"]
    assert done["skipped"][0]["path_bytes"] == "b2Rk/w=="
    assert (done["files"], done["bytes"]) == (1, 1)
    exported = store.export_layout(tmp_path / "out").to_json()
    assert exported["versions"] == ["skills@v1"]
    assert exported["directory"] == str(tmp_path / "out")


def test_times_of_the_filesystem_and_their_texts_are_one():
    for ns in (0, 1_700_000_000_123_456_000, -5_000_000_000):
        assert told.time_ns(told.time_text(ns)) == ns
    assert told.time_ns("2026-01-01T00:00:00") is None
    assert told.time_ns("2026-01-01T00:00:00Z") is None
    assert told.time_text(1 << 80).startswith("1970-01-01T00:00:00")
