"""The learning folder of an old layout: what comes in, what is skipped by name, what is written."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cas

CANDIDATE = {"candidate_id": "c1", "kind": "merge_skills", "status": "open", "skills": ["a", "b"]}


@pytest.fixture
def store(tmp_path):
    with cas.Store.init(tmp_path / "store") as store:
        yield store


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old"
    path.mkdir()
    return path


def lines(path, *values):
    path.write_bytes(
        b"".join(v if isinstance(v, bytes) else json.dumps(v).encode() + b"\n" for v in values)
    )


def report(old, kind, skill, draft, name, content, when):
    folder = old / f"{kind}-reports" / skill / draft
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"report-{name}.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    os.utime(path, (when, when))


def test_a_learning_folder_comes_in_with_its_fields_times_and_order(store, old):
    event = {"event_id": "e1", "candidate_id": "c1", "event_type": "created", "by_tool": 7}
    used = {"skill_name": "look", "version": 3, "activations": 9, "successes": 4}
    lines(old / "learning-candidates.jsonl", CANDIDATE | {"created_at": "2026-01-01T00:00:00"})
    lines(old / "learning-audit.jsonl", event, event | {"event_id": "e2"})
    lines(old / "performance.jsonl", used, used | {"successes": 5})
    report(old, "safety", "look", "d1", "b", {"ok": False}, 1_000)
    report(old, "safety", "look", "d1", "a", {"ok": True}, 2_000)
    report(old, "eval", "look", "d1", "a", [1], 3_000)
    done = store.import_layout(old)
    assert (done.skipped, done.versions) == ((), ())
    told = done.learning
    assert (told.candidates, told.audit_events, told.performance, told.reports) == (1, 2, 1, 3)
    found = store.learning.get("c1").to_dict()
    assert (found["skills"], found["created_at"]) == (["a", "b"], "2026-01-01T00:00:00")
    events = [e.to_dict() for e in store.learning.audit("c1")]
    assert [(e["event_id"], e["by_tool"]) for e in events] == [("e1", 7), ("e2", 7)]
    assert [p.successes for p in store.learning.performance()] == [5]
    assert store.learning.safety_report("look", "d1").report_id == "a"
    assert store.learning.eval_report("look", "d1").content == [1]


def test_what_is_damaged_is_named_and_the_good_lines_come_in(store, old):
    lines(
        old / "learning-candidates.jsonl",
        CANDIDATE,
        b"\n",
        [1],
        CANDIDATE,
        b'{"candidate_id": "nan", "kind": "k", "n": NaN}\n',
        b'{"candidate_id": "bytes", "kind": "\xff"}\n',
        {"candidate_id": "no kind"},
        b"[" * 100_000 + b"\n",
        {"candidate_id": "c2", "kind": "k"},
        b'{"candidate_id": "torn',
    )
    (old / "safety-reports/look").mkdir(parents=True)
    (old / "safety-reports/look/stray").write_text("x")
    report(old, "safety", "look", "d1", "bad", "{", 1)
    report(old, "safety", "look", "d1", "good", {}, 2)
    (old / "safety-reports/look/d1/notes.txt").write_text("x")
    (old / "learning-audit.jsonl").symlink_to("/etc/passwd")
    done = store.import_layout(old)
    assert [c.candidate_id for c in store.learning.list()] == ["c1", "c2"]
    assert (done.learning.candidates, done.learning.reports) == (2, 1)
    named = {
        (os.fsdecode(s.path), s.reason.split(" is ")[0].split(" says ")[0]) for s in done.skipped
    }
    assert {reason for path, reason in named if path == "learning-candidates.jsonl"} >= {
        f"line {n}" for n in (2, 4, 8, 10)
    }
    assert len([s for s in done.skipped if s.path == b"learning-candidates.jsonl"]) == 8
    assert {path for path, _ in named} == {
        "learning-candidates.jsonl",
        "learning-audit.jsonl",
        "safety-reports/look/stray",
        "safety-reports/look/d1/report-bad.json",
        "safety-reports/look/d1/notes.txt",
    }


def test_what_is_too_large_or_too_deep_is_named_and_the_rest_comes_in(store, old):
    large, deep = "x" * (1 << 20), []
    for _ in range(600):
        deep = [deep]
    used = {"skill_name": "look", "version": "v1", "activations": 1, "successes": 1}
    event = {"event_id": "e", "candidate_id": "c", "event_type": "t"}
    bad = [{"more": large}, {"more": deep}]
    lines(old / "learning-candidates.jsonl", *(CANDIDATE | more for more in bad), CANDIDATE)
    lines(old / "performance.jsonl", *(used | more for more in bad), used)
    told = [event | more for more in bad] + [event | {"payload": more} for more in bad]
    lines(old / "learning-audit.jsonl", *told, event)
    report(old, "safety", "look", "d", "deep", deep, 1)
    # Half a surrogate pair makes each character of the rest take six bytes.
    report(old, "eval", "look", "d", "grows", '"' + "é" * 3_000_000 + '\\ud800"', 1)
    done = store.import_layout(old)
    assert [skip.path.decode() for skip in done.skipped] == [
        "eval-reports/look/d/report-grows.json",
        *["learning-audit.jsonl"] * 4,
        *["learning-candidates.jsonl"] * 2,
        *["performance.jsonl"] * 2,
        "safety-reports/look/d/report-deep.json",
    ]
    taken = done.learning
    assert (taken.candidates, taken.audit_events, taken.performance, taken.reports) == (1, 1, 1, 0)


def test_an_import_may_be_repeated_and_what_was_worked_at_since_stays(store, old):
    lines(old / "learning-candidates.jsonl", CANDIDATE)
    report(old, "eval", "look", "d1", "a", {"n": 1}, 1)
    store.import_layout(old)
    store.learning.transition("c1", "queued")
    (old / "eval-reports/look/d1/report-a.json").write_text('{"n": 2}')
    again = store.import_layout(old)
    assert (again.learning.candidates, again.learning.reports) == (0, 0)
    assert store.learning.get("c1").status == "queued"
    assert any("eval report a" in notice for notice in again.notices)
    assert store.learning.eval_report("look", "d1").content == {"n": 1}


def test_a_version_store_and_a_learning_folder_in_one_come_in_together(store, old, tmp_path):
    (old / "skills/v2").mkdir(parents=True)
    (old / "skills/v2/meta.json").write_text('{"version": "v2"}')
    (old / "skills/v2/S.md").write_text("x")
    lines(old / "learning-candidates.jsonl", CANDIDATE)
    done = store.import_layout(old)
    assert ([v.spec for v in done.versions], done.learning.candidates) == (["skills@v2"], 1)
    written = store.export_layout(tmp_path / "out")
    assert written.learning["candidates"] == 1
    assert (tmp_path / "out/skills/v2/S.md").read_text() == "x"


NAMES = st.text("abc-_. é", min_size=1, max_size=6).filter(lambda t: not t.startswith("."))
NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = st.dictionaries(NAMES.map("x".__add__), JSON, max_size=2)
TIMES = st.sampled_from(
    [
        "1970-01-01T00:00:00.000000+00:00",
        "2025-12-31T23:59:59.999999+00:00",
        "2026-01-01T00:00:00.000000+00:00",
        "2026-01-01T00:00:00.000001+00:00",
        "2262-01-01T00:00:00.000000+00:00",
    ]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), NAMES, FIELDS),
        st.tuples(st.just("move"), st.sampled_from(["queued", "failed"]), JSON),
        st.tuples(st.just("perf"), NAMES, st.integers(0, 5)),
        st.tuples(st.sampled_from(["safety", "eval"]), NAMES, JSON),
        st.tuples(st.just("told"), NAMES, TIMES),
    ),
    min_size=1,
    max_size=8,
)


def told(store):
    learning = store.learning
    found = [c.to_dict() for c in learning.list()]
    events = [e.to_dict() for e in learning.audit()]
    used = [p.to_dict() for p in learning.performance()]
    reports = {
        (kind.__name__, skill, draft): [r.to_dict() for r in get(skill, draft)]
        for kind, get in (
            (cas.SafetyReport, learning.safety_reports),
            (cas.EvalReport, learning.eval_reports),
        )
        for skill, draft in learning.drafts(kind)
    }
    return found, events, used, reports


@given(steps=STEPS)
@settings(max_examples=25, deadline=None)
def test_an_import_of_an_export_is_the_same(tmp_path_factory, steps):
    home = tmp_path_factory.mktemp("home")
    with cas.Store.init(home / "a") as a, cas.Store.init(home / "b") as b:
        learning = a.learning
        for number, (what, name, value) in enumerate(steps):
            if what == "record":
                fields = {"candidate_id": f"{name}{number}", "kind": "k"} | value
                learning.record(cas.Candidate.from_dict(fields))
            elif what == "move":
                for candidate in learning.list()[:1]:
                    learning.transition(candidate.candidate_id, name, payload={"v": value})
            elif what == "perf":
                learning.set_performance(cas.PerformanceSnapshot(name, "v1", 9, value))
            elif what == "told":
                learning.take_in(
                    audit=[cas.AuditEvent(f"e{number}", name, "seen", value, extra={"n": number})],
                    performance=[cas.PerformanceSnapshot(f"{name}{number}", "v1", 2, 1, value)],
                    reports=[
                        cas.SafetyReport("skill", "d", f"{name}{number}", number, value),
                        cas.SafetyReport("skill", "d", f"{number}", number, value),
                    ],
                )
            elif what == "safety":
                learning.add_safety_report(cas.SafetyReport(name, "d", f"r{number}", value))
            else:
                learning.add_eval_report(cas.EvalReport(name, "d", f"r{number}", value))
        if learning.is_empty():
            with pytest.raises(cas.RefusedError):
                a.export_layout(home / "out")
            return
        a.export_layout(home / "out")
        done = b.import_layout(home / "out")
        assert (done.skipped, done.notices) == ((), ())
        assert told(b) == told(a)
        b.export_layout(home / "again")
        assert files(home / "again") == files(home / "out")
        again = a.import_layout(home / "out")
        assert (again.skipped, again.notices) == ((), ())
        assert told(a) == told(b)


def files(root):
    """Return every file of a folder with what it holds, and of reports when they were written."""
    return {
        path.relative_to(root): (path.read_bytes(), path.stat().st_mtime_ns)
        if path.name.startswith("report-")
        else path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_the_times_of_an_old_folder_are_taken_over(store, old):
    lines(
        old / "learning-audit.jsonl",
        {"event_id": "e1", "candidate_id": "c1", "event_type": "t", "created_at": "5 May"},
    )
    used = {"skill_name": "look", "version": "v1", "activations": 1, "successes": 1}
    lines(
        old / "performance.jsonl",
        used | {"recorded_at": "2024-02-03"},
        used | {"skill_name": "see"},
    )
    report(old, "safety", "look", "d1", "a", {}, 1_000_000_000)
    report(old, "safety", "look", "d1", "b", {}, -7)
    store.import_layout(old)
    learning = store.learning
    assert [event.created_at for event in learning.audit()] == ["5 May"]
    assert [shot.recorded_at for shot in learning.performance()] == ["2024-02-03", ""]
    assert [found.recorded_at for found in learning.safety_reports("look", "d1")] == [
        "1970-01-01T00:00:00.000000+00:00",
        "2001-09-09T01:46:40.000000+00:00",
    ]


def test_the_order_of_reports_survives_a_clock_that_was_set_back(store, tmp_path):
    for name, at in (("z", 9), ("a", 5), ("m", 7)):
        time = f"2026-01-01T00:00:0{at}.000000+00:00"
        store.learning.take_in(reports=[cas.EvalReport("look", "d", name, at, time)])
    store.export_layout(tmp_path / "out")
    folder = tmp_path / "out/eval-reports/look/d"
    assert [name for name, _ in json.loads((folder / "times.json").read_text())] == ["z", "a", "m"]
    with cas.Store.init(tmp_path / "other") as other:
        assert other.import_layout(tmp_path / "out").skipped == ()
        assert told(other) == told(store)
    for number, harm in enumerate(("[]]", '[["z", "noon"]]', "[3]", "7")):
        (folder / "times.json").write_text(harm)
        with cas.Store.init(tmp_path / f"other{number}") as other:
            (skipped,) = other.import_layout(tmp_path / "out").skipped
            assert skipped.path.endswith(b"times.json")
            assert len(other.learning.eval_reports("look", "d")) == 3


def test_a_report_without_a_time_that_makes_sense_is_refused(store):
    for time in ("noon", "2026-01-01T00:00:00", "1969-01-01T00:00:00.000000+00:00", 5):
        with pytest.raises(cas.RefusedError, match="no time"):
            store.learning.take_in(reports=[cas.EvalReport("look", "d", "a", 1, time)])
    assert store.learning.is_empty()


def test_what_says_something_else_by_now_is_named_and_stays(store, old):
    event = {"event_id": "e1", "candidate_id": "c1", "event_type": "created"}
    used = {"skill_name": "look", "version": "v1", "activations": 9, "successes": 4}
    lines(old / "learning-audit.jsonl", event)
    lines(old / "performance.jsonl", used)
    assert store.import_layout(old).notices == ()
    assert store.import_layout(old).notices == ()
    lines(old / "learning-audit.jsonl", event | {"event_type": "other"})
    lines(old / "performance.jsonl", used | {"successes": 5})
    done = store.import_layout(old)
    assert done.learning.differing == ("audit event e1", "the performance of look v1")
    assert all("stays" in notice for notice in done.notices)
    assert [shot.successes for shot in store.learning.performance()] == [4]
