"""The whole store against a plain model: whatever is done in whatever order, names hold.

The model keeps directories as dictionaries and numbers as lists. Between any two steps the store
may be closed and opened, its log compacted and its packs merged.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import cas
from cas.testing.runs import record_run
from cas.testing.stores import read_state
from cas.testing.strategies import files, materialise, read_back, trees

RESOURCES = st.sampled_from(["skills", "questions/generated"])
NAMES = st.sampled_from(["one", "two", "three"])
SMALL = trees(max_leaves=6, max_size=60)


@dataclass
class Kept:
    """A version or seed of the model."""

    state: dict
    digest: bytes
    parents: tuple
    removed: bool = False


class Catalogue(RuleBasedStateMachine):
    @initialize()
    def make(self):
        self.home = Path(tempfile.mkdtemp())
        self.store = cas.Store.init(self.home / "store")
        self.versions: dict[str, list[Kept]] = {}
        self.seeds: dict[str, Kept] = {}
        self.tags: dict[str, bytes] = {}
        self.moves: dict[str, int] = {}
        self.count = 0

    def teardown(self):
        for spec, kept in self.live():
            assert read_state(self.store, spec) == kept.state
        report = self.store.verify()
        assert report.ok, report.problems
        self.store.close()
        shutil.rmtree(self.home)

    def fresh(self):
        self.count += 1
        return self.home / f"f{self.count}"

    def live(self):
        """Return the specs that name something now, with what they name."""
        found = [
            (f"{resource}@v{number}", kept)
            for resource, numbers in self.versions.items()
            for number, kept in enumerate(numbers, 1)
            if not kept.removed
        ]
        return found + [(f"seed:{name}", s) for name, s in self.seeds.items() if not s.removed]

    def newest(self, resource):
        return next((k for k in reversed(self.versions.get(resource, [])) if not k.removed), None)

    def took(self, added, resource, state, parents):
        numbers = self.versions.setdefault(resource, [])
        assert added.number == len(numbers) + 1
        assert added.parents == parents
        numbers.append(Kept(state, added.digest, added.parents))

    @rule(resource=RESOURCES, tree=SMALL, if_changed=st.booleans())
    def add(self, resource, tree, if_changed):
        folder = self.fresh()
        materialise(tree, folder)
        newest = self.newest(resource)
        added = self.store.versions.add(resource, folder, if_changed=if_changed)
        if if_changed and newest is not None and newest.state == tree:
            assert added.unchanged
            assert added.digest == newest.digest
        else:
            assert not added.unchanged
            self.took(added, resource, tree, (newest.digest,) if newest else ())

    @precondition(lambda self: self.live())
    @rule(resource=RESOURCES, data=st.data())
    def add_an_older_state(self, resource, data):
        spec, kept = data.draw(st.sampled_from(self.live()))
        added = self.store.versions.add(resource, spec, parent=spec)
        assert added.new_bytes == 0
        self.took(added, resource, kept.state, (kept.digest,))

    @precondition(lambda self: any(not s.startswith("seed:") for s, _ in self.live()))
    @rule(data=st.data(), node=files(40), deep=st.booleans())
    def edit(self, data, node, deep):
        spec, kept = data.draw(
            st.sampled_from([x for x in self.live() if not x[0].startswith("seed:")])
        )
        state = copy.deepcopy(kept.state)
        removals = []
        if state:
            name = data.draw(st.sampled_from(sorted(state)))
            del state[name]
            removals.append(name)
        place = b"edited" + (b"/deep" if deep else b"")
        source = self.fresh()
        kind, content = node if node[0] != "symlink" else ("file", node[1])
        source.write_bytes(content)
        source.chmod(0o755 if kind == "exec" else 0o644)
        if deep:
            below = state.setdefault(b"edited", {})
            possible = isinstance(below, dict) and not isinstance(below.get(b"deep"), dict)
        else:
            possible = not isinstance(state.get(b"edited"), dict)
        change = {
            "put": {place.decode(): source},
            "remove": [path.decode("utf-8", "surrogateescape") for path in removals],
        }
        if not possible:
            with pytest.raises(cas.RefusedError):
                self.store.versions.edit(spec, **change)
            return
        (below if deep else state)[b"deep" if deep else b"edited"] = (kind, content)
        edited = self.store.versions.edit(spec, **change)
        self.took(edited, spec.rpartition("@")[0], state, (kept.digest,))

    @rule(resource=RESOURCES, number=st.integers(1, 6))
    def remove_or_undelete_a_version(self, resource, number):
        spec = f"{resource}@v{number}"
        numbers = self.versions.get(resource, [])
        if number > len(numbers):
            for change in (self.store.versions.remove, self.store.versions.undelete):
                with pytest.raises(cas.NotFoundError):
                    change(spec)
            return
        kept = numbers[number - 1]
        if kept.removed:
            with pytest.raises(cas.NotFoundError):
                self.store.versions.remove(spec)
            assert self.store.versions.undelete(spec).digest == kept.digest
        else:
            with pytest.raises(cas.ConflictError):
                self.store.versions.undelete(spec)
            assert self.store.versions.remove(spec).digest == kept.digest
        kept.removed = not kept.removed

    @rule(name=NAMES, skills=SMALL, prompts=SMALL, reuse=st.booleans())
    def create_a_seed(self, name, skills, prompts, reuse):
        folder = self.fresh()
        materialise({b"s": skills, b"p": prompts}, folder)
        record_run(folder / "db", "r1")
        asked = {
            "skills": folder / "s",
            "prompts": folder / "p",
            "baseline": folder / "db",
            "baseline_run_id": "r1",
            "reuse_name": reuse,
        }
        known = self.seeds.get(name)
        if known is not None and not (known.removed and reuse):
            with pytest.raises(cas.ConflictError):
                self.store.seeds.create(name, **asked)
            return
        seed = self.store.seeds.create(name, **asked)
        state = read_state(self.store, f"seed:{name}")
        assert state[b"skills"] == {b"v1": skills}
        assert state[b"prompts"] == {b"v1": prompts}
        self.seeds[name] = Kept(state, seed.digest, ())

    @rule(name=NAMES)
    def remove_or_undelete_a_seed(self, name):
        known = self.seeds.get(name)
        if known is None:
            with pytest.raises(cas.NotFoundError):
                self.store.seeds.remove(name)
            return
        change = self.store.seeds.undelete if known.removed else self.store.seeds.remove
        assert change(name).digest == known.digest
        known.removed = not known.removed

    @precondition(lambda self: any(not s.removed for s in self.seeds.values()))
    @rule(data=st.data(), name=NAMES, evolved=SMALL)
    def promote(self, data, name, evolved):
        origin = data.draw(st.sampled_from([n for n, s in self.seeds.items() if not s.removed]))
        work = self.fresh()
        self.store.checkout(f"seed:{origin}", work)
        prompts_label, prompts = next(iter(self.seeds[origin].state[b"prompts"].items()))
        shutil.rmtree(work / "skills")
        materialise(evolved, work / "skills/v2")
        run = f"eval{self.count}"
        record_run(work / "harness.db", run, skills="v2", prompts=prompts_label.decode())
        asked = {"version": "v2", "eval_run_id": run, "name": name}
        if name in self.seeds:
            with pytest.raises(cas.ConflictError):
                self.store.seeds.promote(work, **asked)
            return
        seed = self.store.seeds.promote(work, **asked)
        assert seed.parents == (self.seeds[origin].digest,)
        state = read_state(self.store, f"seed:{name}")
        assert state[b"skills"] == {b"v2": evolved}
        assert state[b"prompts"] == {prompts_label: prompts}
        self.seeds[name] = Kept(state, seed.digest, seed.parents)

    @precondition(lambda self: self.live())
    @rule(data=st.data(), name=NAMES)
    def set_a_tag(self, data, name):
        spec, kept = data.draw(st.sampled_from(self.live()))
        assert self.store.tags.set(name, spec).digest == kept.digest
        self.tags[name] = kept.digest
        self.moves[name] = self.moves.get(name, 0) + 1

    @rule(name=NAMES)
    def remove_a_tag(self, name):
        if name not in self.tags:
            with pytest.raises(cas.NotFoundError):
                self.store.tags.remove(name)
            return
        assert self.store.tags.remove(name).digest == self.tags.pop(name)
        self.moves[name] += 1

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def check_out(self, data):
        spec, kept = data.draw(st.sampled_from(self.live()))
        dest = self.fresh()
        self.store.checkout(spec, dest)
        found = read_back(dest)
        del found[b".cas-workspace"]
        assert found == kept.state
        assert self.store.status(dest).clean

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def read_one(self, data):
        spec, kept = data.draw(st.sampled_from(self.live()))
        assert read_state(self.store, spec) == kept.state

    @rule(full=st.booleans())
    def compact(self, full):
        self.store._context.refs.log.compact(full=full)

    @rule()
    def merge(self):
        self.store._context.objects.tidy()

    @rule()
    def reopen(self):
        self.store.close()
        self.store = cas.Store.open(self.home / "store")

    @invariant()
    def names_are_those_of_the_model(self):
        listed = {version.spec: version for version in self.store.versions.list()}
        seeds = {seed.spec: seed for seed in self.store.seeds.list()}
        expected = dict(self.live())
        assert listed.keys() | seeds.keys() == expected.keys()
        for spec, shown in (listed | seeds).items():
            assert shown.digest == expected[spec].digest
            assert shown.parents == expected[spec].parents or spec.startswith("seed:")
        for resource in self.versions:
            numbers = [v.number for v in self.store.versions.list(resource, removed=True)]
            assert numbers == list(range(1, len(self.versions[resource]) + 1))
        assert {tag.name: tag.digest for tag in self.store.tags.list()} == self.tags
        for name, moves in self.moves.items():
            assert len(self.store.tags.history(name)) == moves


TestCatalogue = Catalogue.TestCase
TestCatalogue.settings = settings(max_examples=20, stateful_step_count=25)
