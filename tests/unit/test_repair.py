"""What a repair can do with less than a whole copy, and what it says of what it cannot do."""

from __future__ import annotations

import os
import random
import shutil

import pytest

import cas
from cas.testing.damage import flip
from cas.testing.runs import record_run
from cas.testing.stores import check_names_are_whole, read_state
from cas.testing.strategies import materialise

BIG = random.Random(5).randbytes(1 << 20)
SKILLS = {b"s%d" % n: {b"S.md": ("file", b"skill %d\n" % n * 40)} for n in range(5)}


@pytest.fixture
def home(tmp_path):
    """A store of one version of skills, with a large file, and the directory it came from."""
    materialise(SKILLS | {b"big": ("file", BIG), b"link": ("symlink", b"s1")}, tmp_path / "skills")
    with cas.Store.init(tmp_path / "store") as store:
        store.versions.add("skills", tmp_path / "skills")
    return tmp_path


def packs(root):
    return sorted((root / "packs").iterdir())


def loose(root):
    return next((root / "loose").rglob("*/*"))


def lose_log(root):
    shutil.rmtree(root / "log/catalogue")


@pytest.mark.parametrize("source", ["skills", "work"])
def test_a_directory_or_workspace_gives_files_and_trees(home, source):
    with cas.Store.open(home / "store") as store:
        wanted = read_state(store, "skills@v1")
        store.checkout("skills@v1", home / "work")
    (home / source / "s1/own").write_text("something else")
    flip(loose(home / "store"), 100)
    for pack in packs(home / "store"):
        pack.unlink()
    with cas.Store.open(home / "store") as store:
        done = store.repair(home / source, workers=1)
    # The root and the folder of s1 are other trees in the directory now.
    assert not done.report.ok
    os.unlink(home / source / "s1/own")
    with cas.Store.open(home / "store") as store:
        done = store.repair(home / source, workers=1)
        assert done.report.ok, done
        assert done.quarantined == ()
        assert read_state(store, "skills@v1") == wanted


def test_what_nobody_has_is_put_aside_and_named_until_someone_has_it(home):
    (home / "nothing").mkdir()
    path = loose(home / "store")
    good = path.read_bytes()
    flip(path, 100)
    with cas.Store.open(home / "store") as store:
        done = store.repair(home / "nothing", workers=1)
        key = f"quarantine/loose/{path.parent.name}/{path.name}-1"
        assert done.quarantined == (key,)
        assert [p.kind for p in done.report.problems] == ["missing"]
        assert done.report.problems[0].affects == ("skills@v1:big",)
        assert (home / "store" / key).stat().st_size == len(BIG)
        with pytest.raises(cas.MissingObjectError):
            store.open("skills@v1:big")
        (home / "nothing/found").write_bytes(good)
        done = store.repair(home / "nothing", workers=1)
        assert done.report.ok
        assert not (home / "store" / key).exists()


def test_a_pack_that_cannot_be_healed_keeps_its_good_objects(home):
    (home / "nothing").mkdir()
    with cas.Store.open(home / "store") as store:
        digest = store.resolve("skills@v1:s3/S.md").digest
        pack, _, offset = store._context.objects.info(digest).location.rpartition(":")
    flip(home / "store" / pack, int(offset) + 5)
    with cas.Store.open(home / "store") as store:
        done = store.repair(home / "nothing", workers=1)
        assert done.quarantined == (f"quarantine/{pack}-1",)
        (problem,) = done.report.problems
        assert (problem.kind, problem.digest) == ("missing", digest)
        assert problem.affects == ("skills@v1:s3/S.md",)
        assert len(read_state(store, "skills@v1:s2")) == 1


def test_a_bad_object_is_replaced_although_it_exists(home):
    shutil.copytree(home / "store", home / "copy")
    with cas.Store.open(home / "copy") as store:
        digest = store.resolve("skills@v1:s3/S.md").digest
        pack, _, offset = store._context.objects.info(digest).location.rpartition(":")
    flip(home / "copy" / pack, int(offset) + 5)
    with cas.Store.open(home / "copy") as store:
        done = store.repair(home / "store", workers=1)
        assert digest in {one.digest for one in done.healed}
        assert done.report.ok
        assert not (home / "copy" / pack).exists()


def test_a_store_that_was_filled_by_push_heals_the_one_it_came_from(home):
    with cas.Store.open(home / "store") as store, cas.Store.init(home / "other") as other:
        store.push(other)
        for pack in packs(home / "store"):
            pack.unlink()
        done = store.repair(other, workers=1)
        assert done.report.ok
        check_names_are_whole(store)


def test_without_a_copy_the_names_come_back_from_the_manifests(home):
    (home / "prompts").mkdir()
    record_run(home / "runs.db", "r1")
    with cas.Store.open(home / "store") as store:
        store.seeds.create(
            "first",
            skills="skills@v1",
            prompts=home / "prompts",
            baseline=home / "runs.db",
            baseline_run_id="r1",
        )
        (home / "skills/s1/S.md").write_text("new")
        store.versions.add("skills", home / "skills")
        wanted = store.versions.list(), store.seeds.list()
        identity = store.id
    lose_log(home / "store")
    (home / "nothing").mkdir()
    with cas.Store.open(home / "store") as store:
        done = store.repair(home / "nothing", workers=1)
        assert done.report.ok, done
        assert (store.versions.list(), store.seeds.list()) == wanted
        assert any("not all of the catalogue" in notice for notice in done.notices)
        assert store.versions.add("skills", home / "prompts").number == 3
        assert store._context.refs.origin()["store_id"] == identity == store.id


def test_two_states_that_claim_one_name_come_back_under_other_names(home):
    (home / "nothing").mkdir()
    with cas.Store.init(home / "other") as other, cas.Store.open(home / "store") as store:
        other.versions.add("skills", home / "nothing")
        ours = store.versions.get("skills").digest
        theirs = other.versions.get("skills").digest
        store.pull(other, renumber=True)
        (home / "skills/s1/S.md").write_text("new")
        store.versions.add("skills", home / "skills")
    lose_log(home / "store")
    with cas.Store.open(home / "store") as store:
        done = store.repair(home / "nothing", workers=1)
        assert done.report.ok, done
        assert [v.spec for v in store.versions.list()] == ["skills@v2", "skills@v3"]
        assert {tag.digest for tag in store.tags.list()} == {ours, theirs}
        assert all(tag.name.startswith("recovered-skills-v1-") for tag in store.tags.list())
        assert len(read_state(store, f"tag:recovered-skills-v1-{ours.hex()[:12]}")) == 7
        with pytest.raises(cas.NotFoundError, match="removed"):
            store.versions.get("skills", 1)
        check_names_are_whole(store)


def test_another_store_decides_which_of_two_states_had_a_name(home):
    (home / "nothing").mkdir()
    with cas.Store.init(home / "other") as other, cas.Store.open(home / "store") as store:
        store.versions.add("prompts", home / "nothing")
        other.versions.add("prompts", home / "skills")
        store.pull(other, renumber=True)
        with cas.Store.init(home / "backup") as backup:
            store.push(backup)
        wanted = store.versions.list()
    lose_log(home / "store")
    with cas.Store.open(home / "store") as store:
        assert store.repair(home / "backup", workers=1).report.ok
        assert store.versions.list() == wanted
        assert store.tags.list() == []


def test_the_log_of_a_copy_that_went_another_way_is_not_taken(home):
    (home / "nothing").mkdir()
    shutil.copytree(home / "store", home / "copy")
    with cas.Store.open(home / "copy") as copy:
        for _ in range(3):
            copy.versions.add("skills", home / "nothing")
    with cas.Store.open(home / "store") as store:
        store.versions.add("prompts", home / "skills")
        store.tags.set("live", "prompts@v1")
        wanted = store.versions.list()
    flip(home / "store/log/catalogue/records/00000000000000000003", 20)
    with cas.Store.open(home / "store") as store:
        done = store.repair(home / "copy", workers=1)
        assert done.report.ok, done
        assert store.versions.list("prompts") == [v for v in wanted if v.resource == "prompts"]
        assert store.versions.get("skills", "v1") in wanted


def test_records_behind_a_gap_are_kept_as_far_as_they_hold(home):
    (home / "nothing").mkdir()
    with cas.Store.open(home / "store") as store:
        store.tags.set("live", "skills@v1", reason="lost")
        store.versions.add("skills", home / "nothing")
        store.tags.set("live", "skills@v2", reason="kept")
        wanted = store.versions.list()
    (home / "store/log/catalogue/records/00000000000000000003").unlink()
    with cas.Store.open(home / "store") as store:
        with pytest.raises(cas.DamagedLogError):
            store.versions.list()
        done = store.repair(home / "nothing", workers=1)
        assert done.report.ok
        assert store.versions.list() == wanted
        assert [move.reason for move in store.tags.history("live")] == ["kept"]
        assert done.quarantined == ("quarantine/log/catalogue-1",)


def test_a_copy_that_is_behind_gives_what_it_has(home):
    shutil.copytree(home / "store", home / "copy")
    with cas.Store.open(home / "store") as store:
        store.tags.set("live", "skills@v1")
        wanted = store.tags.history("live")
    flip(home / "store/log/catalogue/records/00000000000000000002", 20)
    with cas.Store.open(home / "store") as store:
        assert store.repair(home / "copy", workers=1).report.ok
        assert store.tags.history("live") == wanted


@pytest.mark.parametrize("copied", [True, False])
def test_a_store_that_forgot_which_one_it_is_is_told(home, copied):
    with cas.Store.open(home / "store") as store:
        identity = store.id
    shutil.copytree(home / "store", home / "copy")
    (home / "store/store.json").write_text("{}")
    with pytest.raises(cas.FormatError):
        cas.Store.open(home / "store")
    with cas.Store.mend(home / "store", home / ("copy" if copied else "skills")) as store:
        assert store.id == identity
        assert store.verify().ok


def test_a_repair_of_a_whole_store_changes_nothing(home):
    shutil.copytree(home / "store", home / "copy")
    before = {path: path.read_bytes() for path in (home / "store").rglob("*") if path.is_file()}
    with cas.Store.open(home / "store") as store:
        done = store.repair(home / "copy", workers=1)
        assert (done.healed, done.quarantined, done.notices) == ((), (), ())
        assert done.report.ok
    after = {path: path.read_bytes() for path in (home / "store").rglob("*") if path.is_file()}
    assert {p: c for p, c in after.items() if "cache" not in p.parts} == {
        p: c for p, c in before.items() if "cache" not in p.parts
    }


def test_nothing_is_not_repaired_from(home):
    with cas.Store.open(home / "store") as store:
        with pytest.raises(cas.NotFoundError):
            store.repair(home / "nowhere")
        with pytest.raises(cas.RefusedError, match="itself"):
            store.repair(home / "store")
        with pytest.raises(cas.RefusedError, match="no directory"):
            store.repair(home / "skills/big")


def test_what_is_remembered_of_a_workspace_is_healed_or_put_aside(home):
    with cas.Store.open(home / "store") as store:
        store.checkout("skills@v1", home / "work")
        shutil.copytree(home / "store", home / "copy")
        memory = next((home / "store/workspaces").iterdir())
        good = memory.read_bytes()
        flip(memory, 9)
        assert store.repair(home / "copy", workers=1).report.ok
        assert memory.read_bytes() == good
        flip(memory, 9)
        done = store.repair(home / "skills", workers=1)
        assert done.report.ok
        assert done.quarantined == (f"quarantine/workspaces/{memory.name}-1",)
        assert "cas checkout --update" in done.notices[0]


def test_a_source_that_cannot_be_opened_still_has_files_that_fit(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/big").write_bytes(b"big" * 500_000)
    with cas.Store.init(tmp_path / "store") as store:
        store.versions.add("skills", tmp_path / "set")
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        (tmp_path / "copy/store.json").write_bytes(b"{")
        (loose,) = (tmp_path / "store/loose").glob("*/*")
        flip(loose, 9)
        assert store.repair(tmp_path / "copy").report.ok


def test_a_link_in_the_place_of_a_file_holds_nothing(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/big").write_bytes(b"big" * 500_000)
    with cas.Store.init(tmp_path / "store") as store:
        store.versions.add("skills", tmp_path / "set")
        (loose,) = (tmp_path / "store/loose").glob("*/*")
        (record,) = (tmp_path / "store/log/catalogue/records").glob("*2")
        for path, kind in ((loose, "missing"), (record, "bad_ref")):
            path.rename(tmp_path / path.name)
            path.symlink_to(tmp_path / path.name)
            assert [problem.kind for problem in store.verify().problems] == [kind]
            with cas.Store.init(tmp_path / f"to{kind}") as other:
                with pytest.raises(cas.DamagedError):
                    other.pull(store)
                assert other.versions.list() == []
            path.unlink()
            (tmp_path / path.name).rename(path)
        assert store.verify().ok


def test_repairs_with_a_budget_go_on_where_the_last_one_ended(home):
    with cas.Store.open(home / "store") as store:
        for number in range(6):
            (home / "skills/big").write_bytes(random.Random(number).randbytes(1 << 20))
            store.versions.add("skills", home / "skills")
    shutil.copytree(home / "store", home / "copy")
    damaged = sorted((home / "copy/loose").rglob("*/*"))
    for path in damaged:
        flip(path, 100)
    told = []
    with cas.Store.open(home / "copy") as store:
        shares = []
        for _ in range(3 * len(damaged)):
            # No time at all: every look reads one thing, and heals it if it is bad.
            done = store.repair(
                home / "store", budget=0.0, workers=1, progress=lambda phase, *_: told.append(phase)
            )
            assert done.report.ok
            shares.append(done.report.coverage)
            if store.verify(workers=1).ok:
                break
        assert store.verify(workers=1).ok
    assert 0 < shares[0] < 1
    assert {"verify", "repair"} <= set(told)


def test_a_source_that_is_not_there_is_said_before_anything_is_read(home, monkeypatch):
    monkeypatch.setattr("cas.repair.repairing.verify_store", None)
    with cas.Store.open(home / "store") as store, pytest.raises(cas.NotFoundError):
        store.repair(home / "nowhere")
