"""Candidates, audit, performance and reports, one rule at a time, as one process uses them."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

import cas
from cas.backends import MemoryBackend
from cas.catalogue.context import Context
from cas.eventlog.state import Draft
from cas.learning import Learning, board, document, intake, rows
from cas.refs import create_catalogue, open_catalogue
from cas.testing.stepping import Actor, Order, SteppingBackend

STORE = "5" * 32
SECOND = 10**9


class World:
    """A store in memory with a clock that the test moves."""

    def __init__(self):
        self.now = 10**18
        self.backend = MemoryBackend(clock=lambda: self.now)
        create_catalogue(self.backend, [{"type": "init", "store_id": STORE, "created_at": ""}])

    def open(self, backend=None):
        backend = self.backend if backend is None else backend
        return Learning(Context(Path("memory"), STORE, backend, open_catalogue(backend)))


@pytest.fixture
def world():
    return World()


@pytest.fixture
def learning(world):
    return world.open()


def make(learning, *ids, kind="k", **fields):
    return [learning.record(cas.Candidate(name, kind, **fields)) for name in ids]


# --- recording -----------------------------------------------------------------------------------


def test_what_is_not_known_is_kept_through_every_path(learning):
    fields = {
        "candidate_id": "c",
        "kind": "k",
        "status": "open",
        "reason": "why",
        "draft_skill_name": None,
        "draft_id": None,
        "last_error": None,
        "created_at": "2020",
        "updated_at": "2021",
        "extra": {"a": [1, 2.5, True, None]},
        "owner": "somebody",
        "token": "x",
    }
    assert learning.record(cas.Candidate.from_dict(fields)).to_dict() == fields
    learning.update("c", owner="another", more="\u2028\ud800")
    changed = learning.change("c", None, {"token": "y"}).to_dict()
    learning.compact(full=True)
    assert changed == learning.get("c").to_dict()
    assert changed["updated_at"] == "2001-09-09T01:46:40.000000+00:00"
    expected = fields | {"owner": "another", "more": "\u2028\ud800", "token": "y"}
    assert changed == expected | {"updated_at": changed["updated_at"]}


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "k"},
        {"candidate_id": "c"},
        {"candidate_id": "", "kind": "k"},
        {"candidate_id": "a\nb", "kind": "k"},
        {"candidate_id": "c\ud800", "kind": "k"},
        {"candidate_id": "x" * 201, "kind": "k"},
        {"candidate_id": "é" * 201, "kind": "k"},
        {"candidate_id": "漢" * 134, "kind": "k"},
        {"candidate_id": 5, "kind": "k"},
        {"candidate_id": "c", "kind": "k", "status": "not ok"},
        {"candidate_id": "c", "kind": "k", "status": "x" * 65},
        {"candidate_id": "c", "kind": "k", "reason": 5},
        {"candidate_id": "c", "kind": "k", "created_at": "\ud800"},
        {"candidate_id": "c", "kind": "k", "n": float("nan")},
        {"candidate_id": "c", "kind": "k", "n": [float("inf")]},
        {"candidate_id": "c", "kind": "k", "n": 1 << 2049},
        {"candidate_id": "c", "kind": "k", "n": {1: 2}},
        {"candidate_id": "c", "kind": "k", "n": {1, 2}},
        {"candidate_id": "c", "kind": "k", "n": b"bytes"},
        {"candidate_id": "c", "kind": "k", "n": "x" * document.MAX_DOCUMENT},
        {"candidate_id": "c", "kind": "k", 5: 5},
        ["candidate_id"],
    ],
)
def test_what_cannot_be_kept_is_refused_and_nothing_is_written(learning, fields):
    with pytest.raises(cas.RefusedError) as refused:
        learning.record(cas.Candidate.from_dict(fields))
    assert "\n" not in str(refused.value)
    assert learning.refresh() == 0


def test_too_deep_is_refused_and_as_deep_as_allowed_is_kept(learning):
    def nested(depth):
        value = 1
        for _ in range(depth):
            value = [value]
        return value

    (made,) = make(learning, "c", extra={"n": nested(document.MAX_DEPTH - 1)})
    learning.compact()
    assert learning.get("c") == made
    with pytest.raises(cas.RefusedError, match="deeper"):
        make(learning, "d", extra={"n": nested(document.MAX_DEPTH)})


def test_halves_of_a_pair_that_stand_together_become_the_character(learning):
    (made,) = make(learning, "c", reason="\ud83d\ude00")
    assert made.reason == "😀"
    with pytest.raises(cas.RefusedError, match="same text"):
        make(learning, "d", extra={"n": {"\ud83d\ude00": 1, "😀": 2}})


def test_a_duplicate_id_is_a_conflict_or_an_answer(learning):
    make(learning, "c")
    with pytest.raises(FileExistsError) as conflict:
        make(learning, "c")
    assert conflict.value.exit_code == 4
    found, created = learning.record_if_absent(cas.Candidate("c", "other"))
    assert (found.kind, created) == ("k", False)
    assert len(learning.audit()) == 1


def test_many_candidates_share_records_and_one_that_exists_refuses_its_record(
    learning, monkeypatch
):
    monkeypatch.setattr(board, "BATCH", 4)
    made = learning.record_all(cas.Candidate(f"c{n}", "k") for n in range(10))
    assert [c.candidate_id for c in made] == [f"c{n}" for n in range(10)]
    assert learning.refresh() == 4  # init and three records
    with pytest.raises(cas.ConflictError):
        learning.record_all(cas.Candidate(name, "k") for name in ("x", "c3"))
    assert len(learning.list()) == 10


# --- looking -------------------------------------------------------------------------------------


def test_lists_are_in_the_order_of_recording_whatever_happened_since(learning):
    make(learning, "z", "a", "m")
    make(learning, "b", kind="merge_skills")
    for status in ("failed", "open"):
        learning.transition("z", status)
    names = [c.candidate_id for c in learning.list()]
    assert names == ["z", "a", "m", "b"]
    assert [c.candidate_id for c in learning.list("open", "k")] == ["z", "a", "m"]
    assert [c.candidate_id for c in learning.list(kind="k")] == ["z", "a", "m"]
    assert [c.candidate_id for c in learning.merge_candidates()] == ["b"]
    assert learning.list("rejected") == learning.list(kind="none") == []
    with pytest.raises(cas.NameRefusedError):
        learning.list("not ok")


@pytest.mark.parametrize(
    ("status", "kind", "found"),
    [("failed", None, "c"), (None, "other", "e"), ("failed", "k", "c"), ("open", "other", "e")],
)
def test_a_list_by_status_or_kind_reads_only_what_it_returns(
    learning, monkeypatch, status, kind, found
):
    make(learning, "a", "b", "c", "d")
    make(learning, "e", kind="other")
    learning.transition("c", "failed")
    learning.compact()
    decoded = []

    def decode(encoded):
        decoded.append(encoded)
        return document.decode_document(encoded)

    monkeypatch.setattr(rows, "decode_document", decode)
    assert [c.candidate_id for c in learning.list(status, kind)] == [found]
    assert len(decoded) == 1


class Weighing(MemoryBackend):
    """Counts the bytes that are read and written."""

    moved = 0

    def put_if_absent(self, key, source):
        self.moved += len(source) if isinstance(source, bytes) else source.tell()
        return super().put_if_absent(key, source)

    def get(self, key, *, max_bytes=None):
        content = super().get(key, max_bytes=max_bytes)
        self.moved += len(content)
        return content

    def open(self, key):
        reader = super().open(key)
        read_at = reader.read_at

        def weighed(offset, length):
            content = read_at(offset, length)
            self.moved += len(content)
            return content

        reader.read_at = weighed
        return reader


def test_one_claim_among_many_moves_few_of_their_bytes(world):
    world.backend = Weighing(clock=lambda: world.now)
    create_catalogue(world.backend, [{"type": "init", "store_id": STORE, "created_at": ""}])
    draw = random.Random(1)
    learning = world.open()
    learning.record_all(
        cas.Candidate(f"c{n}", "k", reason=draw.randbytes(500).hex()) for n in range(4000)
    )
    learning.compact()
    size = sum(entry.size for entry in world.backend.list("log/learning/segments/"))
    assert size > 1 << 20
    world.backend.moved = 0
    cold = world.open()
    cold.claim("c1234", "w", 60)
    assert world.backend.moved < size / 8
    world.backend.moved = 0
    assert cold.claim_next("w", 60).candidate.candidate_id == "c0"
    assert cold.claim_next("w", 60).candidate.candidate_id == "c1"
    assert world.backend.moved < size / 16


def test_what_is_not_there_is_not_found(learning):
    for ask in (learning.get, learning.audit, learning.lease, lambda name: learning.update(name)):
        with pytest.raises(FileNotFoundError) as missing:
            ask("nobody")
        assert (missing.value.exit_code, missing.value.code) == (3, "unknown_candidate")
        assert missing.value.facts == {"candidate_id": "nobody"}


def test_a_second_process_sees_what_the_first_did(world):
    first, second = world.open(), world.open()
    make(first, "c")
    assert second.get("c").status == "open"
    second.transition("c", "queued")
    assert first.get("c").status == "queued"


# --- changing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["candidate_id", "created_at", "updated_at"])
def test_what_the_store_sets_no_update_sets(learning, field):
    make(learning, "c")
    if field == "candidate_id":
        with pytest.raises(TypeError):
            learning.update("c", **{field: "x"})
        return
    with pytest.raises(cas.RefusedError, match=field):
        learning.update("c", **{field: "x"})


def test_an_update_changes_fields_and_kind_and_is_in_the_audit(learning):
    make(learning, "c")
    changed = learning.update("c", kind="merge_skills", reason="better", draft_id="d", actor="me")
    assert (changed.kind, changed.reason, changed.draft_id) == ("merge_skills", "better", "d")
    assert learning.merge_candidates() == [changed]
    assert learning.list(kind="k") == []
    event = learning.audit("c")[-1]
    assert (event.event_type, event.actor) == ("candidate_updated", "me")
    assert event.from_status == event.to_status == "open"
    assert learning.update("c", status="queued").status == "queued"


def test_a_payload_adds_to_the_facts_and_changes_none(learning):
    make(learning, "c")
    payload = {"actor": "x", "from_status": "y", "to_status": "z", "event_type": "w", "more": 1}
    learning.transition("c", "queued", payload=payload, actor="me")
    event = learning.audit("c")[-1]
    assert event.payload == payload
    told = event.to_dict()
    assert (told["actor"], told["from_status"], told["to_status"]) == ("me", "open", "queued")
    assert told["event_type"] == "candidate_queued"
    assert cas.AuditEvent.from_dict(told) == event


def test_an_event_type_can_be_named(learning):
    make(learning, "c")
    learning.transition("c", "rejected", "reviewed", {"by": 2})
    noted = learning.append_audit("c", "looked at", {"n": 1}, actor="you")
    events = learning.audit()
    assert [event.event_type for event in events] == ["candidate_recorded", "reviewed", "looked at"]
    assert events[-1] == noted
    assert (noted.from_status, noted.to_status) == (None, None)
    assert len({event.event_id for event in events}) == 3


def test_the_audit_can_be_followed(world, learning):
    assert learning.audit_since() == ([], "")
    make(learning, "a", "b")
    events, mark = learning.audit_since()
    assert events == learning.audit()
    assert learning.audit_since(mark) == ([], mark)
    assert learning.audit_since(learning.audit_end())[0] == []
    world.open().claim_many(2, "w")
    learning.compact()
    more, mark = learning.audit_since(mark)
    assert more == learning.audit()[2:]
    assert learning.audit_since(mark)[0] == []
    with pytest.raises(cas.RefusedError):
        learning.audit_since("x")


def test_the_table_of_a_store_holds_for_everybody(world, learning):
    make(learning, "c")
    learning.set_transitions({"open": ("queued",), "queued": []})
    other = world.open()
    assert other.transitions() == {"open": ["queued"], "queued": []}
    for status in ("failed", "synthesizing"):
        with pytest.raises(cas.TransitionRefusedError) as refused:
            other.transition("c", status)
        assert refused.value.exit_code == 4
        assert refused.value.facts["allowed"] == ["queued"]
    with pytest.raises(cas.TransitionRefusedError):
        other.claim("c", "w")
    other.transition("c", "queued")
    other.transition("c", "queued")
    with pytest.raises(cas.TransitionRefusedError, match="allows nothing"):
        other.transition("c", "open")
    other.transition("c", "failed", force=True)
    assert other.audit("c")[-1].forced
    other.transition("c", "anything")  # the table does not name `failed`
    learning.set_transitions(None)
    assert other.transitions() is None


def test_who_set_a_table_and_when_is_kept(world, learning):
    assert learning.transitions_history() == []
    learning.set_transitions({"open": ["queued"]}, actor="maria")
    world.now += SECOND
    learning.compact(full=True)
    world.open().set_transitions(None)
    first, second = learning.transitions_history()
    assert first == ({"open": ["queued"]}, "maria", "2001-09-09T01:46:40.000000+00:00")
    assert (second.transitions, second.created_at[17:19]) == (None, "41")
    assert second.actor
    with pytest.raises(cas.NameRefusedError):
        learning.set_transitions(None, actor="")
    assert len(learning.transitions_history()) == 2


def test_a_renewal_changes_the_lease_and_nothing_else(world, learning):
    make(learning, "a")
    claim = learning.claim("a", "w", 60)
    audit, candidate = learning.audit(), learning.get("a")
    world.now += 30 * SECOND
    renewed = learning.renew("a", claim.token, 60)
    assert renewed.expires_at > claim.expires_at
    assert learning.lease("a").expires_at == renewed.expires_at
    assert (learning.audit(), learning.get("a")) == (audit, candidate)


@pytest.mark.parametrize("table", [{"open": "queued"}, {"open": ["not ok"]}, {"not ok": []}])
def test_what_is_no_table_is_refused(learning, table):
    with pytest.raises(cas.RefusedError):
        learning.set_transitions(table)


# --- claims --------------------------------------------------------------------------------------


def test_every_refusal_of_a_claim_says_why_for_programs(learning):
    make(learning, "a", "b")
    claim = learning.claim("a", "first", 60)
    learning.transition("b", "draft_ready", draft_id="d7")
    cases = [
        ("nobody", "unknown_candidate", 3, {"candidate_id": "nobody"}),
        (
            "a",
            "being_synthesized",
            4,
            {"candidate_id": "a", "owner": "first", "expires_at": claim.expires_at},
        ),
        (
            "b",
            "already_drafted",
            4,
            {"candidate_id": "b", "draft_id": "d7", "status": "draft_ready"},
        ),
    ]
    for name, code, exit_code, facts in cases:
        with pytest.raises(cas.CasError) as refused:
            learning.claim(name, "second")
        error = refused.value
        assert (error.code, error.exit_code, error.facts) == (code, exit_code, facts)
    with pytest.raises(cas.LeaseLostError) as lost:
        learning.renew("a", 1)
    assert lost.value.code == "lease_lost"
    assert lost.value.facts["owner"] == "first"


@pytest.mark.parametrize("token", ["x", -1, 1 << 63, 1.5, True])
def test_what_is_no_token_is_refused_also_by_force(learning, token):
    make(learning, "a")
    with pytest.raises(cas.RefusedError):
        learning.transition("a", "failed", token=token, force=True)
    with pytest.raises(cas.CasError):
        learning.transition("a", "failed", token=token)
    assert len(learning.audit()) == 1


def test_a_forced_claim_fences_the_holder_off_and_the_audit_says_so(learning):
    make(learning, "a")
    first = learning.claim("a", "first", 60)
    second = learning.claim("a", "second", 60, force=True)
    assert second.token > first.token
    with pytest.raises(cas.LeaseLostError, match="second holds it"):
        learning.transition("a", "failed", token=first.token)
    event = learning.audit("a")[-1]
    assert event.forced
    assert event.payload["taken_over_from"] == "first"


def test_a_lease_runs_by_the_clock_of_the_store(world, learning):
    make(learning, "a")
    first = learning.claim_next("first", 10)
    world.now += 10 * SECOND - 1
    assert learning.claim_next("second") is None
    assert learning.lease("a").live
    world.now += 1
    assert not learning.lease("a").live
    # Over, but nobody took it: the holder goes on.
    renewed = learning.renew("a", first.token, 5)
    assert learning.claim_next("second") is None
    world.now += 6 * SECOND
    second = learning.claim_next("second")
    assert second.token > renewed.token == first.token
    with pytest.raises(cas.LeaseLostError):
        learning.release("a", first.token)
    learning.release("a", second.token)
    assert learning.get("a").status == "open"


def test_a_renewal_never_makes_a_lease_shorter(learning):
    make(learning, "a")
    claim = learning.claim("a", "w", 100)
    assert learning.renew("a", claim.token, 1).expires_at == claim.expires_at


def test_a_release_goes_back_to_what_it_was_before_the_first_claim(world, learning):
    make(learning, "a", status="failed")
    learning.claim("a", "first", 1)
    world.now += 2 * SECOND
    second = learning.claim("a", "second", 1)
    learning.release("a", second.token)
    assert learning.get("a").status == "failed"


def test_one_that_nobody_holds_is_taken_by_the_next(learning):
    make(learning, "old", status="synthesizing")
    make(learning, "new", "drafted")
    learning.update("drafted", draft_id="d")
    assert [c.candidate.candidate_id for c in learning.claim_many(5, "w")] == ["old", "new"]
    assert learning.claim_next("w") is None


@pytest.mark.parametrize("kind", [None, "k"])
def test_an_open_one_that_loses_its_draft_is_the_oldest_again(learning, kind):
    make(learning, "drafted", draft_id="d")
    make(learning, "a", "b", "c", "d")
    won = [learning.claim_next("w", kind=kind).candidate.candidate_id for _ in range(2)]
    learning.update("drafted", draft_id=None)
    won += [learning.claim_next("w", kind=kind).candidate.candidate_id for _ in range(3)]
    assert won == ["a", "b", "drafted", "c", "d"]
    assert learning.claim_next("w", kind=kind) is None


def test_the_next_is_found_without_looking_through_an_index(learning, monkeypatch):
    learning.record_all(cas.Candidate(f"c{n}", "k") for n in range(40))
    learning.claim_next("w", 60)
    learning.claim_next("w", 60)
    scans = []
    scan = Draft.scan
    monkeypatch.setattr(Draft, "scan", lambda *told, **how: scans.append(1) or scan(*told, **how))
    for n in range(2, 40):
        assert learning.claim_next("w", 60).candidate.candidate_id == f"c{n}"
    assert len(scans) <= 40
    assert learning.claim_next("w", 60) is None


def test_several_claims_share_a_record_and_have_tokens_of_their_own(learning):
    make(learning, "a", "b", "c")
    before = learning.refresh()
    claims = learning.claim_many(2, "w", kind="k")
    assert learning.refresh() == before + 1
    assert [claim.candidate.candidate_id for claim in claims] == ["a", "b"]
    assert claims[0].token < claims[1].token
    learning.transition("b", "failed", token=claims[1].token)
    assert learning.lease("a").owner == "w"
    with pytest.raises(cas.RefusedError):
        learning.claim_many(0, "w")


@pytest.mark.parametrize("lease", [0, -1, float("nan"), float("inf"), 1e12, True, "15m"])
def test_what_is_no_lease_is_refused(learning, lease):
    make(learning, "a")
    with pytest.raises(cas.RefusedError):
        learning.claim("a", "w", lease)


# --- performance and reports ---------------------------------------------------------------------


def test_the_last_snapshot_of_a_version_counts_and_low_ones_come_worst_first(learning):
    for version, activations, successes in [
        ("v1", 10, 1),
        ("v1", 10, 4),
        ("v2", 10, 2),
        ("v3", 1, 0),
        ("v4", 10, 5),
        ("v5", 0, 0),
    ]:
        learning.set_performance(
            cas.PerformanceSnapshot("s", version, activations, successes, extra={"by": "eval"})
        )
    assert len(learning.performance()) == 5
    assert [snapshot.version for snapshot in learning.low_performing()] == ["v2", "v1"]
    assert [s.version for s in learning.low_performing(1, 0.3)] == ["v3", "v2"]
    assert [s.version for s in learning.low_performing(0, 1.0)] == ["v3", "v2", "v1", "v4"]
    assert learning.performance()[0].extra == {"by": "eval"}
    with pytest.raises(cas.RefusedError):
        learning.low_performing(success_ratio_threshold=1.5)


@pytest.mark.parametrize(
    ("activations", "successes"), [(1, 2), (-1, 0), (1, -1), (1.0, 1), (True, 1), ("1", 1)]
)
def test_what_is_no_performance_is_refused(learning, activations, successes):
    with pytest.raises(cas.RefusedError):
        learning.set_performance(cas.PerformanceSnapshot("s", "v1", activations, successes))


@pytest.mark.parametrize("size", [10, 100_000])
def test_the_same_report_is_an_answer_and_another_of_its_id_a_conflict(learning, size):
    report = cas.SafetyReport("s", "d", "r1", {"words": "x" * size})
    first = learning.add_safety_report(report)
    before = learning.refresh()
    assert learning.add_safety_report(report) == first
    assert learning.refresh() == before
    with pytest.raises(cas.ConflictError, match="says something else"):
        learning.add_safety_report(cas.SafetyReport("s", "d", "r1", {"words": "y" * size}))
    learning.add_eval_report(cas.EvalReport("s", "d", "r1", "another kind"))
    learning.add_safety_report(cas.SafetyReport("s", "d", "r0", [size]))
    learning.compact()
    assert learning.safety_report("s", "d").report_id == "r0"
    assert learning.safety_report("s", "d", "r1").content == report.content
    assert [r.report_id for r in learning.safety_reports("s", "d")] == ["r1", "r0"]
    assert [r.content for r in learning.eval_reports("s", "d")] == ["another kind"]
    assert len(list(learning.kept_digests())) == (size > 1000)
    with pytest.raises(cas.NotFoundError):
        learning.safety_report("s", "other")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "x" * 201, "a\nb"])
def test_names_that_become_files_on_export_are_checked(learning, name):
    for report in (cas.EvalReport(name, "d", "r", 1), cas.EvalReport("s", name, "r", 1)):
        with pytest.raises(cas.NameRefusedError):
            learning.add_eval_report(report)
    with pytest.raises(cas.NameRefusedError):
        learning.add_eval_report(cas.EvalReport("s", "d", name, 1))


# --- taking in -----------------------------------------------------------------------------------


def everything(learning):
    return {
        "candidates": learning.list(),
        "audit": learning.audit(),
        "performance": learning.performance(),
        "reports": [
            report
            for kind, give in (
                (cas.SafetyReport, learning.safety_reports),
                (cas.EvalReport, learning.eval_reports),
            )
            for skill, draft in learning.drafts(kind)
            for report in give(skill, draft)
        ],
    }


@pytest.fixture
def old():
    learning = World().open()
    learning._context.id = "7" * 32
    make(learning, *(f"c{n}" for n in range(5)), reason="x" * 300)
    claim = learning.claim("c1", "w")
    learning.transition("c1", "failed", token=claim.token, payload={"n": 1})
    learning.set_performance(cas.PerformanceSnapshot("s", "v1", 3, 1))
    learning.add_safety_report(cas.SafetyReport("s", "d", "r", {"large": "x" * 9000}))
    learning.add_eval_report(cas.EvalReport("s", "d", "r", {"small": 1}))
    return everything(learning)


@pytest.mark.parametrize("part", [200, intake.PART])
def test_what_is_taken_in_is_what_it_was_and_again_changes_nothing(
    learning, old, monkeypatch, part
):
    monkeypatch.setattr(intake, "PART", part)
    taken = learning.take_in(**old)
    assert (taken.candidates, taken.audit_events, taken.performance, taken.reports) == (5, 7, 1, 2)
    learning.compact()
    before = learning.refresh()
    found = everything(learning)
    assert found["candidates"] == old["candidates"]
    assert found["audit"] == old["audit"]
    assert found["performance"] == old["performance"]
    assert [r.content for r in found["reports"]] == [r.content for r in old["reports"]]
    again = learning.take_in(**old)
    assert (again.known, again.differing) == (15, ())
    assert learning.refresh() == before
    assert learning.verify() == []
    assert not list(learning._state().scan(b"pending"))


def test_what_differs_here_stays_and_is_named(learning, old):
    learning.take_in(**old)
    learning.transition("c0", "rejected")
    old["reports"][0] = cas.SafetyReport("s", "d", "r", "else")
    event = old["audit"][0]
    old["audit"][0] = cas.AuditEvent(event.event_id, "c0", "else")
    taken = learning.take_in(**old)
    assert taken.differing == (f"audit event {event.event_id}", "safety report r on s d")
    assert taken.known == 13
    assert learning.get("c0").status == "rejected"


def test_an_import_into_the_store_that_it_came_from_adds_nothing(learning):
    make(learning, "c")
    taken = learning.take_in(**everything(learning))
    assert (taken.candidates, taken.audit_events, taken.known) == (0, 0, 2)


def test_of_what_comes_twice_one_counts(learning):
    shot = cas.PerformanceSnapshot
    taken = learning.take_in(
        candidates=[cas.Candidate("c", "first"), cas.Candidate("c", "second")],
        performance=[shot("s", "v1", 1, 0), shot("s", "v1", 2, 0)],
    )
    assert (taken.candidates, taken.performance, taken.known) == (1, 1, 1)
    assert learning.get("c").kind == "first"
    assert learning.performance()[0].activations == 2


def test_one_thing_that_cannot_be_kept_refuses_the_whole_import(learning, old):
    old["audit"].append(cas.AuditEvent("e", "c0", "type", payload=[]))
    with pytest.raises(cas.RefusedError):
        learning.take_in(**old)
    assert learning.list() == []
    assert learning.audit() == []


def test_an_import_that_dies_anywhere_leaves_nothing_and_the_next_brings_all(old, monkeypatch):
    monkeypatch.setattr(intake, "PART", 700)
    step = 0
    while True:
        world = World()
        learning = world.open(SteppingBackend(world.backend))
        actor = Actor(partial(learning.take_in, **old))
        for _ in range(step):
            actor.step()
        if actor.done:
            break
        actor.step(Order.DIE_AFTER)
        fresh = world.open()
        found = [c.candidate_id for c in fresh.list()]
        assert found in ([], [c.candidate_id for c in old["candidates"]])
        assert len(fresh.audit()) == (7 if found else 0)
        world.now += intake.ABANDONED + 1
        fresh.take_in(**old)
        assert fresh.audit() == old["audit"]
        assert not list(fresh._state().scan(b"pending"))
        assert fresh.verify() == []
        step += 1
    assert step > 20


# --- the log -------------------------------------------------------------------------------------


def test_a_store_without_a_learning_log_is_an_empty_board_until_something_is_written(learning):
    assert learning.refresh() == 0
    assert learning.list() == learning.audit() == learning.performance() == []
    assert learning.verify() == []
    assert learning.compact() is False
    assert learning.claim_next("w") is None
    make(learning, "c")
    assert len(learning.list()) == 1


def test_a_new_store_has_its_learning_log(tmp_path):
    with cas.Store.init(tmp_path / "s") as store:
        assert store.learning.refresh() == 1
        assert store.learning is store.learning
        make(store.learning, "c")
        assert store.verify().ok
    with cas.Store.open(tmp_path / "s") as store:
        assert store.learning.get("c").kind == "k"


def test_who_holds_a_candidate_is_said_where_nothing_can_be_written(learning, monkeypatch):
    make(learning, "c")
    learning.claim("c", "w", 60)

    def refused():
        raise cas.EnvironmentFailure("read-only")

    monkeypatch.setattr(learning._context.backend, "now_ns", refused)
    assert learning.lease("c").owner == "w"


def test_an_event_of_a_newer_version_is_named_as_such(world, learning):
    make(learning, "c")
    with pytest.raises(cas.NewerFormatError, match="update cas-store"):
        learning._append_all([{"type": "dreamt"}])


def test_a_table_that_an_older_log_holds_without_saying_who_set_it_holds(learning):
    table = {"open": ["queued"]}
    config = document.encode_document({"transitions": table}, "configuration")
    learning._append_all([{"type": "configured", "config": config}])
    assert learning.transitions() == table
    assert learning.transitions_history() == []
    learning.set_transitions(None, actor="maria")
    assert [change.actor for change in learning.transitions_history()] == ["maria"]
