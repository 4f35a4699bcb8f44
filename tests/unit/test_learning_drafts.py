"""Drafts and publications, rule by rule; what happens between their steps is tested elsewhere."""

from __future__ import annotations

import os

import pytest

import cas
from cas.testing.strategies import materialise

SKILLS = {
    b"look": {b"SKILL.md": ("file", b"look well\n"), b"run.sh": ("file", b"#!/bin/sh\n")},
    b"group": {b"see": {b"SKILL.md": ("file", b"see\n")}},
    b"one.md": ("file", b"one file\n"),
    b"link": ("symlink", b"look"),
}


@pytest.fixture
def store(tmp_path):
    materialise(SKILLS, tmp_path / "skills")
    with cas.Store.init(tmp_path / "store", skills=tmp_path / "skills") as store:
        yield store


@pytest.fixture
def new(tmp_path):
    """Another state of the skill `look`."""
    materialise({b"SKILL.md": ("file", b"look better\n")}, tmp_path / "new")
    return tmp_path / "new"


def record(store, name="c", base="skills@v1:look"):
    return store.learning.record(cas.Candidate(name, "improve", extra={"base": base}))


@pytest.mark.parametrize(
    ("base", "error", "told"),
    [
        ("skills@v9:look", cas.NotFoundError, "the newest is skills@v1"),
        ("skills@v1:nothing", cas.NotFoundError, "nothing"),
        ("skills@latest:look", cas.RefusedError, "skills@v1:look"),
        ("skills@v1", cas.RefusedError, "RESOURCE@vN:PATH"),
        ("seed:x:skills", cas.RefusedError, "RESOURCE@vN:PATH"),
        ("skills@v1:link", cas.RefusedError, "symbolic link"),
        ("what", cas.RefusedError, "not a spec"),
        (7, cas.RefusedError, "give it a base"),
    ],
)
def test_a_base_that_is_not_there_is_refused_when_it_is_named(store, base, error, told):
    with pytest.raises(error, match=told):
        record(store, base=base)
    with pytest.raises(error, match=told):
        store.learning.record_if_absent(cas.Candidate("c", "improve", extra={"base": base}))
    assert store.learning.list() == []
    store.learning.record(cas.Candidate("c", "improve"))
    with pytest.raises(error, match=told):
        store.learning.update("c", base=base)
    assert store.learning.get("c").extra == {}


def test_a_draft_names_itself_for_reports_and_says_what_it_changes(store, new):
    record(store)
    candidate = store.learning.draft("c", new, actor="maria")
    digest = candidate.extra["draft_digest"]
    assert candidate.status == "draft_ready"
    assert (candidate.draft_skill_name, candidate.draft_id) == ("look", digest[:16])
    assert [entry.path for entry in store.walk(candidate.draft_id)] == [b"SKILL.md"]
    drafted = store.learning.drafted("c")
    assert (drafted.kind, str(drafted.digest), drafted.files) == ("tree", digest, 1)
    assert (drafted.base, drafted.published_as) == ("skills@v1:look", None)
    event = store.learning.audit("c")[-1]
    assert (event.event_type, event.actor) == ("candidate_draft_ready", "maria")
    assert event.payload["draft_digest"] == digest
    diff = store.learning.diff("c").to_json()
    assert (diff["changed"], diff["removed"]) == (["SKILL.md"], ["run.sh"])
    assert "+look better" in list(store.learning.diff_text("c", "SKILL.md"))
    with pytest.raises(cas.NotFoundError, match="neither"):
        list(store.learning.diff_text("c", "nothing"))
    with pytest.raises(cas.RefusedError, match="cannot be set"):
        store.learning.update("c", draft_digest="0" * 64)


def test_a_draft_equal_to_its_base_has_no_changes(store, tmp_path):
    record(store)
    with pytest.raises(cas.RefusedError, match="no changes"):
        store.learning.draft("c", tmp_path / "skills/look")
    assert store.learning.get("c").status == "open"
    with pytest.raises(cas.NotFoundError, match="no draft"):
        store.learning.diff("c")
    with pytest.raises(cas.NotFoundError, match="no draft"):
        store.learning.publish("c")


def test_a_skill_that_is_one_file_gets_a_file(store, tmp_path, new):
    record(store, base="skills@v1:one.md")
    with pytest.raises(cas.RefusedError, match="a file, and the draft of candidate c is a dir"):
        store.learning.draft("c", new)
    (tmp_path / "one").write_text("another\n")
    store.learning.draft("c", tmp_path / "one")
    [change] = store.learning.diff("c").changed
    assert change.path == b"one.md"
    assert list(store.learning.diff_text("c"))[:2] == ["--- a/one.md", "+++ b/one.md"]
    store.learning.publish("c")
    assert store.open("skills@v2:one.md").read() == b"another\n"
    record(store, "d", "skills@v2:one.md")
    with pytest.raises(cas.RefusedError, match="no changes"):
        store.learning.draft("d", tmp_path / "one")
    os.chmod(tmp_path / "one", 0o755)
    store.learning.draft("d", tmp_path / "one")
    store.learning.publish("d")
    assert [entry.type for entry in store.list_dir("skills@v3:one.md")] == ["exec"]
    record(store, "e")
    with pytest.raises(cas.RefusedError, match="a directory, and the draft of candidate e is a f"):
        store.learning.draft("e", tmp_path / "one")


def test_a_candidate_without_a_base_gets_no_draft(store, new):
    store.learning.record(cas.Candidate("c", "improve"))
    with pytest.raises(cas.RefusedError, match="give it a base"):
        store.learning.draft("c", new)
    store.learning.update("c", base="skills@v1:look")
    assert store.learning.draft("c", new).status == "draft_ready"


def test_the_draft_and_its_base_are_kept_until_another_takes_their_place(store, new):
    def kept():
        return {(str(digest), kind, who) for digest, kind, who in store.learning.kept_digests()}

    record(store)
    first = store.learning.draft("c", new).extra["draft_digest"]
    base = str(store.resolve("skills@v1:look").digest)
    assert kept() == {(first, "tree", "learn:c"), (base, "tree", "learn-base:c")}
    (new / "SKILL.md").write_text("again\n")
    second = store.learning.draft("c", new).extra["draft_digest"]
    assert kept() == {(second, "tree", "learn:c"), (base, "tree", "learn-base:c")}
    store.learning.publish("c")
    store.versions.remove("skills@v1")
    assert len(kept()) == 2
    assert store.learning.diff("c")
    assert store.verify().ok


def test_only_the_holder_of_a_claim_gives_a_draft_and_gives_the_claim_back_with_it(store, new):
    record(store)
    token = store.learning.claim("c", "worker").token
    with pytest.raises(cas.BeingSynthesizedError):
        store.learning.draft("c", new)
    with pytest.raises(cas.LeaseLostError):
        store.learning.draft("c", new, token=token - 1)
    assert store.learning.draft("c", new, token=token, status="synthesizing")
    assert store.learning.lease("c").owner == "worker"
    with pytest.raises(cas.BeingSynthesizedError):
        store.learning.publish("c")
    store.learning.draft("c", new, token=token)
    assert store.learning.lease("c") is None
    assert store.learning.audit("c")[-1].actor == "worker"
    with pytest.raises(cas.LeaseLostError):
        store.learning.publish("c", token=token)
    with pytest.raises(cas.AlreadyDraftedError):
        store.learning.claim("c", "other")


def test_the_holder_of_a_claim_may_publish(store, new):
    record(store)
    token = store.learning.claim("c", "worker").token
    store.learning.draft("c", new, token=token, status="synthesizing")
    assert store.learning.publish("c", token=token).candidate.status == "published"
    assert store.learning.audit("c")[-1].actor == "worker"
    assert store.learning.lease("c") is None


def test_a_publication_replaces_the_one_skill_in_the_newest_version(store, new, tmp_path):
    record(store)
    record(store, "d", "skills@v1:group/see")
    store.learning.draft("c", new)
    store.learning.draft("d", new)
    store.versions.edit("skills@v1", put={"more": tmp_path / "new/SKILL.md"})
    published = store.learning.publish("c", "look better", actor="maria")
    version = published.version
    assert (version.spec, version.parent) == ("skills@v3", "skills@v2")
    assert (version.source, version.description) == ("learning", "look better")
    assert not published.unchanged
    diff = store.diff("skills@v2", "skills@v3").to_json()
    assert (diff["changed"], diff["removed"]) == (["look/SKILL.md"], ["look/run.sh"])
    assert diff["added"] == diff["renamed"] == []
    assert store.learning.publish("d").version.spec == "skills@v4"
    assert store.diff("skills@v3", "skills@v4").to_json()["changed"] == ["group/see/SKILL.md"]
    events = store.learning.audit("c")
    assert [event.event_type for event in events[-2:]] == [
        "candidate_publishing",
        "candidate_published",
    ]
    assert (events[-1].from_status, events[-1].to_status) == ("draft_ready", "published")
    assert (events[-1].actor, events[-1].payload["version"]) == ("maria", "skills@v3")
    assert store.learning.drafted("c").published_as == "skills@v3"


def test_publishing_twice_makes_one_version_whatever_happened_to_it(store, new):
    record(store)
    store.learning.draft("c", new)
    first = store.learning.publish("c")
    again = store.learning.publish("c", "other words")
    assert (again.version, again.unchanged) == (first.version, True)
    store.learning.transition("c", "rejected")
    store.versions.remove("skills@v2")
    again = store.learning.publish("c")
    assert (again.version.spec, again.version.removed_at is None) == ("skills@v2", False)
    assert again.candidate.status == "rejected"
    with pytest.raises(cas.ConflictError, match="published as skills@v2"):
        store.learning.draft("c", new)


def test_a_version_names_the_candidate_and_the_last_reports_on_its_draft(store, new):
    record(store)
    draft = store.learning.draft("c", new).draft_id
    for report, draft_id in (("s1", draft), ("s2", draft), ("s9", "another")):
        store.learning.add_safety_report(cas.SafetyReport("look", draft_id, report, report))
    store.learning.add_eval_report(cas.EvalReport("look", draft, "e1", {"score": 1}))
    version = store.learning.publish("c").version
    told = {"candidate": "c", "safety_report": "s2", "eval_report": "e1"}
    assert told.items() <= version.meta.items()
    newest = store.log("skills@v2")[0]
    assert told.items() <= newest.meta.items()
    assert newest.to_json()["meta"] == dict(version.meta)
    assert store.learning.audit("c")[-1].payload["reports"] == ["safety/s2", "eval/e1"]
    [event] = store._context.refs.version_history("skills", 2)
    assert (event["candidate"], event["reports"]) == ("c", ["safety/s2", "eval/e1"])


def test_a_store_may_keep_all_but_approved_candidates_from_being_published(store, new):
    store.learning.set_transitions({"draft_ready": ["approved", "rejected"]})
    record(store)
    store.learning.draft("c", new)
    with pytest.raises(cas.TransitionRefusedError):
        store.learning.publish("c")
    assert len(store.versions.list("skills")) == 1
    store.learning.transition("c", "approved")
    assert store.learning.publish("c").candidate.status == "published"


def test_a_skill_that_went_or_came_the_same_way_is_a_conflict(store, new):
    for name in "cd":
        record(store, name)
        store.learning.draft(name, new)
    store.learning.publish("c")
    with pytest.raises(cas.ConflictError, match="skills@v2 has this very look already"):
        store.learning.publish("d")
    store.versions.edit("skills@v2", remove=["look"])
    with pytest.raises(cas.ConflictError, match="look is gone from skills@v3"):
        store.learning.publish("d")
    assert "look is gone" in store.learning.get("d").last_error
    for number in (1, 2, 3):
        store.versions.remove(f"skills@v{number}")
    with pytest.raises(cas.ConflictError, match="every version of skills was removed"):
        store.learning.publish("d")
    assert store.learning.get("d").status == "draft_ready"


def test_a_candidate_whose_document_is_full_is_published_all_the_same(store, new):
    record(store)
    store.learning.draft("c", new)
    size = len(store.learning._state().get(b"body\0" + store.learning._state().get(b"id\0c")))
    store.learning.update("c", filler="x" * ((1 << 20) - size - len('"filler":"",')))
    with pytest.raises(cas.RefusedError):
        store.learning.update("c", more="x")
    published = store.learning.publish("c")
    assert published.candidate.status == "published"
    assert "published_as" not in published.candidate.extra
    assert store.learning.drafted("c").published_as == "skills@v2"


def test_a_candidate_and_one_that_is_called_like_its_base_do_not_let_go_of_each_others(store, new):
    record(store, "c")
    record(store, "learn-base:c")
    store.learning.draft("c", new)
    store.learning.draft("learn-base:c", new)
    (new / "SKILL.md").write_text("again\n")
    store.learning.draft("learn-base:c", new)
    assert len(list(store.learning.kept_digests())) == 4


def test_names_that_are_no_text_are_told_as_well_as_can_be(store, new, tmp_path):
    source = os.fsencode(tmp_path / "odd")
    os.makedirs(source + b"/sk\xff/x")
    store.versions.add("odd", tmp_path / "odd")
    record(store, "c", "odd@v1:sk\udcff")
    candidate = store.learning.draft("c", new)
    assert candidate.draft_skill_name is None
    store.versions.edit("odd@v1", put={"sk\udcff/y": new / "SKILL.md"})
    with pytest.raises(cas.ConflictError, match=r"sk\\xff was changed"):
        store.learning.publish("c")
    store.learning.update("c", base="odd@v2:sk\udcff")
    store.learning.draft("c", new)
    assert store.learning.publish("c").version.spec == "odd@v3"
