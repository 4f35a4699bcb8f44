"""Writers, readers and compactors of one log, interleaved at every call to the backend.

They stall, fail, lose acknowledgements and die wherever the search likes; with a backend in memory
the power goes, too. The model is plain: whatever was first created as record n is record n.
"""

from __future__ import annotations

import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cas import fs
from cas.backends import LocalBackend, MemoryBackend
from cas.errors import ConflictError, DiskFullError, EnvironmentFailure, OutcomeUnknownError
from cas.eventlog import EventLog, blocks, compaction, log, segment, tiers, upkeep
from cas.eventlog.record import read_record
from cas.testing.stepping import Actor, Order, PowerCutBackend, SteppingBackend

LOGS = 3
KNOWN = 6
"""Identities kept: few, so that the search overtakes writers by more."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Make everything happen early: small blocks and pieces, few identities, no pauses."""
    monkeypatch.setattr(segment, "BLOCK", 120)
    monkeypatch.setattr(segment, "KNOWN", KNOWN)
    monkeypatch.setattr(compaction, "KNOWN", KNOWN)
    monkeypatch.setattr(blocks, "_WORTH", 100)
    monkeypatch.setattr(tiers, "_SMALLEST", 100)
    monkeypatch.setattr(upkeep, "AT_ONCE", 400)
    monkeypatch.setattr(upkeep, "STEP", 150)
    monkeypatch.setattr(upkeep, "SHARE", 0)
    monkeypatch.setattr(upkeep, "DELETIONS", 1)
    monkeypatch.setattr(upkeep, "LITTER", 4)
    monkeypatch.setattr(log, "_PAUSE", 0)
    monkeypatch.setattr(fs, "fsync", lambda fd: None)
    monkeypatch.setattr(fs, "fsync_dir", lambda directory: None)


def fold(state, event, position, index):
    token = event["token"].encode()
    if event["type"] == "claim":
        key = b"claim/" + event["name"].encode()
        if state.get(key) is not None:
            raise ConflictError(f"{event['name']} is claimed")
        state.put(key, token)
    elif event["type"] == "release":
        state.delete(b"claim/" + event["name"].encode())
    last = state.get(b"count")
    state.put(b"count", str(int(last or b"0") + 1).encode())
    key = b"done/" + token
    state.put(key, (state.get(key) or b"") + b"%d.%d;" % (position, index))


class Plain(dict):
    """The state as a plain dict."""

    def put(self, key, value):
        self[key] = value

    def delete(self, key):
        self.pop(key, None)


class Recording:
    """Remembers every key that is created, from the moment that others can see it."""

    def put_if_absent(self, key, source):
        content = source if isinstance(source, bytes) else source.read_at(0, source.tell())
        created = super().put_if_absent(key, source)
        if created:
            self.created.append((key, content))
        return created


class RecordingMemory(Recording, MemoryBackend):
    pass


class RecordingLocal(Recording, LocalBackend):
    pass


class EventLogMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.created = []  # (key, content), as it happened
        self.backend = SteppingBackend(self.make_backend())
        self.truth = {}  # position → record, as it was created first
        self.seen = 0  # how much of it is in the truth
        self.tokens = 0
        self.actors = {}  # log → (actor, what it does, its token, the position when it began)
        self.acknowledged = {}  # token → position
        self.absent = set()  # tokens that must never take effect
        self.logs = {}

    def make_backend(self):
        raise NotImplementedError

    @initialize()
    def create(self):
        first = {"type": "claim", "name": "x", "token": "first"}
        EventLog.create(self.backend, "t", fold, [first])
        self.acknowledged["first"] = 1
        self.learn()
        for which in range(LOGS):
            self.restart(which)

    def restart(self, which):
        self.logs[which] = EventLog(self.backend, "t", fold, compact_after=3)

    # --- what happens ---

    @rule(
        which=st.integers(0, LOGS - 1),
        begin=st.sampled_from(
            ["add"] * 6 + ["claim", "release", "compact", "full", "read", "check"]
        ),
        until=st.sampled_from(["put_if_absent", "sync", "end", "any", "delete", "list"]),
        order=st.sampled_from(
            [Order.GO] * 6 + [Order.LOSE] * 3 + [Order.FAIL, Order.FULL, Order.DIE, Order.DIE_AFTER]
        ),
    )
    def go_on(self, which, begin, until, order):
        """Begin something, or go on with it, up to a call of a kind; let that end as ordered."""
        if which not in self.actors:
            self.begin(which, begin)
        if which in self.actors:
            actor = self.actors[which][0]
            while not actor.done and until not in (actor.call[0], "any"):
                actor.step()
            if order is not None:
                actor.step(order)
            self.settle(which)

    @rule(which=st.integers(0, LOGS - 1), count=st.integers(1, KNOWN + 3))
    def overtake(self, which, count):
        """Let appends, and the compactions that they cause, go past whoever stands still."""
        self.finish(which)
        for _ in range(count):
            self.begin(which, "add")
            self.finish(which)

    def finish(self, which):
        if which in self.actors:
            self.actors[which][0].finish()
            self.settle(which)

    def begin(self, which, what):
        log_ = self.logs[which]
        if what == "reopen":
            self.restart(which)
        elif what == "read":
            self.start(which, what, "", lambda: self.look(which))
        elif what == "check":
            self.start(which, what, "", lambda: list(log_.check()))
        elif what in ("compact", "full"):
            self.start(which, what, "", lambda: log_.compact(full=what == "full"))
        else:
            self.begin_append(which, what)

    def begin_append(self, which, kind):
        self.tokens += 1
        token = f"t{self.tokens}"
        event = {"type": kind, "token": token}
        if kind != "add":
            event["name"] = "xyz"[self.tokens % 3]

        def decide(state, position):
            if kind == "claim" and state.get(b"claim/" + event["name"].encode()) is not None:
                raise ConflictError("claimed")
            return [event, {"type": "add", "token": token + "b"}]

        self.start(which, "append", token, lambda: self.logs[which].append(decide))

    # --- what must hold ---

    def start(self, which, what, token, work):
        known = max(self.acknowledged.values())
        self.actors[which] = (Actor(work), what, token, known)
        self.settle(which)

    def look(self, which):
        log_ = self.logs[which]
        position = log_.refresh()
        state = dict(log_.state.scan(b""))
        backwards = list(log_.state.scan(b"", reverse=True))
        return position, state, backwards, {key: log_.state.get(key) for key in state}

    def settle(self, which):
        """Compare what an actor came to with the truth, if it came to its end."""
        self.learn()
        actor, what, token, known = self.actors[which]
        if not actor.done:
            return
        del self.actors[which]
        if actor.died:
            self.restart(which)
        elif what == "append":
            self.settle_append(actor, token)
        elif actor.error is not None:
            assert isinstance(actor.error, EnvironmentFailure), actor.error
            assert actor.orders, "nothing went wrong, yet it failed"
        elif what == "read":
            self.compare(actor.result, known)
        elif what == "check":
            assert actor.result == []

    def settle_append(self, actor, token):
        error = actor.error
        if error is None:
            self.acknowledged[token] = actor.result.position
            record = self.truth[actor.result.position]
            assert record.identity == actor.result.identity
            assert record.events[0]["token"] == token
            return
        assert isinstance(error, (ConflictError, EnvironmentFailure)), error
        if isinstance(error, OutcomeUnknownError):
            overtaken = max(self.truth) - error.facts["position"] >= KNOWN
            assert overtaken or actor.orders, "it could be known"
            losing = {order for order, _, _ in actor.orders}
            once = losing == {Order.LOSE} and len(actor.orders) == 1
            assert overtaken or not (once and actor.orders[0][1] == "put_if_absent")
            return
        assert isinstance(error, ConflictError) or actor.orders, error
        if isinstance(error, DiskFullError):
            assert any(order is Order.FULL for order, _, _ in actor.orders)
        self.absent.add(token)

    def learn(self):
        for key, content in self.created[self.seen :]:
            if key.startswith("log/t/records/"):
                number = int(key.rpartition("/")[2])
                self.truth.setdefault(number, read_record(content, number))
        self.seen = len(self.created)

    def model(self, position):
        state = Plain()
        for number in range(1, position + 1):
            for index, event in enumerate(self.truth[number].events):
                fold(state, event, number, index)
        return state

    def compare(self, looked, known):
        position, state, backwards, gotten = looked
        assert position >= known, "what was acknowledged before is not there"
        assert state == self.model(position)
        assert state == gotten
        assert list(state) == sorted(state)
        assert backwards == list(reversed(state.items()))

    @invariant()
    def everything_acknowledged_is_there_once(self):
        done = {}
        for number, record in self.truth.items():
            for event in record.events:
                assert event["token"] not in done, "applied twice"
                done[event["token"]] = number
        for token, position in self.acknowledged.items():
            assert done[token] == position
        assert not self.absent & done.keys(), "refused, yet applied"

    def teardown(self):
        for actor, *_ in self.actors.values():
            actor.kill()
        self.actors.clear()
        if not self.logs:
            return
        self.learn()
        log_ = EventLog(self.backend, "t", fold)
        assert list(log_.check()) == []
        self.logs[0] = log_
        self.compare(self.look(0), max(self.acknowledged.values()))
        assert log_.position == max(self.truth)
        log_.append(lambda state, position: [{"type": "add", "token": "last"}])
        assert list(log_.check()) == []


class MemoryMachine(EventLogMachine):
    def make_backend(self):
        memory = RecordingMemory()
        memory.created = self.created
        self.disk = PowerCutBackend(memory)
        return self.disk

    @rule(data=st.data())
    @precondition(lambda self: self.actors)
    def cut_the_power(self, data):
        for actor, *_ in self.actors.values():
            actor.kill()
        self.actors.clear()
        self.learn()
        self.disk.cut(lambda choices: data.draw(st.sampled_from(choices)))
        for which in range(LOGS):
            self.restart(which)
        assert list(self.logs[0].check()) == []
        looked = self.look(0)
        # What nobody was told of may be gone; then it never was.
        self.truth = {n: record for n, record in self.truth.items() if n <= looked[0]}
        self.compare(looked, max(self.acknowledged.values()))


class LocalMachine(EventLogMachine):
    def make_backend(self):
        self.folder = tempfile.mkdtemp(prefix="cas-test-")
        backend = RecordingLocal(self.folder, create=True)
        backend.created = self.created
        return backend

    def teardown(self):
        try:
            super().teardown()
        finally:
            self.backend.inner.close()
            shutil.rmtree(self.folder)


SETTINGS = settings(
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class TestInMemory(MemoryMachine.TestCase):
    settings = SETTINGS


class TestOnDisk(LocalMachine.TestCase):
    settings = SETTINGS
