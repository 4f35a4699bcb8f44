"""`cas learn`: what scripts and workers get, and how refusals end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

import cas as library


@pytest.fixture
def store(cas, clean):
    cas("init")
    return clean


def record(cas, name, *more):
    return cas("learn", "record", "--id", name, "--kind", "change", *more)


def test_a_candidate_is_recorded_shown_and_listed(cas, store):
    record(cas, "c1", "--reason", "look twice", "--field", "area=eyes")
    record(cas, "c2")
    shown = cas("learn", "show", "c1", "--json").json()
    assert (shown["candidate_id"], shown["status"], shown["area"]) == ("c1", "open", "eyes")
    assert shown["lease"] is None
    assert [c["candidate_id"] for c in cas("learn", "list", "--json").json()] == ["c1", "c2"]
    assert cas("learn", "list").lines[0].split()[:3] == ["c1", "open", "change"]
    assert cas("learn", "list", "--status", "queued", "--json").json() == []
    assert cas("learn", "show", "c3", code=3).message.startswith("cas: candidate c3 not found")


def test_one_that_is_there_is_a_conflict_unless_that_is_expected(cas, store):
    record(cas, "c1")
    assert cas("learn", "record", "--id", "c1", "--kind", "change", code=4)
    again = cas("learn", "record", "--id", "c1", "--kind", "x", "--if-absent", "--json").json()
    assert (again["kind"], again["created"]) == ("change", False)


def test_json_lines_are_recorded_together_or_not_at_all(cas, store):
    lines = [{"candidate_id": f"c{n}", "kind": "change", "extra": [n]} for n in range(5)]
    (store / "some.jsonl").write_text("\n\n".join(map(json.dumps, lines)))
    assert cas("learn", "record", "--from", "some.jsonl", "--json").json() == {
        "recorded": 5,
        "present": 0,
    }
    assert cas("learn", "show", "c4", "--json").json()["extra"] == [4]
    assert cas("learn", "record", "--from", "some.jsonl", code=4)
    more = cas("learn", "record", "--from", "some.jsonl", "--if-absent", "--json").json()
    assert more == {"recorded": 0, "present": 5}
    (store / "bad.jsonl").write_text('{"candidate_id": "new", "kind": "k"}\n{"torn')
    refused = cas("learn", "record", "--from", "bad.jsonl", code=6)
    assert "line 2 of bad.jsonl" in refused.message
    assert cas("learn", "show", "new", code=3)
    assert "nowhere not found" in cas("learn", "record", "--from", "nowhere", code=3).message


def test_a_claim_is_won_once_renewed_released_and_fenced(cas, store):
    record(cas, "c1")
    won = cas("learn", "claim", "c1", "--owner", "w1", "--lease", "10m", "--json").json()
    assert won["candidate"]["status"] == "synthesizing"
    assert won.keys() >= {"candidate_id", "token", "expires_at", "candidate"}
    error = cas("learn", "claim", "c1", "--owner", "w2", "--json", code=4).error()
    assert (error["code"], error["owner"]) == ("being_synthesized", "w1")
    token = str(won["token"])
    assert cas("learn", "renew", "c1", "--token", "1", "--json", code=4).error()["code"] == (
        "lease_lost"
    )
    renewed = cas("learn", "renew", "c1", "--token", token, "--lease", "1h", "--json").json()
    assert renewed["expires_at"] > won["expires_at"]
    assert cas("learn", "release", "c1", "--token", token, "--json").json()["status"] == "open"
    assert cas("learn", "claim", "--next", "--owner", "w2", "--json").json()["candidate_id"] == "c1"
    assert cas("learn", "claim", "--next", "--owner", "w2", code=3)
    assert cas("learn", "claim", "nobody", "--owner", "w2", code=3)
    assert cas("learn", "claim", "--owner", "w2", code=2)


def test_a_change_of_state_and_its_audit_are_shown(cas, store):
    record(cas, "c1")
    token = str(cas("learn", "claim", "c1", "--owner", "w1", "--json").json()["token"])
    assert cas("learn", "transition", "c1", "in_review", code=4)
    words = ("--token", token, "--payload", '{"score": 2}', "--set", "draft_id=d1")
    moved = cas("learn", "transition", "c1", "draft_ready", *words, "--json").json()
    assert (moved["status"], moved["draft_id"]) == ("draft_ready", "d1")
    last = cas("learn", "audit", "c1", "--json").json()[-1]
    assert (last["event_type"], last["actor"]) == ("candidate_draft_ready", "w1")
    assert last["payload"]["score"] == 2
    assert cas("learn", "audit", "--json").json() == cas("learn", "audit", "c1", "--json").json()
    cas("learn", "transition", "c1", "queued", "--event", "sent_back", "--actor", "me")
    assert [line.split()[3] for line in cas("learn", "audit").lines][-1] == "sent_back"
    for payload in ("{", "[]"):
        assert cas("learn", "transition", "c1", "open", "--payload", payload, code=2)


def test_performance_is_a_table_of_ratios(cas, store):
    cas("learn", "perf", "set", "look", "v1", "--activations", "10", "--successes", "3")
    cas("learn", "perf", "set", "count", "v2", "--activations", "4", "--successes", "4")
    listed = cas("learn", "perf", "list", "--json").json()
    assert [(p["skill_name"], p["success_ratio"]) for p in listed] == [
        ("count", 1.0),
        ("look", 0.3),
    ]
    assert cas("learn", "perf", "list").lines[1].split() == ["look", "v1", "10", "uses", "30%"]
    low = cas("learn", "perf", "low", "--min", "5", "--ratio", "0.4", "--json").json()
    assert [p["skill_name"] for p in low] == ["look"]
    assert cas("learn", "perf", "low", "--ratio", "7", code=2)
    counts = ("--activations", "1", "--successes", "2")
    assert cas("learn", "perf", "set", "look", "v1", *counts, code=6)


def test_reports_are_added_once_and_the_last_is_the_latest(cas, store):
    for name, found in (("r1", {"ok": False}), ("r2", {"ok": True})):
        (store / "found.json").write_text(json.dumps(found))
        cas("learn", "report", "add", "safety", "look", "d1", name, "found.json")
    assert cas("learn", "report", "show", "safety", "look", "d1", "--json").json()["content"] == {
        "ok": True
    }
    assert json.loads(cas("learn", "report", "show", "safety", "look", "d1", "r1").text) == {
        "ok": False
    }
    listed = cas("learn", "report", "list", "safety", "look", "d1", "--json").json()
    assert [report["report_id"] for report in listed] == ["r1", "r2"]
    assert cas("learn", "report", "add", "safety", "look", "d1", "r1", "found.json", code=4)
    assert cas("learn", "report", "show", "eval", "look", "d1", code=3)
    assert cas("learn", "report", "list", "other", "look", "d1", code=2)
    (store / "found.json").write_text("no json")
    assert cas("learn", "report", "add", "eval", "look", "d1", "r1", "found.json", code=6)


def test_watching_prints_events_or_candidates_as_lines(cas, store):
    record(cas, "c1")
    record(cas, "c2", "--status", "queued")
    events = [json.loads(line) for line in cas("learn", "watch").lines]
    assert [event["candidate_id"] for event in events] == ["c1", "c2"]
    (found,) = (json.loads(line) for line in cas("learn", "watch", "--status", "queued").lines)
    assert found["candidate_id"] == "c2"


def cas_process(store, *words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "cas_cli", "--store", str(store / ".cas"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_following_goes_on_with_what_comes(cas, store):
    watching = cas_process(store, "learn", "watch", "--status", "queued", "--follow")
    try:
        record(cas, "c1")
        cas("learn", "transition", "c1", "queued")
        assert json.loads(watching.stdout.readline())["candidate_id"] == "c1"
    finally:
        watching.kill()
        watching.communicate()


def following(store, *words):
    """Start to follow, and return the process when it has printed what is there."""
    watching = cas_process(store, "learn", "watch", "--follow", *words)
    assert json.loads(watching.stdout.readline())["candidate_id"] == "c1"
    return watching


def test_a_follower_whose_reader_went_away_ends_though_nothing_comes(cas, store):
    record(cas, "c1")
    watching = following(store)
    watching.stdout.close()
    assert watching.wait(30) == 141
    assert watching.stderr.read() == ""
    watching.stderr.close()


@pytest.mark.parametrize("then", ["removed", "moved", "another"])
def test_a_follower_says_that_the_store_is_gone(cas, store, then):
    record(cas, "c1")
    watching = following(store)
    (store / ".cas").rename(store / "away")
    if then == "removed":
        shutil.rmtree(store / "away")
    elif then == "another":
        cas("init")
    out, err = watching.communicate(timeout=30)
    assert (watching.returncode, out) == (3, "")
    assert "is gone: it was moved or removed" in err


def test_a_follower_passes_over_events_of_candidates_that_are_not_here(cas, store):
    record(cas, "c1", "--status", "queued")
    watching = following(store, "--status", "queued")
    try:
        with library.Store.open(store / ".cas") as opened:
            told = library.AuditEvent("e", "stranger", "told", to_status="queued")
            opened.learning.take_in(audit=[told])
        record(cas, "c2", "--status", "queued")
        assert json.loads(watching.stdout.readline())["candidate_id"] == "c2"
    finally:
        watching.kill()
        watching.communicate()


def test_times_that_came_with_an_import_cannot_write_to_the_terminal(cas, store):
    with library.Store.open(store / ".cas") as opened:
        told = library.AuditEvent("e", "c1", "told", created_at="\x1b[2Jnow\nlater")
        opened.learning.take_in(audit=[told])
    (line,) = cas("learn", "audit").lines
    assert line.startswith("\\x1b[2Jnow\\nlater")


DEEP = "[" * 100_000 + "]" * 100_000


def test_what_is_no_document_is_refused_wherever_it_is_given(cas, store):
    record(cas, "c1")
    for value in ("NaN", "1e999", "-Infinity", DEEP, "[" * 700 + "]" * 700, "9" * 5000, "{"):
        (store / "one.jsonl").write_text(
            '{"candidate_id": "c2", "kind": "k", "x": ' + value + "}\n"
        )
        (store / "report.json").write_text(value)
        refused = cas("learn", "record", "--from", "one.jsonl", code=6)
        assert refused.message.startswith("cas: line 1 of one.jsonl is no candidate: ")
        cas("learn", "report", "add", "safety", "look", "d1", "r1", "report.json", code=6)
    for value in (DEEP, "{"):
        cas("learn", "transition", "c1", "queued", "--payload", '{"x": ' + value, code=2)
    cas("learn", "transition", "c1", "queued", "--payload", '{"x": NaN}', code=6)
    assert [c["status"] for c in cas("learn", "list", "--json").json()] == ["open"]


def test_every_refusal_has_its_exit_code_and_its_facts(cas, store):
    record(cas, "c1")
    record(cas, "c2", "--status", "draft_ready", "--field", "draft_id=d1")
    held = cas("learn", "claim", "c1", "--owner", "w1", "--json").json()
    claim = ("learn", "claim", "--owner", "w2", "--json")
    move = ("learn", "transition", "c1", "failed", "--json")
    for words, code, name, facts in (
        ((*claim, "nobody"), 3, "unknown_candidate", {"candidate_id": "nobody"}),
        (
            (*claim, "c1"),
            4,
            "being_synthesized",
            {"candidate_id": "c1", "owner": "w1", "expires_at": held["expires_at"]},
        ),
        (
            (*claim, "c2"),
            4,
            "already_drafted",
            {"candidate_id": "c2", "status": "draft_ready", "draft_id": "d1"},
        ),
        ((*move,), 4, "being_synthesized", {"owner": "w1", "expires_at": held["expires_at"]}),
        ((*move, "--token", "7"), 4, "lease_lost", {"owner": "w1", "token": 7}),
        ((*claim, "c1\n"), 6, "bad_name", {}),
    ):
        error = cas(*words, code=code).error()
        assert error["code"] == name
        assert facts.items() <= error.items()
    forced = cas(*claim, "c2", "--force").json()
    assert forced["candidate"]["status"] == "synthesizing"
    cas(*move, "--force", "--actor", "maria")
    last = cas("learn", "audit", "c1", "--json").json()[-1]
    assert (last["forced"], last["actor"], last["from_status"]) == (True, "maria", "synthesizing")
    assert "maria (forced)" in cas("learn", "audit", "c1").text


WORKER = """
import json, os, subprocess, sys
candidate = json.load(sys.stdin)
name, token = os.environ["CAS_CANDIDATE_ID"], os.environ["CAS_CLAIM_TOKEN"]
assert candidate["candidate_id"] == name and candidate["status"] == "synthesizing"
subprocess.run(
    [sys.executable, "-m", "cas_cli", "learn", "transition", name, "draft_ready", "--token", token],
    check=True,
)
"""


def run_under_claim(store, *command, lease="15m"):
    words = ("learn", "claim", "--next", "--owner", "w", "--lease", lease, "--exec", *command)
    process = cas_process(store, *words)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_command_under_a_claim_moves_its_candidate_on(cas, store):
    record(cas, "c1")
    code, _, err = run_under_claim(store, sys.executable, "-c", WORKER)
    assert code == 0, err
    assert cas("learn", "show", "c1", "--json").json()["status"] == "draft_ready"


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 7", 7), ("kill -9 $$", 128 + 9), ("exit 0", 0)],
    ids=["fails", "is killed", "does nothing"],
)
def test_what_a_command_leaves_claimed_is_released(cas, store, command, code):
    record(cas, "c1")
    assert run_under_claim(store, "sh", "-c", command)[0] == code
    assert cas("learn", "show", "c1", "--json").json()["status"] == "open"


def test_a_command_that_does_not_exist_leaves_nothing_claimed(cas, store):
    record(cas, "c1")
    code, _, err = run_under_claim(store, "no-such-command")
    assert (code, "cannot be run" in err) == (127, True)
    assert cas("learn", "show", "c1", "--json").json()["status"] == "open"


def test_a_claim_is_renewed_while_its_command_runs(cas, store):
    record(cas, "c1")
    began = time.monotonic()
    code, _, err = run_under_claim(store, "sh", "-c", "sleep 2; exit 5", lease="1s")
    assert code == 5, err
    assert time.monotonic() - began >= 2
    with library.Store.open(store / ".cas") as opened:
        events = [event.event_type for event in opened.learning.audit("c1")]
    assert events == ["candidate_recorded", "candidate_synthesizing", "candidate_released"]


def test_a_command_whose_candidate_was_taken_over_is_ended(cas, store):
    record(cas, "c1")
    words = ("learn", "claim", "c1", "--owner", "w1", "--lease", "1s", "--exec", "sleep", "60")
    process = cas_process(store, *words)
    try:
        with library.Store.open(store / ".cas") as opened:
            while opened.learning.get("c1").status != "synthesizing":
                time.sleep(0.02)
            taken = opened.learning.claim("c1", "w2", 600, force=True)
            _, err = process.communicate(timeout=30)
            assert process.returncode == 4, err
            assert opened.learning.lease("c1").owner == "w2"
            assert opened.learning.renew("c1", taken.token)
    finally:
        process.kill()


def test_a_command_that_does_not_read_its_input_has_its_claim_renewed(cas, store):
    with library.Store.open(store / ".cas") as opened:
        opened.learning.record(library.Candidate("c1", "change", extra={"long": "x" * 900_000}))
        words = ("learn", "claim", "c1", "--owner", "w", "--lease", "1s", "--exec", "sleep", "2.2")
        process = cas_process(store, *words)
        time.sleep(2)
        assert opened.learning.lease("c1").live
        assert opened.learning.claim_next("other") is None
        assert process.communicate(timeout=30)[1] == "cas: note: c1 was released\n"
        assert process.returncode == 0


def test_all_of_a_long_candidate_is_read_by_a_command_that_takes_its_time(cas, store):
    with library.Store.open(store / ".cas") as opened:
        opened.learning.record(library.Candidate("c1", "change", extra={"long": "é" * 400_000}))
    script = "import json, sys, time; time.sleep(0.3); print(len(json.load(sys.stdin)['long']))"
    code, out, err = run_under_claim(store, sys.executable, "-c", script)
    assert (code, out) == (0, "400000\n"), err


def test_a_renewal_that_fails_for_a_moment_ends_nothing(cas, store, monkeypatch):
    from cas_cli.learn_exec import Work

    record(cas, "c1")
    with library.Store.open(store / ".cas") as opened:
        learning, notes, tries = opened.learning, [], []

        def renew(*told):
            tries.append(told)
            if len(tries) < 3:
                raise library.DiskFullError("no space left on device")
            return really(*told)

        class Session:
            note = staticmethod(notes.append)
            store = staticmethod(lambda: opened)

        really = learning.renew
        monkeypatch.setattr(learning, "renew", renew)
        work = Work(Session, learning.claim("c1", "w", 0.3), 0.3)
        assert work.run(["sh", "-c", "sleep 0.6; exit 3"]) == 3
        assert len(tries) > 3
        assert notes == ["the claim could not be renewed: no space left on device"] * 2 + [
            "c1 was released"
        ]
        assert learning.get("c1").status == "open"


def test_a_command_that_will_not_end_is_killed_by_the_second_signal(cas, store):
    record(cas, "c1")
    script = "trap '' TERM INT; echo $$; while :; do sleep 0.1; done"
    words = ("learn", "claim", "c1", "--owner", "w", "--exec", "sh", "-c", script)
    process = cas_process(store, *words)
    child = int(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    os.kill(child, 0)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=5)
    assert process.returncode == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert cas("learn", "show", "c1", "--json").json()["status"] == "open"


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_worker_that_is_told_to_end_ends_its_command_and_releases(cas, store, sign):
    record(cas, "c1")
    words = ("learn", "claim", "c1", "--owner", "w", "--exec", "sh", "-c", "echo $$; exec sleep 60")
    process = cas_process(store, *words)
    child = int(process.stdout.readline())
    process.send_signal(sign)
    process.communicate(timeout=30)
    assert process.returncode == 128 + sign
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert cas("learn", "show", "c1", "--json").json()["status"] == "open"


def test_compaction_keeps_everything(cas, store):
    for number in range(5):
        record(cas, f"c{number}")
    before = cas("learn", "audit", "--json").json()
    assert cas("learn", "compact", "--json").json() == {"compacted": True}
    assert cas("learn", "audit", "--json").json() == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"candidate_id": "a", "candidate_id": "b", "kind": "k"}', "'candidate_id' twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"candidate_id": 1, "kind": "k"}', "1 is not the name"),
        ('{"candidate_id": "a", "kind": "k", "n": ' + "9" * 5000 + "}", "5000 digits"),
        ('{"candidate_id": "a", "kind": "k", "n": NaN}', "NaN"),
    ],
    ids=["twice", "deep", "no name", "digits", "NaN"],
)
def test_a_line_that_is_no_candidate_is_named_and_none_recorded(cas, store, clean, text, says):
    (clean / "lines").write_text('{"candidate_id": "ok", "kind": "k"}\n' + text + "\n")
    ran = cas("learn", "record", "--from", "lines", code=6)
    assert "line 2 of lines" in ran.message
    assert says.lower() in ran.message.lower()
    assert cas("learn", "list", "--json").json() == []


def test_reports_and_payloads_that_are_odd_json_are_refused(cas, store, clean):
    record(cas, "c1")
    for text in ('{"a": 1, "a": 2}', "[" * 100_000):
        (clean / "report").write_text(text)
        cas("learn", "report", "add", "eval", "skill", "draft", "r1", "report", code=6)
        cas("learn", "transition", "c1", "failed", "--payload", text, code=2)
    cas("learn", "record", "--from", clean, code=6)
