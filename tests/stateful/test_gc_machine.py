"""Any history of names, tags, drafts and workspaces: gc leaves what it must, and nothing else."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

import cas
from cas.testing.closure import reached, stored
from cas.testing.stores import read_state
from cas.testing.strategies import materialise

NAMES = st.sampled_from([b"a", b"b", b"c"])
CONTENTS = st.integers(0, 5).map(lambda number: ("file", b"%d" % number * 200))
FOLDERS = st.dictionaries(NAMES, CONTENTS, max_size=3)
MODELS = st.dictionaries(NAMES, st.one_of(CONTENTS, FOLDERS), min_size=1, max_size=3)
TAGS = st.sampled_from(["one", "two"])


class Collecting(RuleBasedStateMachine):
    """A store, and beside it what its names stand for."""

    versions = Bundle("versions")

    def __init__(self):
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.store = cas.Store.init(self.home / "store")
        self.live = {}  # number → version
        self.removed = {}
        self.models = {}
        self.tags = {}  # name → version
        self.held = {}  # candidate → (tree of the draft, its base)
        self.workspaces = {}  # folder → tree
        self.count = 0

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.home)

    def fresh(self):
        self.count += 1
        return self.home / f"f{self.count}"

    @rule(target=versions, model=MODELS)
    def add(self, model):
        model = {**model, b"part": {b"p": ("file", b"the part")}}
        folder = self.fresh()
        materialise(model, folder)
        version = self.store.versions.add("skills", folder)
        self.live[version.number] = version
        self.models[version.number] = model
        return version.number

    @rule(target=versions, number=versions, name=NAMES, content=CONTENTS)
    def edit(self, number, name, content):
        if number not in self.live or isinstance(self.models[number].get(name), dict):
            return number
        model = {**self.models[number], name: content}
        file = self.fresh()
        file.write_bytes(content[1])
        version = self.store.versions.edit(f"skills@v{number}", put={name: file})
        self.live[version.number] = version
        self.models[version.number] = model
        return version.number

    @rule(number=versions)
    def remove(self, number):
        if number in self.live:
            self.store.versions.remove(f"skills@v{number}")
            self.removed[number] = self.live.pop(number)

    @rule(number=versions)
    def undelete(self, number):
        if number not in self.removed:
            return
        there = reached_or_none(self.store, self.removed[number].tree)
        if there is None:
            with pytest.raises(cas.MissingObjectError):
                self.store.versions.undelete(f"skills@v{number}")
        else:
            self.store.versions.undelete(f"skills@v{number}")
            self.live[number] = self.removed.pop(number)

    @rule(name=TAGS, number=versions)
    def tag(self, name, number):
        if number in self.live:
            self.store.tags.set(name, f"skills@v{number}")
            self.tags[name] = self.live[number]

    @precondition(lambda self: self.tags)
    @rule(data=st.data())
    def untag(self, data):
        name = data.draw(st.sampled_from(sorted(self.tags)))
        self.store.tags.remove(name)
        del self.tags[name]

    @rule(number=versions, model=MODELS)
    def draft(self, number, model):
        if number not in self.live:
            return
        folder, name = self.fresh(), f"c{self.count}"
        materialise(model, folder)
        base = f"skills@v{number}:part"
        self.store.learning.record(cas.Candidate(name, "change", extra={"base": base}))
        try:
            self.store.learning.draft(name, folder)
        except cas.RefusedError:
            return  # no changes
        digest = cas.Digest.parse(self.store.learning.get(name).extra["draft_digest"])
        self.held[name] = digest, self.store.resolve(base).digest

    @rule(number=versions)
    def checkout(self, number):
        if number in self.live:
            folder = self.fresh()
            self.store.checkout(f"skills@v{number}", folder)
            self.workspaces[folder] = self.live[number].tree

    @precondition(lambda self: self.workspaces)
    @rule(data=st.data())
    def forget(self, data):
        folder = data.draw(st.sampled_from(sorted(self.workspaces)))
        self.store.workspaces.forget(folder)
        del self.workspaces[folder]

    @rule()
    def reopen(self):
        self.store.close()
        self.store = cas.Store.open(self.home / "store")

    @rule()
    def repack(self):
        objects = self.store._context.objects
        before = set(stored(objects))
        self.store.repack(level=3)
        assert set(stored(objects)) == before

    @rule()
    def within_the_grace(self):
        before = stored(self.store._context.objects)
        done = self.store.gc()
        assert set(stored(self.store._context.objects)) == set(before)
        assert done.removed_objects == 0

    @rule()
    def collect(self):
        objects = self.store._context.objects
        said = self.store.gc(grace=0, dry_run=True)
        done = self.store.gc(grace=0)
        assert done.removed_objects == said.removed_objects
        assert done.removed_bytes == said.removed_bytes
        assert done.complete
        there = stored(objects)
        assert len(there) == len(set(there))
        needed = [*self.live.values(), *self.tags.values()]
        trees = [version.tree for version in needed]
        trees += [tree for pair in self.held.values() for tree in pair]
        trees += self.workspaces.values()
        versions = [*self.live.values(), *self.removed.values()]
        manifests = {version.digest for version in versions}
        assert set(there) == reached(objects, trees) | manifests

    @invariant()
    def names_are_whole(self):
        for number in self.live:
            assert read_state(self.store, f"skills@v{number}") == self.models[number]
        for name in self.held:
            self.store.learning.diff(name)
        for folder in self.workspaces:
            assert self.store.status(folder).clean


def reached_or_none(store, tree):
    try:
        digests = reached(store._context.objects, [tree])
    except cas.MissingObjectError:
        return None
    return digests if all(store._context.objects.has_many(digests)) else None


TestCollecting = Collecting.TestCase
TestCollecting.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
