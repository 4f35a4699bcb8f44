"""Publishers, readers and givers-up at one store, stopped at every record: one version or none.

Actors stand before each record that they are about to create, in either log, for as long as the
machine likes; they lose acknowledgements, fail or die there. The clock passes the patience of those
who wait, and others change the skills meanwhile.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cas.backends import MemoryBackend
from cas.catalogue.context import Context
from cas.catalogue.versions import Versions
from cas.errors import (
    BeingPublishedError,
    ConflictError,
    EnvironmentFailure,
    OutcomeUnknownError,
)
from cas.eventlog import log
from cas.learning import Candidate, Learning
from cas.learning.keys import PUBLISHING
from cas.learning.settling import PATIENCE
from cas.refs import create_catalogue, open_catalogue
from cas.testing.stepping import Actor, Order, PowerCutBackend, SteppingBackend
from cas.testing.strategies import materialise

SKILLS = ["a", "b"]
CANDIDATES = {"a1": "a", "a2": "a", "b1": "b"}
EXAMPLES = 400 if os.environ.get("CAS_SOAK") else 40
PHASES = [phase for phase in Phase if phase is not Phase.shrink]
"""Without shrinking, which takes minutes: every step of an example reads the store anew."""
ORDERS = [Order.FAIL, Order.LOSE, Order.DIE, Order.DIE_AFTER, Order.FULL]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(log, "_PAUSE", 0)


class World:
    """One store in memory, seen by any number of processes."""

    def __init__(self, candidates=CANDIDATES):
        self.now = 10**18
        self.disk = PowerCutBackend(MemoryBackend(clock=lambda: self.now))
        self.backend = SteppingBackend(self.disk)
        create_catalogue(self.backend, [{"type": "init", "store_id": "1" * 32}])
        versions, learning = self.open()
        with tempfile.TemporaryDirectory() as home:
            skill = {b"SKILL.md": ("file", b"first")}
            materialise({name.encode(): skill for name in SKILLS}, Path(home) / "skills")
            drafts = {name.encode(): {b"SKILL.md": ("file", name.encode())} for name in CANDIDATES}
            materialise(drafts, Path(home) / "drafts")
            versions.add("skills", Path(home) / "skills")
            versions.add("drafts", Path(home) / "drafts")
        for name in candidates:
            extra = {"base": f"skills@v1:{CANDIDATES[name]}"}
            learning.record(Candidate(name, "improve", extra=extra))
            learning.draft(name, f"drafts@v1:{name}")

    def open(self):
        """Return the versions and the learning side as a process that begins sees them."""
        context = Context(Path("memory"), "1" * 32, self.backend, open_catalogue(self.backend))
        return Versions(context), Learning(context)

    def made(self, name):
        """Return the numbers of the versions that say they are from a candidate."""
        versions, _ = self.open()
        return [v.number for v in versions.list("skills") if v.meta.get("candidate") == name]

    def publishing(self, name):
        """A process that publishes."""
        _, learning = self.open()
        return Actor(lambda: learning.publish(name))

    def check_settled(self, name):
        """See that a candidate agrees with the versions, and nothing is under way."""
        _, learning = self.open()
        candidate = learning.get(name)
        numbers = self.made(name)
        published = candidate.extra.get("published_as")
        assert len(numbers) <= 1
        assert [published] == ([f"skills@v{n}" for n in numbers] or [None])
        assert candidate.status == ("published" if numbers else "draft_ready")
        assert not list(learning._state().scan(PUBLISHING))
        kinds = [event.event_type for event in learning.audit(name)]
        assert kinds.count("candidate_published") == len(numbers)
        ends = kinds.count("candidate_published") + kinds.count("publication_refused")
        assert kinds.count("candidate_publishing") == ends


def to_record(actor):
    """Let an actor go on to the next record or sync of one."""
    while not actor.done and not (
        actor.call[0] in ("put_if_absent", "sync") and "/records/" in actor.call[1]
    ):
        actor.step()


def to_catalogue(actor):
    """Let an actor go on until it is about to decide."""
    to_record(actor)
    while actor.call[1].startswith("log/learning/"):
        actor.step()
        to_record(actor)
    assert actor.call[0] == "put_if_absent"


class PublishingMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.world = World()
        self.actors = []  # (candidate, actor)
        self.others = 0

    @initialize()
    def begin(self):
        for name in CANDIDATES:
            self.world.check_settled(name)

    @precondition(lambda self: len(self.actors) < 3)
    @rule(
        name=st.sampled_from([*CANDIDATES, "a1"]),
        what=st.sampled_from(["publish", "publish", "publish", "publish", "claim", "update"]),
    )
    def start(self, name, what):
        _, learning = self.world.open()
        work = {
            "publish": lambda: learning.publish(name, "by an actor"),
            "claim": lambda: learning.claim(name, "me"),
            "update": lambda: learning.update(name, note="seen"),
        }[what]
        actor = Actor(work)
        to_record(actor)
        self.actors.append((name, actor))
        self.look_at_results()

    @precondition(lambda self: self.actors)
    @rule(pick=st.integers(0, 3), log=st.sampled_from(["", "", "log/catalogue/"]))
    def go_on(self, pick, log):
        """Let an actor go on to its next record, or to the next that it puts into a log."""
        _, actor = self.actors[pick % len(self.actors)]
        actor.step()
        to_record(actor)
        while log and not actor.done and not actor.call[1].startswith(log):
            actor.step()
            to_record(actor)
        self.look_at_results()

    @precondition(lambda self: self.actors)
    @rule(pick=st.integers(0, 3), order=st.sampled_from(ORDERS))
    def trip(self, pick, order):
        _, actor = self.actors[pick % len(self.actors)]
        actor.step(order)
        to_record(actor)
        self.look_at_results()

    @rule(patient=st.booleans())
    def look(self, patient):
        if not patient:
            self.world.now += PATIENCE + 1
        self.world.open()[1].list()

    @rule(skill=st.sampled_from([*SKILLS, "c", "c", "c", "c"]))
    def change_a_skill(self, skill):
        versions, _ = self.world.open()
        self.others += 1
        with tempfile.TemporaryDirectory() as home:
            content = b"%d" % self.others
            materialise({b"SKILL.md": ("file", content)}, Path(home) / "skill")
            versions.edit("skills@latest", put={f"{skill}/SKILL.md": f"{home}/skill/SKILL.md"})

    @precondition(lambda self: self.actors)
    @rule(choose=st.randoms(use_true_random=False))
    def cut_power(self, choose):
        for _, actor in self.actors:
            actor.kill()
        self.actors = []
        self.world.disk.cut(choose.choice)

    def look_at_results(self):
        """Hold what actors that are done say against what is there."""
        for name, actor in self.actors:
            if actor.done and actor.error is not None:
                excused = (EnvironmentFailure, OutcomeUnknownError, ConflictError)
                if not isinstance(actor.error, excused):
                    raise actor.error
            if actor.done and hasattr(actor.result, "version"):
                assert self.world.made(name) == [actor.result.version.number]
                assert actor.result.candidate.status == "published"
        self.actors = [(name, actor) for name, actor in self.actors if not actor.done]

    @invariant()
    def at_most_one_version_each(self):
        for name in CANDIDATES:
            assert len(self.world.made(name)) <= 1

    def teardown(self):
        for _, actor in self.actors:
            actor.finish()
        self.look_at_results()
        self.world.now += PATIENCE + 1
        for name in CANDIDATES:
            self.world.check_settled(name)
        for name in CANDIDATES:
            before = self.world.made(name)
            _, learning = self.world.open()
            try:
                published = learning.publish(name)
            except ConflictError as error:
                refused = str(error)
            else:
                assert published.unchanged == bool(before)
                assert self.world.made(name) == [published.version.number]
                continue
            assert "cannot be published" in refused  # the skill was changed
            assert not before
            self.world.check_settled(name)


@pytest.mark.timeout(1200)
def test_one_version_or_none_whatever_happens_between_the_steps():
    run_state_machine_as_test(
        PublishingMachine,
        settings=settings(max_examples=EXAMPLES, stateful_step_count=25, phases=PHASES),
    )


def test_a_publisher_that_wakes_up_after_it_was_given_up_makes_no_version():
    world = World(["a1"])
    late = world.publishing("a1")
    to_catalogue(late)
    world.now += PATIENCE + 1
    _, other = world.open()
    assert other.get("a1").status == "draft_ready"
    assert "publish it again" in other.get("a1").last_error
    late.finish()
    assert isinstance(late.error, ConflictError)
    assert world.made("a1") == []
    world.check_settled("a1")
    assert other.publish("a1").unchanged is False
    world.check_settled("a1")


def test_nobody_gives_up_for_a_publisher_that_may_be_at_it():
    world = World(["a1"])
    slow = world.publishing("a1")
    to_catalogue(slow)
    _, other = world.open()
    assert other.get("a1").status == "draft_ready"
    with pytest.raises(BeingPublishedError):
        other.claim("a1", "me", force=True)
    slow.finish()
    assert slow.error is None
    assert world.made("a1") == [2]


def test_who_publishes_what_another_began_finishes_it_and_both_name_the_version():
    world = World(["a1"])
    first = world.publishing("a1")
    to_catalogue(first)
    _, other = world.open()
    second = other.publish("a1", "other words")
    assert (second.version.spec, second.version.description) == ("skills@v2", "")
    assert second.unchanged is True
    first.finish()
    assert first.result.version == second.version
    assert first.result.unchanged is False
    world.check_settled("a1")


def test_the_second_of_two_publishers_at_one_resource_builds_on_the_first():
    world = World(["a1", "b1"])
    first, second = world.publishing("a1"), world.publishing("b1")
    to_catalogue(first)
    to_catalogue(second)
    first.finish()
    second.finish()
    versions, _ = world.open()
    assert (first.result.version.number, second.result.version.number) == (2, 3)
    assert versions.get("skills", 3).parents == (first.result.version.digest,)


def test_a_skill_that_was_changed_since_is_a_conflict_by_name():
    world = World(["a1", "a2"])
    _, learning = world.open()
    learning.publish("a1")
    with pytest.raises(ConflictError, match=r"a was changed between skills@v1 and skills@v2"):
        learning.publish("a2")
    assert learning.get("a2").status == "draft_ready"
    assert "skills@v2:a" in learning.get("a2").last_error
    learning.update("a2", base="skills@v2:a")
    with pytest.raises(ConflictError, match="another one now"):
        learning.publish("a2")
    learning.draft("a2", "drafts@v1:a2")
    assert learning.publish("a2").version.spec == "skills@v3"
    world.check_settled("a2")
