"""Imports of a learning folder that crash, lose power or are refused by the system at any step."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil

import pytest

import cas
from cas.learning import intake
from cas.testing import faults
from cas.testing.power_cut import Disk

# Files that a killed process held open are closed by the system, here by the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

NOTHING = ([], [], [], [])


@pytest.fixture(autouse=True)
def in_parts(monkeypatch):
    """Let an import take several records, as one of more than 4 MiB does."""
    monkeypatch.setattr(intake, "PART", 600)


@pytest.fixture
def home(tmp_path):
    """A learning folder of something of everything, and an empty store to be copied for a try."""
    old = tmp_path / "old"
    for kind, name, content in (
        ("safety", "r1", {"ok": False}),
        ("safety", "r2", {"ok": True, "found": "x" * 20_000}),
        ("eval", "r1", [1]),
    ):
        folder = old / f"{kind}-reports/look/d1"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"report-{name}.json"
        path.write_text(json.dumps(content))
        os.utime(path, (1000 + int(name[1]), 1000 + int(name[1])))
    values = {
        "learning-candidates.jsonl": [
            {"candidate_id": f"c{n}", "kind": "k", "created_at": "2026-01-01", "n": n}
            for n in range(4)
        ],
        "learning-audit.jsonl": [
            {
                "event_id": f"e{n}",
                "candidate_id": f"c{n % 4}",
                "event_type": "seen",
                "created_at": "2026-01-02T03:04:05",
                "by": n,
            }
            for n in range(4)
        ],
        "performance.jsonl": [
            {"skill_name": "look", "version": n, "activations": 4, "successes": n} for n in range(2)
        ],
    }
    for name, lines in values.items():
        (old / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    cas.Store.init(tmp_path / "store").close()
    return tmp_path


def held(store):
    """Return all that the learning side of a store holds."""
    learning = store.learning
    reports = [
        report.to_dict()
        for kind, get in (
            (cas.SafetyReport, learning.safety_reports),
            (cas.EvalReport, learning.eval_reports),
        )
        for skill, draft in learning.drafts(kind)
        for report in get(skill, draft)
    ]
    return (
        [candidate.to_dict() for candidate in learning.list()],
        [event.to_dict() for event in learning.audit()],
        [snapshot.to_dict() for snapshot in learning.performance()],
        [{**report, "recorded_at": ""} for report in reports],
    )


def wanted(home):
    """Return what a store holds after an import that nothing disturbs."""
    shutil.copytree(home / "store", home / "undisturbed")
    with cas.Store.open(home / "undisturbed") as store:
        taken = store.import_layout(home / "old").learning
        assert (taken.candidates, taken.audit_events, taken.performance, taken.reports) == (
            (4, 4, 2, 3)
        )
        assert store.learning.refresh() > 4, "it did not take several records"
        return held(store)


def check(root, home, everything):
    """See that an import left all or nothing, and that a repeat finishes it and doubles nothing.

    Returns:
        Whether it left all.
    """
    with cas.Store.open(root) as store:
        found = held(store)
        assert found in (NOTHING, everything)
        done = found == everything
        taken = store.import_layout(home / "old").learning
        assert taken.known == (13 if done else 0)
        assert taken.differing == ()
        assert held(store) == everything
        assert store.verify(workers=1).ok
    return done


def test_an_import_that_crashes_at_any_step_takes_in_all_or_nothing(home):
    everything = wanted(home)
    seen = set()
    for number, injection in enumerate(faults.every_crash()):
        root = home / f"try{number}"
        shutil.copytree(home / "store", root)
        store = cas.Store.open(root)
        with injection:
            store.import_layout(home / "old")
        seen.add(check(root, home, everything))
        shutil.rmtree(root)
    assert seen == {False, True}


def test_a_power_cut_at_any_step_of_an_import_leaves_all_or_nothing(home):
    everything = wanted(home)
    draw = random.Random(7)
    seen = set()
    for number, injection in enumerate(faults.every_crash()):
        root = home / f"try{number}"
        shutil.copytree(home / "store", root)
        with Disk(root) as disk:
            store = cas.Store.open(root)
            with injection:
                store.import_layout(home / "old")
            disk.cut((lambda: draw.random() < 0.5) if number % 2 else None)
        done = check(root, home, everything)
        assert done or injection.fired, "an import that was acknowledged is lost"
        seen.add(done)
        shutil.rmtree(root)
    assert seen == {False, True}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_import_that_the_system_refuses_at_any_step_says_so_and_can_be_repeated(home, code):
    everything = wanted(home)
    for number, injection in enumerate(faults.every_failure(code)):
        root = home / f"try{number}"
        shutil.copytree(home / "store", root)
        failure = None
        with cas.Store.open(root) as store, injection:
            try:
                store.import_layout(home / "old")
            except cas.CasError as error:
                failure = error
        done = check(root, home, everything)
        if failure is None:
            assert done
        else:
            assert failure.exit_code == 8, failure
            assert not done or isinstance(failure, cas.OutcomeUnknownError)
        shutil.rmtree(root)


def test_a_lost_acknowledgement_at_any_step_doubles_nothing(home):
    everything = wanted(home)
    for number, injection in enumerate(faults.every_failure(errno.EIO, effect=True)):
        root = home / f"try{number}"
        shutil.copytree(home / "store", root)
        with cas.Store.open(root) as store, injection:
            try:
                store.import_layout(home / "old")
            except cas.EnvironmentFailure:
                pass
        check(root, home, everything)
        shutil.rmtree(root)


def test_parts_of_an_import_that_nobody_finished_are_let_go_by_the_next(home, monkeypatch):
    with cas.Store.open(home / "store") as store:
        appended = []

        def append(events):
            if events[0]["type"] == "imported":
                raise KeyboardInterrupt
            appended.extend(events)
            return whole(events)

        learning = store.learning
        whole = learning._append_all
        monkeypatch.setattr(learning, "_append_all", append)
        values = [cas.Candidate(f"c{n}", "k", reason="x" * 400) for n in range(5)]
        with pytest.raises(KeyboardInterrupt):
            learning.take_in(candidates=values)
        assert [event["type"] for event in appended] == ["import-part"] * 4
        monkeypatch.setattr(intake, "ABANDONED", -(10**18))
        monkeypatch.setattr(learning, "_append_all", whole)
        learning.take_in(candidates=values)
        assert len(learning.list()) == 5
        assert not list(learning._state().scan(b"pending\0"))
