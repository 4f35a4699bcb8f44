"""A workspace that a person edits between updates, crashes among them, against a plain model.

What the model knows is only what was checked out last and what is on the disk. From these follow
what an update may do: nothing to what a person changed, and everything to the rest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cas.backends import LocalBackend
from cas.checkout import checkout, update
from cas.errors import ConflictError
from cas.objects import ObjectStore
from cas.testing import faults
from cas.testing.strategies import read_back
from cas.testing.trees import put_model
from cas.workspace import WorkspaceState, load, status, verify_workspace

NAMES = [b"a", b"b", b"c"]
CONTENTS = [b"", b"1", b"2", b"long " * 30]

names = st.sampled_from(NAMES)
files = st.one_of(
    st.tuples(st.sampled_from(["file", "exec"]), st.sampled_from(CONTENTS)),
    st.tuples(st.just("symlink"), st.sampled_from([b"a", b"..", b"gone"])),
)
models = st.dictionaries(
    names,
    st.recursive(files, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=5),
    max_size=3,
)
paths = st.lists(names, min_size=1, max_size=3).map(b"/".join)


def flat(model, prefix=b""):
    """Return every path of a model: a file or link as it is, a directory as None."""
    found = {}
    for name, node in model.items():
        path = prefix + name
        if isinstance(node, dict):
            found[path] = None
            found |= flat(node, path + b"/")
        else:
            found[path] = node
    return found


def above(path):
    """Return the paths of the directories that a path lies in."""
    parts = path.split(b"/")
    return [b"/".join(parts[:n]) for n in range(1, len(parts))]


class Workspaces(RuleBasedStateMachine):
    """One workspace, several trees, a person and crashes."""

    def __init__(self):
        super().__init__()
        self.top = Path(tempfile.mkdtemp())
        self.objects = ObjectStore(
            LocalBackend(self.top / "store", create=True), loose_threshold=64
        )
        self.work = self.top / "work"
        (self.top / "outside").mkdir()
        (self.top / "outside" / "a").write_text("not ours")
        self.tree = {}

    def teardown(self):
        self.objects.close()
        shutil.rmtree(self.top)

    def memory(self):
        return WorkspaceState(store_path=self.top / "store", store_id="1" * 32, spec="r@v1")

    def on_disk(self):
        model = read_back(self.work)
        del model[b".cas-workspace"]
        return flat(model)

    @initialize(model=models)
    def check_out(self, model):
        tree = put_model(self.objects, model).digest
        checkout(self.objects, tree, self.work, memory=self.memory(), workers=1)
        self.tree = flat(model)
        assert self.on_disk() == self.tree

    # --- a person ---

    def place(self, path):
        """Return where a path lies, or None where a link on the way would lead elsewhere."""
        if any((self.work / os.fsdecode(one)).is_symlink() for one in above(path)):
            return None
        return self.work / os.fsdecode(path)

    @rule(path=paths, content=st.sampled_from(CONTENTS))
    def write(self, path, content):
        at = self.place(path)
        if at is not None and not at.is_symlink():
            with contextlib.suppress(OSError):
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_bytes(content)

    @rule(path=paths)
    def remove(self, path):
        at = self.place(path)
        if at is None or not os.path.lexists(at):
            return
        if at.is_dir() and not at.is_symlink():
            shutil.rmtree(at)
        else:
            at.unlink()

    @rule(path=paths)
    def make_executable(self, path):
        at = self.place(path)
        if at is not None and at.is_file() and not at.is_symlink():
            at.chmod(at.stat().st_mode ^ 0o111)

    @rule(path=paths)
    def make_directory(self, path):
        at = self.place(path)
        if at is not None:
            with contextlib.suppress(OSError):
                at.mkdir(parents=True)

    @rule(path=paths)
    def link_to_outside(self, path):
        at = self.place(path)
        if at is not None:
            with contextlib.suppress(OSError):
                at.symlink_to(self.top / "outside")

    # --- updates ---

    def check_update(self, before, old, new, kept):
        """Check what an update may and must have done, given what was on the disk before it."""
        after = self.on_disk()
        touched = {path for path in before | old if before.get(path, 0) != old.get(path, 0)}
        for path in touched:
            if path in before and before[path] is not None:
                assert after.get(path, 0) == before[path], path
        in_the_way = {p for p in before if before[p] is not None and p in touched}
        kept = set(kept)
        for path in old.keys() | new.keys():
            mine = path in touched or any(one in in_the_way for one in above(path))
            below = any(path in above(one) for one in touched)
            if mine or below:
                continue
            if any(one in kept for one in above(path)):
                continue
            if path in new:
                assert path in after, path
                assert after[path] == new[path], path
            else:
                assert path not in after, path
        differing = {p for p in new.keys() | after.keys() if new.get(p, 0) != after.get(p, 0)}
        if not touched:
            assert kept == set()
            assert after == new
        for path in kept:
            assert path in differing or any(one.startswith(path + b"/") for one in differing), path
        found = status(self.work)
        assert found.interrupted is None
        assert found.clean == (not differing)
        assert verify_workspace(self.work, workers=1).ok == found.clean

    @rule(model=models)
    def move(self, model):
        before, old, new = self.on_disk(), self.tree, flat(model)
        tree = put_model(self.objects, model).digest
        done = update(self.objects, self.work, tree, memory=self.memory(), workers=1)
        self.tree = new
        self.check_update(before, old, new, done.kept)

    @rule(
        tries=st.lists(st.tuples(models, st.integers(1, 60)), min_size=1, max_size=3),
        other=st.none() | models,
    )
    def move_and_crash(self, tries, other):
        before, old = self.on_disk(), self.tree
        for model, at in tries:
            tree = put_model(self.objects, model).digest
            with faults.crash(at) as crash:
                update(self.objects, self.work, tree, memory=self.memory(), workers=1)
            status(self.work)
            if not crash.fired:
                break
        goal = model if other is None else other
        tree = put_model(self.objects, goal).digest
        done = update(self.objects, self.work, tree, memory=self.memory(), workers=1)
        self.tree = flat(goal)
        if len(tries) == 1 and other is None and crash.fired:
            self.check_update(before, old, self.tree, done.kept)
        after = self.on_disk()
        theirs = [flat(model) for model, _ in tries]
        for path, node in before.items():
            if node is None or old.get(path, 0) == node:
                continue
            # What a person made to be what an update also wanted cannot be told from it.
            if all(one.get(path, 0) != node for one in theirs):
                assert after.get(path, 0) == node, path
        if before == old:
            assert after == self.tree
            assert done.kept == ()
            assert status(self.work).clean

    @rule(model=models)
    def replace_by_force(self, model):
        before = self.on_disk()
        clean = status(self.work).clean
        tree = put_model(self.objects, model).digest
        try:
            checkout(self.objects, tree, self.work, memory=self.memory(), force=True, workers=1)
        except ConflictError:
            assert not clean
            assert self.on_disk() == before
        else:
            assert clean or before == {}
            self.tree = flat(model)
            assert self.on_disk() == self.tree

    @invariant()
    def status_tells_the_difference(self):
        if not self.work.exists():
            return
        there, wanted = self.on_disk(), self.tree
        found = status(self.work)
        assert found.clean == (there == wanted)
        assert load(self.work).intent is None
        assert sorted(os.listdir(self.top)) == ["outside", "store", "work"]
        assert read_back(self.top / "outside") == {b"a": ("file", b"not ours")}
        for path in found.changed:
            assert path in wanted
            assert there[path] != wanted[path]
        for path in found.deleted:
            assert path in wanted
            assert path not in there
        for path in found.added:
            assert path in there
            assert path not in wanted


TestWorkspaces = Workspaces.TestCase
TestWorkspaces.settings = settings(
    max_examples=settings.default.max_examples // 2, stateful_step_count=15
)
