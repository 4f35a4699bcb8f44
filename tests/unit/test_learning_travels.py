"""What the learning log holds goes into a clone with the names, and can be repaired from one."""

from __future__ import annotations

import importlib
import json
import shutil

import pytest

import cas
from cas.testing.damage import flip


@pytest.fixture
def store(tmp_path):
    (tmp_path / "skills/look").mkdir(parents=True)
    (tmp_path / "skills/look/SKILL.md").write_text("look")
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft/SKILL.md").write_text("look twice")
    with cas.Store.init(tmp_path / "store") as store:
        store.versions.add("skills", tmp_path / "skills")
        store.learning.record(
            cas.Candidate.from_dict(
                {
                    "candidate_id": "c1",
                    "kind": "change",
                    "status": "open",
                    "base": "skills@v1:look",
                    "draft_skill_name": "look",
                    "draft_id": "d1",
                }
            )
        )
        store.learning.draft("c1", tmp_path / "draft")
        store.learning.add_safety_report(
            cas.SafetyReport.from_dict(
                {
                    "skill_name": "look",
                    "draft_id": "d1",
                    "report_id": "r1",
                    "content": {"found": "x" * 200_000},
                }
            )
        )
        yield store


def told(store):
    learning = store.learning
    return (
        [candidate.to_dict() for candidate in learning.list()],
        [event.to_dict() for event in learning.audit()],
        json.dumps(learning.safety_report("look", "d1").to_dict()),
        learning.diff("c1"),
    )


def test_a_clone_has_the_candidates_their_drafts_and_reports(store, tmp_path):
    with cas.Store.clone(store, tmp_path / "clone") as clone:
        assert told(clone) == told(store)
        assert clone.verify().ok
        assert clone.learning.publish("c1").version.spec == "skills@v2"


def test_fields_that_are_not_known_survive_everything_that_is_done(store, tmp_path):
    learning = store.learning
    own = {"Ünkn\ud800own": [1, {"a": None, "b": "\u2028"}], "owner": "me", "extra": {"token": 3}}
    fields = {"candidate_id": "c2", "kind": "change", "base": "skills@v1:look"} | own

    def kept(side):
        found = side.learning.get("c2").to_dict()
        return {name: found.get(name) for name in own} == own

    learning.record(cas.Candidate.from_dict(fields))
    token = learning.claim_next("w").token
    learning.renew("c2", token)
    learning.release("c2", token)
    token = learning.claim("c2", "w").token
    learning.draft("c2", tmp_path / "draft", token=token)
    learning.update("c2", reason="more")
    learning.transition("c2", "approved", draft_skill_name="look")
    learning.compact(full=True)
    assert learning.publish("c2").candidate.extra.items() >= own.items()
    learning.compact(full=True)
    assert kept(store)
    store.export_layout(tmp_path / "out")
    with cas.Store.init(tmp_path / "other") as other:
        other.import_layout(tmp_path / "out")
        assert kept(other)
        assert other.learning.get("c2") == learning.get("c2")
    with cas.Store.clone(store, tmp_path / "clone") as clone:
        assert kept(clone)


def published(store):
    """Publish the candidate with a report that speaks for it."""
    draft_id = store.learning.get("c1").draft_id
    store.learning.add_eval_report(cas.EvalReport("look", draft_id, "fine", {"score": 1}))
    return store.learning.publish("c1", "looks twice").version


def test_a_version_that_is_pulled_says_which_candidate_and_reports_approved_it(store, tmp_path):
    version = published(store)
    with cas.Store.init(tmp_path / "other") as other:
        other.pull(store, ["skills@v2"])
        first, _ = other.log("skills@v2")
        told = {"candidate": "c1", "draft": version.meta["draft"], "eval_report": "fine"}
        assert (first.meta, first.source) == (told, "learning")
        # The draft is in the version, under the digest that the version names.
        (file,) = other.walk(version.meta["draft"])
        assert other.open(str(file.digest)).read() == b"look twice"
        # Candidates, claims and reports are the other store's affair.
        assert other.learning.is_empty()
        assert list(other.learning.kept_digests()) == []


@pytest.mark.parametrize("renumber", [False, True])
def test_what_was_published_elsewhere_and_pulled_is_not_published_again(store, tmp_path, renumber):
    with cas.Store.clone(store, tmp_path / "clone") as clone:
        version = published(store)
        if renumber:
            clone.versions.add("skills", tmp_path / "draft")
        done = clone.pull(store, ["skills@v2"], renumber=renumber)
        (spec,) = done.new
        assert clone.learning.get("c1").status == "draft_ready"
        for _ in range(2):
            again = clone.learning.publish("c1", actor="maria")
            assert (again.version.spec, again.unchanged) == (spec, True)
        assert again.version.meta["draft"] == version.meta["draft"]
        found = clone.learning.get("c1")
        assert (found.status, found.extra["published_as"]) == ("published", spec)
        last = clone.learning.audit("c1")[-1]
        assert (last.event_type, last.actor) == ("candidate_published", "maria")
        assert [v.number for v in clone.versions.list("skills")] == [1, 2, 3][: 2 + renumber]
        assert clone.verify().ok


def test_numbers_that_were_left_out_cost_a_publication_nothing(store, tmp_path):
    far = tmp_path / "far/skills/v1000000000"
    far.mkdir(parents=True)
    (far / "meta.json").write_text('{"created_at": "2026-01-01T00:00:00+00:00"}')
    shutil.copytree(tmp_path / "skills/look", far / "look")
    store.import_layout(tmp_path / "far")
    assert published(store).number == 1_000_000_001
    assert store.learning.publish("c1").unchanged


def test_a_version_that_is_removed_meanwhile_is_still_what_was_published(store, tmp_path):
    with cas.Store.clone(store, tmp_path / "clone") as clone:
        published(store)
        clone.pull(store)
        clone.versions.remove("skills@v2")
        assert clone.learning.publish("c1").version.spec == "skills@v2"
        assert [v.number for v in clone.versions.list("skills")] == [1]


def test_a_clone_made_while_somebody_publishes_has_the_version_that_it_says(
    store, tmp_path, monkeypatch
):
    copied = []

    def copy_log(source, target, name):
        copy(source, target, name)
        copied.append(name)
        if len(copied) == 1:
            published(store)

    module = importlib.import_module("cas.sync.clone")
    copy = module.copy_log
    monkeypatch.setattr(module, "copy_log", copy_log)
    with cas.Store.clone(store, tmp_path / "clone") as clone:
        assert copied == ["learning", "catalogue"]
        assert clone.verify().ok
        assert [v.number for v in clone.versions.list("skills")] == [1, 2]
        assert clone.learning.publish("c1").version.spec == "skills@v2"


def test_drafts_stay_when_a_learning_folder_is_exported(store, tmp_path):
    store.export_layout(tmp_path / "out")
    with cas.Store.init(tmp_path / "other") as other:
        other.import_layout(tmp_path / "out")
        candidate = other.learning.get("c1")
        assert candidate == store.learning.get("c1")
        for look in (other.learning.diff, other.learning.publish):
            with pytest.raises(cas.NotFoundError, match="has no draft; give it one"):
                look("c1")
        # With the version that it is about it gets one there as anywhere.
        other.learning.draft("c1", tmp_path / "draft", status="in_review")
        assert other.learning.publish("c1").version.spec == "skills@v2"


@pytest.mark.parametrize("harm", ["a record flipped", "a record lost", "all of it lost"])
def test_a_damaged_learning_log_is_repaired_from_a_copy(store, tmp_path, harm):
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    log = tmp_path / "store/log/learning"
    records = sorted((log / "records").iterdir())
    if harm == "a record flipped":
        flip(records[1], 30)
    elif harm == "a record lost":
        records[1].unlink()
    else:
        shutil.rmtree(log)
    store.close()
    with cas.Store.open(tmp_path / "store") as damaged:
        assert any("learning" in p.location for p in damaged.verify().problems)
        done = damaged.repair(tmp_path / "copy")
        assert done.report.ok, done
        with cas.Store.open(tmp_path / "copy") as copy:
            assert told(damaged) == told(copy)


def test_without_a_copy_the_sound_beginning_of_a_learning_log_is_kept(store, tmp_path):
    records = sorted((tmp_path / "store/log/learning/records").iterdir())
    flip(records[-1], 30)
    store.close()
    (tmp_path / "elsewhere").mkdir()
    with cas.Store.open(tmp_path / "store") as damaged:
        done = damaged.repair(tmp_path / "elsewhere")
        assert done.report.ok, done
        assert any("learning log" in notice for notice in done.notices)
        assert [candidate.to_dict()["candidate_id"] for candidate in damaged.learning.list()] == [
            "c1"
        ]
        with pytest.raises(cas.NotFoundError):
            damaged.learning.safety_report("look", "d1")


def test_what_later_records_say_is_told_again_and_no_token_is_given_twice(store, tmp_path):
    learning = store.learning
    for name in ("a", "b", "c", "d"):
        learning.record(cas.Candidate(name, "k"))
    learning.claim("b", "first", 3600)
    stale = learning.claim("a", "second", 3600)
    learning.transition("d", "rejected", actor="maria")
    records = sorted((tmp_path / "store/log/learning/records").iterdir())
    flip(records[-3], 30)
    store.close()
    (tmp_path / "elsewhere").mkdir()
    with cas.Store.open(tmp_path / "store") as damaged:
        done = damaged.repair(tmp_path / "elsewhere")
        assert done.report.ok, done
        learning = damaged.learning
        assert any("2 events behind it 2 were told again" in notice for notice in done.notices)
        assert learning.get("b").status == "open"
        assert learning.get("d").status == "rejected"
        taken = learning.claim("a", "third", 3600, force=True)
        assert taken.token > stale.token
        with pytest.raises(cas.LeaseLostError):
            learning.transition("a", "published", token=stale.token)
        assert learning.claim("b", "third", 3600).token > taken.token
        assert learning.transition("a", "failed", token=taken.token).status == "failed"


@pytest.mark.parametrize("log", ["catalogue", "learning"])
@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "second", "last"])
def test_a_source_that_lacks_a_record_is_not_cloned(store, tmp_path, log, which):
    for number in range(3):
        store.tags.set("live", "skills@v1", reason=str(number))
    records = sorted((tmp_path / f"store/log/{log}/records").iterdir())
    records[which].unlink()
    with pytest.raises(cas.DamagedError, match="missing"):
        cas.Store.clone(store, tmp_path / "clone")
    assert not (tmp_path / "clone").exists() or not any((tmp_path / "clone").glob("store.json"))
