"""Several stores open on one learning log: any interleaving, lost leases, faults, power cuts.

The model is plain: it goes through the records as they were first created and holds each event
against rules of its own, so that what the log let through is checked independently of the fold.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cas.backends import MemoryBackend
from cas.catalogue.context import Context
from cas.errors import (
    AlreadyDraftedError,
    BeingSynthesizedError,
    ConflictError,
    EnvironmentFailure,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
    UnknownCandidateError,
)
from cas.eventlog import log, segment, tiers, upkeep
from cas.eventlog.record import read_record
from cas.learning import Candidate, Learning, PerformanceSnapshot, SafetyReport
from cas.learning.document import decode_document
from cas.refs import create_catalogue, open_catalogue
from cas.testing.stepping import Actor, Order, PowerCutBackend, SteppingBackend

SECOND = 10**9
STORES = 3
IDS = ["a", "b", "c", "d"]
KINDS = ["merge_skills", "other"]
DRAFTED = {"draft_ready", "in_review", "approved", "published"}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Make everything happen early, without pauses."""
    monkeypatch.setattr(segment, "BLOCK", 200)
    monkeypatch.setattr(tiers, "_SMALLEST", 400)
    monkeypatch.setattr(upkeep, "AT_ONCE", 600)
    monkeypatch.setattr(upkeep, "STEP", 3000)
    monkeypatch.setattr(log, "_PAUSE", 0)


class Model:
    """What the records say, by rules of its own."""

    def __init__(self):
        self.candidates = {}  # id → its fields, in the order in which they were recorded
        self.held = {}  # id → (token, owner, expires, status before)
        self.audit = []  # (candidate, type, actor, from, to, token, forced)
        self.performance = {}
        self.reports = []
        self.tokens = [0]

    def apply(self, event, position, ordinal):
        getattr(self, f"_{event['type']}")(event, position, ordinal)

    def _init(self, event, position, ordinal):
        assert (position, ordinal) == (1, 0)

    def _recorded(self, event, position, ordinal):
        assert event["id"] not in self.candidates, "recorded twice"
        self.candidates[event["id"]] = {
            "kind": event["kind"],
            "status": event["status"],
            "draft_id": event.get("draft_id"),
            **decode_document(event["body"]),
        }
        self.told(event, "candidate_recorded", None, event["status"])

    def _changed(self, event, position, ordinal):
        candidate, held = self.candidates[event["id"]], self.held.get(event["id"])
        token, forced = event.get("token"), event.get("forced") is True
        before, to = candidate["status"], event.get("to", candidate["status"])
        if not forced:
            assert token is None or (held and held[0] == token), "a stale token was taken"
            if held and to != before:
                assert token == held[0], "moved by somebody who does not hold it"
        candidate["status"] = to
        candidate.update(decode_document(event.get("set", b"{}")))
        if to != before:
            self.held.pop(event["id"], None)
        self.told(event, event["event_type"], before, to)

    def _claimed(self, event, position, ordinal):
        candidate, held = self.candidates[event["id"]], self.held.get(event["id"])
        assert self.free(event["id"], event["now"]) or event.get("forced") is True, "two holders"
        token = position * 10_000 + ordinal
        assert token > max(self.tokens), "a token that is not larger"
        self.tokens.append(token)
        before = held[3] if held else candidate["status"]
        self.held[event["id"]] = (token, event["owner"], event["now"] + event["lease"], before)
        self.told(event, "candidate_synthesizing", candidate["status"], "synthesizing", token=token)
        candidate["status"] = "synthesizing"

    def _renewed(self, event, position, ordinal):
        token, owner, expires, before = self.held[event["id"]]
        assert token == event["token"]
        expires = max(expires, event["now"] + event["lease"])
        self.held[event["id"]] = (token, owner, expires, before)

    def _released(self, event, position, ordinal):
        token, _, _, before = self.held.pop(event["id"])
        assert token == event["token"]
        candidate = self.candidates[event["id"]]
        self.told(event, "candidate_released", candidate["status"], before)
        candidate["status"] = before

    def _audited(self, event, position, ordinal):
        assert event["id"] in self.candidates
        self.told(event, event["event_type"], None, None)

    def _performance(self, event, position, ordinal):
        self.performance[event["skill_name"], event["version"]] = decode_document(event["body"])

    def _report(self, event, position, ordinal):
        assert event["id"] not in [report[0] for report in self.reports]
        self.reports.append((event["id"], decode_document(event["content"])))

    def told(self, event, what, before, to, token=None):
        actor = event.get("actor") or event.get("owner")
        token = event.get("token", token)
        self.audit.append((event["id"], what, actor, before, to, token, "forced" in event))

    def free(self, candidate_id, now):
        """Say whether a candidate could be claimed."""
        candidate, held = self.candidates[candidate_id], self.held.get(candidate_id)
        if held:
            return held[2] <= now
        if candidate["status"] == "synthesizing":
            return True
        return candidate["status"] not in DRAFTED and candidate["draft_id"] is None

    def next(self, now, kind):
        free = [
            name
            for name, candidate in self.candidates.items()
            if self.free(name, now) and kind in (None, candidate["kind"])
        ]
        over = [name for name in free if self.candidates[name]["status"] == "synthesizing"]
        over.sort(key=lambda name: self.held[name][2] if name in self.held else 0)
        return over + [name for name in free if self.candidates[name]["status"] == "open"]


class Recording(MemoryBackend):
    """Remembers every record that is created, from the moment that others can see it."""

    def put_if_absent(self, key, source):
        created = super().put_if_absent(key, source)
        if created and key.startswith("log/learning/records/"):
            self.created.append((int(key.rpartition("/")[2]), self.get(key)))
        return created


class LearningMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = 10**18
        self.memory = Recording(clock=lambda: self.now)
        self.memory.created = []
        self.seen = 0
        self.disk = PowerCutBackend(self.memory)
        create_catalogue(self.disk, [{"type": "init", "store_id": "1" * 32, "created_at": ""}])
        self.backend = SteppingBackend(self.disk)
        self.truth = {}  # position → record, as it was created first
        self.acknowledged = set()  # (position, identity)
        self.claims = []  # (id, token), as they were won
        self.actors = {}
        self.count = 0
        self.stores = [self.open() for _ in range(STORES)]

    def open(self):
        context = Context(Path("memory"), "1" * 32, self.backend, open_catalogue(self.backend))
        return Learning(context)

    @initialize()
    def begin(self):
        # A store of a time before learning: the first write makes the log.
        assert self.stores[0].list() == []
        with pytest.raises(UnknownCandidateError):
            self.stores[1].claim("a", "me")
        for n, name in enumerate(IDS[:-1]):
            self.stores[n % STORES].record(Candidate(name, KINDS[n % 2]))

    # --- the truth -------------------------------------------------------------------------------

    def learn(self):
        for number, content in self.memory.created[self.seen :]:
            self.truth.setdefault(number, read_record(content, number))
        self.seen = len(self.memory.created)

    def model(self, position=None):
        self.learn()
        model = Model()
        for number in sorted(self.truth):
            if position is None or number <= position:
                for ordinal, event in enumerate(self.truth[number].events):
                    model.apply(event, number, ordinal)
        return model

    # --- one after the other, held against what the model expects --------------------------------

    @rule(which=st.integers(0, STORES - 1), name=st.sampled_from(IDS), kind=st.sampled_from(KINDS))
    def record(self, which, name, kind):
        self.finish()
        model = self.model()
        candidate = Candidate(name, kind, extra={"n": self.count})
        if name in model.candidates:
            with pytest.raises(ConflictError):
                self.stores[which].record(candidate)
            assert self.stores[which].record_if_absent(candidate)[1] is False
        elif self.count % 2:
            assert self.stores[which].record(candidate).kind == kind
        else:
            assert self.stores[which].record_if_absent(candidate)[1] is True
        self.count += 1

    @rule(
        which=st.integers(0, STORES - 1),
        name=st.sampled_from(IDS),
        lease=st.sampled_from([1, 5, 100]),
        force=st.sampled_from([False, False, False, True]),
    )
    def claim(self, which, name, lease, force):
        self.finish()
        model = self.model()
        store = self.stores[which]
        if name not in model.candidates:
            with pytest.raises(UnknownCandidateError):
                store.claim(name, f"w{which}", lease, force=force)
        elif model.free(name, self.now) or force:
            claim = store.claim(name, f"w{which}", lease, force=force)
            self.won(model, claim, lease)
        else:
            with pytest.raises((BeingSynthesizedError, AlreadyDraftedError)) as refused:
                store.claim(name, f"w{which}", lease)
            drafted = isinstance(refused.value, AlreadyDraftedError)
            assert drafted == (model.candidates[name]["status"] != "synthesizing")
            if not drafted:
                assert refused.value.facts["owner"] == model.held[name][1]

    @rule(
        which=st.integers(0, STORES - 1),
        count=st.integers(1, 3),
        kind=st.sampled_from([None, None, *KINDS]),
        then=st.sampled_from(["work", "work", "release", "failed", "open"]),
    )
    def claim_next(self, which, count, kind, then):
        self.finish()
        model = self.model()
        expected = model.next(self.now, kind)[:count]
        if count == 1:
            claim = self.stores[which].claim_next(f"w{which}", 5, kind=kind)
            claims = [] if claim is None else [claim]
        else:
            claims = self.stores[which].claim_many(count, f"w{which}", 5, kind=kind)
        assert [claim.candidate.candidate_id for claim in claims] == expected
        for claim in claims:
            self.won(model, claim, 5)
            if then == "release":
                self.stores[which].release(claim.candidate.candidate_id, claim.token)
            elif then != "work":
                name = claim.candidate.candidate_id
                self.stores[0].transition(name, then, token=claim.token)

    def won(self, model, claim, lease):
        name = claim.candidate.candidate_id
        assert claim.token > max(model.tokens)
        after = self.model()
        assert after.held[name][0] == claim.token
        assert after.held[name][2] == self.now + lease * SECOND
        assert claim.candidate == self.stores[0].get(name)
        self.claims.append((name, claim.token))

    @precondition(lambda self: self.claims)
    @rule(
        which=st.integers(0, STORES - 1),
        pick=st.integers(0, 100),
        what=st.sampled_from(["renew", "release", "draft_ready", "failed", "open", "update"]),
    )
    def use_token(self, which, pick, what):
        self.finish()
        model = self.model()
        name, token = self.claims[-1 - pick % len(self.claims)]
        store, held = self.stores[which], model.held.get(name)

        def go():
            if what == "renew":
                return store.renew(name, token, 50)
            if what == "release":
                return store.release(name, token)
            if what == "update":
                return store.update(name, token=token, note=self.count)
            draft = {"draft_id": "d"} if what == "draft_ready" else {}
            return store.transition(name, what, token=token, **draft)

        if held and held[0] == token:
            go()
            if what in ("draft_ready", "failed", "open"):
                last = store.audit(name)[-1]
                assert (last.to_status, last.token, last.actor) == (what, token, held[1])
                assert store.lease(name) is None
        else:
            with pytest.raises(LeaseLostError):
                go()
        self.count += 1

    @rule(
        which=st.integers(0, STORES - 1),
        name=st.sampled_from(IDS),
        status=st.sampled_from(["open", "failed", "synthesizing", "rejected", "approved"]),
        force=st.booleans(),
    )
    def transition(self, which, name, status, force):
        self.finish()
        model = self.model()
        store = self.stores[which]
        if name not in model.candidates:
            with pytest.raises(UnknownCandidateError):
                store.transition(name, status, force=force)
        elif name in model.held and not force and status != "synthesizing":
            with pytest.raises(BeingSynthesizedError):
                store.transition(name, status)
        else:
            store.transition(name, status, force=force, payload={"forced": not force})
            last = store.audit(name)[-1]
            assert last.forced is force
            assert last.payload == {"forced": not force}

    @rule(which=st.integers(0, STORES - 1), name=st.sampled_from(IDS), n=st.integers(0, 3))
    def note(self, which, name, n):
        self.finish()
        store = self.stores[which]
        store.set_performance(PerformanceSnapshot(name, str(n), 4, n))
        if f"{name}{n}" in [report for report, _ in self.model().reports]:
            return
        report = SafetyReport("s", "d", f"{name}{n}", {"n": n})
        assert store.add_safety_report(report).content == {"n": n}
        assert store.safety_report("s", "d", f"{name}{n}").content == {"n": n}
        with pytest.raises(ConflictError):
            store.add_safety_report(SafetyReport("s", "d", f"{name}{n}", {"n": -1}))
        try:
            told = store.append_audit(name, "noted", {"n": n})
        except UnknownCandidateError:
            assert name not in self.model().candidates
        else:
            assert told.payload == {"n": n}

    @rule(seconds=st.sampled_from([1, 4, 60]))
    def wait(self, seconds):
        self.now += seconds * SECOND

    @rule(which=st.integers(0, STORES - 1))
    def reopen(self, which):
        if which not in self.actors:
            self.stores[which] = self.open()

    @rule(which=st.integers(0, STORES - 1), full=st.booleans())
    def compact(self, which, full):
        self.finish()
        self.stores[which].compact(full=full)

    # --- beside each other, with faults ----------------------------------------------------------

    @rule(
        steps=st.lists(
            st.tuples(
                st.integers(0, STORES - 1),
                st.sampled_from(
                    ["claim", "claim", "next", "draft", "record", "release", "compact"]
                ),
                st.sampled_from(IDS),
                st.sampled_from(["put_if_absent", "end", "any", "delete", "list"]),
                st.sampled_from([Order.GO] * 5 + [Order.LOSE, Order.FAIL, Order.DIE]),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def go_on(self, steps):
        """Begin things, or go on with them, up to calls of a kind; let those end as ordered."""
        for which, what, name, until, order in steps:
            if which not in self.actors:
                self.actors[which] = Actor(self.work(which, what, name))
            actor = self.actors[which]
            while not actor.done and until not in (actor.call[0], "any"):
                actor.step()
            actor.step(order)
            self.settle(which)

    def work(self, which, what, name):
        store, owner = self.stores[which], f"w{which}"
        token = self.claims[-1][1] if self.claims else 7
        return {
            "claim": lambda: [store.claim(name, owner, 5)],
            "next": lambda: store.claim_many(2, owner, 5),
            "draft": lambda: store.transition(name, "failed", token=token),
            "release": lambda: store.release(name, token),
            "record": lambda: store.record(Candidate(name, "other")),
            "compact": store.compact,
        }[what]

    def settle(self, which):
        actor = self.actors[which]
        if not actor.done:
            return
        del self.actors[which]
        if actor.died:
            self.stores[which] = self.open()
            return
        if isinstance(actor.error, EnvironmentFailure):
            assert actor.orders or isinstance(actor.error, OutcomeUnknownError), actor.error
        elif actor.error is not None:
            assert isinstance(actor.error, (ConflictError, NotFoundError)), actor.error
        elif isinstance(actor.result, list):
            # Told to have won: so the log says, at the place that is the token.
            self.learn()
            for claim in actor.result:
                record = self.truth[claim.token // 10_000]
                event = record.events[claim.token % 10_000]
                assert (event["type"], event["owner"]) == ("claimed", f"w{which}")
                assert event["id"] == claim.candidate.candidate_id
                self.claims.append((event["id"], claim.token))
                self.acknowledged.add((record.number, record.identity))

    def finish(self):
        for which in list(self.actors):
            self.actors[which].finish()
            self.settle(which)

    @rule(data=st.data())
    def cut_the_power(self, data):
        for actor in self.actors.values():
            actor.kill()
        self.actors.clear()
        self.learn()
        self.disk.cut(lambda choices: data.draw(st.sampled_from(choices)))
        self.stores = [self.open() for _ in range(STORES)]
        # What nobody was told of may be gone; then it never was.
        last = self.stores[0].refresh()
        self.truth = {n: record for n, record in self.truth.items() if n <= last}
        for number, identity in self.acknowledged:
            assert self.truth[number].identity == identity, "what was acknowledged is lost"

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def what_a_store_says_is_what_the_records_say(self):
        if self.actors:
            self.model()  # its own rules hold
            return
        store = self.stores[0]
        model = self.model()
        told = store.list()
        assert [candidate.candidate_id for candidate in told] == list(model.candidates)
        for candidate in told:
            fields = candidate.to_dict()
            expected = model.candidates[candidate.candidate_id]
            assert {name: fields[name] for name in expected} == expected
        self.indexes_agree(store, model)
        self.audit_replays(store, model)
        held = {c.candidate_id: store.lease(c.candidate_id) for c in told}
        owners = {name: lease.owner for name, lease in held.items() if lease}
        assert owners == {name: owner for name, (_, owner, _, _) in model.held.items()}
        for name, (_, _, expires, _) in model.held.items():
            assert held[name].live == (expires > self.now)
        assert [r.report_id for r in store.safety_reports("s", "d")] == [
            name for name, _ in model.reports
        ]
        assert len(store.performance()) == len(model.performance)

    def indexes_agree(self, store, model):
        statuses = [candidate["status"] for candidate in model.candidates.values()]
        assert store.counts() == {status: statuses.count(status) for status in statuses}
        for status in {c["status"] for c in model.candidates.values()} | {"open"}:
            for kind in [None, *KINDS]:
                assert [c.candidate_id for c in store.list(status, kind)] == [
                    name
                    for name, c in model.candidates.items()
                    if c["status"] == status and kind in (None, c["kind"])
                ]
        for kind in KINDS:
            assert [c.candidate_id for c in store.list(kind=kind)] == [
                name for name, c in model.candidates.items() if c["kind"] == kind
            ]

    def audit_replays(self, store, model):
        events = store.audit()
        assert [_shape(event) for event in events] == model.audit
        status = {}
        for event in events:
            if event.to_status is not None:
                assert status.get(event.candidate_id) == event.from_status
                status[event.candidate_id] = event.to_status
        assert status == {name: c["status"] for name, c in model.candidates.items()}
        for name in model.candidates:
            own = [event for event in events if event.candidate_id == name]
            assert store.audit(name) == own

    def teardown(self):
        for actor in self.actors.values():
            actor.kill()
        self.actors.clear()
        self.what_a_store_says_is_what_the_records_say()
        assert self.stores[0].verify() == []


def _shape(event):
    return (
        event.candidate_id,
        event.event_type,
        event.actor,
        event.from_status,
        event.to_status,
        event.token,
        event.forced,
    )


class TestLearning(LearningMachine.TestCase):
    settings = settings(
        stateful_step_count=40,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
