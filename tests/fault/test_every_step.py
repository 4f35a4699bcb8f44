"""A crash or a refusal of the system at every single step of what changes names."""

from __future__ import annotations

import errno
import shutil

import pytest

import cas
from cas.testing import faults
from cas.testing.runs import record_run
from cas.testing.stores import check_names_are_whole
from cas.testing.strategies import materialise

# Files that a killed process held open are closed by the system, here by the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SET = {
    b"a": ("file", b"content of a"),
    b"d": {b"x": ("exec", b"#!")},
    b"big": ("file", b"z" * 1_200_000),
}


@pytest.fixture
def home(tmp_path):
    """A store with a version, a seed, a tag and a workspace, to be copied for every try."""
    materialise({b"old": ("file", b"old")}, tmp_path / "old")
    materialise(SET, tmp_path / "set")
    record_run(tmp_path / "run.db", "r1")
    with cas.Store.init(tmp_path / "store") as store:
        store.versions.add("skills", tmp_path / "old")
        store.versions.add("skills", tmp_path / "old")
        store.seeds.create(
            "initial",
            skills=tmp_path / "old",
            prompts=tmp_path / "old",
            baseline=tmp_path / "run.db",
            baseline_run_id="r1",
        )
        store.tags.set("live", "skills@v1")
        store.checkout("seed:initial", tmp_path / "work")
    record_run(tmp_path / "work/harness.db", "r2")
    return tmp_path


def names(store):
    """Return all that names say."""
    return (
        [(v.spec, v.digest) for v in store.versions.list()],
        [(s.spec, s.digest) for s in store.seeds.list()],
        [(t.name, t.digest) for t in store.tags.list()],
    )


def add(store, home):
    return store.versions.add("skills", home / "set").spec


def edit(store, home):
    return store.versions.edit("skills@v1", put={"new": home / "set/a"}, remove=["old"]).spec


def create(store, home):
    asked = {"prompts": home / "set/d", "baseline": home / "run.db", "baseline_run_id": "r1"}
    return store.seeds.create("second", skills=home / "set", **asked).spec


def promote(store, home):
    return store.seeds.promote(home / "work", version="v1", eval_run_id="r2", name="second").spec


def remove(store, home):
    return store.versions.remove("skills@v2").spec


def tag(store, home):
    return store.tags.set("live", "skills@v2").spec


OPERATIONS = [add, edit, create, promote, remove, tag]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_crash_at_any_step_leaves_the_old_names_or_the_new_ones(home, operation):
    shutil.copytree(home / "store", home / "done")
    with cas.Store.open(home / "done") as store:
        before = names(store)
        operation(store, home)
        after = names(store)
    seen = set()
    for number, injection in enumerate(faults.every_crash()):
        root = home / f"try{number}"
        shutil.copytree(home / "store", root)
        store = cas.Store.open(root)
        with injection:
            operation(store, home)
        with cas.Store.open(root) as again:
            check_names_are_whole(again)
            found = names(again)
            specs = [[name for name, _ in kind] for kind in found]
            done = specs == [[name for name, _ in kind] for kind in after]
            if operation is tag:
                done = found == after
            assert done or found == before
            seen.add(done)
            if not done:
                operation(again, home)
                check_names_are_whole(again)
            following = again.versions.add("skills", home / "old")
            assert following.number == (4 if operation in (add, edit) else 3)
        shutil.rmtree(root)
    assert seen == {False, True}


@pytest.mark.parametrize(
    ("operation", "code"),
    [(operation, errno.ENOSPC) for operation in OPERATIONS] + [(add, errno.EIO), (tag, errno.EIO)],
)
def test_a_refusal_at_any_step_is_one_of_our_errors_and_changes_nothing(home, operation, code):
    for number, injection in enumerate(faults.every_failure(code)):
        root = home / f"try{number}"
        shutil.copytree(home / "store", root)
        with cas.Store.open(root) as store:
            before = names(store)
            failure = None
            with injection:
                try:
                    operation(store, home)
                except cas.CasError as error:
                    failure = error
            if isinstance(failure, cas.OutcomeUnknownError):
                continue
            if failure is not None:
                assert failure.exit_code == 8, failure
                assert names(store) == before
                operation(store, home)
            assert names(store) != before
            check_names_are_whole(store)
        shutil.rmtree(root)
