"""A crash, a power cut or a fault at any step of a checkout or update costs nothing but time."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from cas import fs
from cas.backends import LocalBackend
from cas.checkout import checkout, update
from cas.errors import CasError, EnvironmentFailure
from cas.objects import ObjectStore
from cas.testing import faults
from cas.testing.power_cut import Disk
from cas.testing.strategies import read_back
from cas.testing.trees import put_model
from cas.workspace import WorkspaceState, load, remembered, status

OLD = {
    b"a": ("file", b"1"),
    b"gone": ("file", b"gone"),
    b"d": {b"x": ("exec", b"x"), b"e": {b"y": ("file", b"y" * 200)}},
    b"link": ("symlink", b"a"),
    b"empty": {},
}
NEW = {
    b"a": ("file", b"2"),
    b"d": ("file", b"a file now"),
    b"n": {b"new": ("file", b"n" * 300)},
    b"link": ("symlink", b"n"),
}


def state(spec="r@v1"):
    return WorkspaceState(store_path="/the/store", store_id="1" * 32, spec=spec)


def contents(path):
    model = read_back(path)
    model.pop(b".cas-workspace", None)
    return model


@pytest.fixture
def objects(tmp_path):
    store = ObjectStore(LocalBackend(tmp_path / "store", create=True), loose_threshold=100)
    yield store
    store.close()


@pytest.fixture
def disk(tmp_path):
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


def clear(folder):
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.parametrize("before", ["absent", "empty"])
def test_a_crash_at_any_step_leaves_the_destination_absent_or_whole(objects, disk, before):
    tree = put_model(objects, OLD).digest
    dest = disk / "work"
    whole = 0
    for crash in faults.every_crash():
        clear(disk)
        if before == "empty":
            dest.mkdir()
        with crash:
            checkout(objects, tree, dest, memory=state(), workers=1)
        if dest.exists() and os.listdir(dest):
            assert contents(dest) == OLD
            assert status(dest).clean
            assert load(dest).id in {one.id for one in remembered(objects.backend)}
            whole += 1
            shutil.rmtree(dest)
        checkout(objects, tree, dest, memory=state(), workers=1)
        assert os.listdir(disk) == ["work"]
        assert contents(dest) == OLD
    # How often the clock is looked at differs, so the last step before the end may be missed.
    assert whole >= 1


def test_a_power_cut_at_any_step_leaves_the_destination_absent_or_whole(objects, disk):
    tree = put_model(objects, OLD).digest
    dest = disk / "work"
    for crash in faults.every_crash():
        clear(disk)
        with Disk(disk) as medium:
            with crash:
                checkout(objects, tree, dest, memory=state(), workers=1)
            medium.cut()
        if dest.exists():
            assert contents(dest) == OLD
            assert status(dest).clean
        elif not crash.fired:
            pytest.fail("an acknowledged checkout is gone")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failure_at_any_step_is_said_and_leaves_nothing(objects, disk, error):
    tree = put_model(objects, OLD).digest
    dest = disk / "work"
    for failure in faults.every_failure(error):
        clear(disk)
        said = ""
        with failure:
            try:
                checkout(objects, tree, dest, memory=state(), workers=1)
            except EnvironmentFailure as caught:
                said = str(caught)
        assert "\n" not in said
        if dest.exists():
            assert contents(dest) == OLD
            shutil.rmtree(dest)
        # What could not be removed is removed by the next checkout.
        checkout(objects, tree, dest, memory=state(), workers=1)
        assert os.listdir(disk) == ["work"]


def test_a_crash_at_any_step_of_a_forced_checkout_loses_no_workspace(objects, disk):
    old, new = (put_model(objects, model).digest for model in (OLD, NEW))
    dest = disk / "work"
    for crash in faults.every_crash():
        clear(disk)
        checkout(objects, old, dest, memory=state(), workers=1)
        with crash:
            checkout(objects, new, dest, memory=state(), workers=1, force=True)
        assert contents(dest) in (OLD, NEW)
        assert status(dest).clean
        checkout(objects, new, dest, memory=state(), workers=1, force=True)
        assert contents(dest) == NEW
        assert os.listdir(disk) == ["work"]


def edit(work):
    (work / "mine").write_text("mine")
    (work / "a").write_text("mine")


@pytest.mark.parametrize(
    ("edited", "again"),
    [(False, "the same"), (True, "the same"), (False, "another"), (True, "back")],
)
def test_an_update_that_crashed_at_any_step_is_finished_by_the_next(objects, disk, edited, again):
    third = {b"a": ("file", b"3"), b"n": {b"new": ("file", b"3")}}
    old, new, other = (put_model(objects, model).digest for model in (OLD, NEW, third))
    goal, model = {"the same": (new, NEW), "another": (other, third), "back": (old, OLD)}[again]
    first = disk / "first"
    for crash in faults.every_crash():
        clear(disk)
        checkout(objects, old, first, memory=state(), workers=1)
        if edited:
            edit(first)
        with crash:
            update(objects, first, new, memory=state("r@v2"), workers=1)
        if edited:
            assert (first / "mine").read_text() == "mine"
            assert (first / "a").read_text() == "mine"
        status(first)
        done = update(objects, first, goal, memory=state("r@v3"), workers=1)
        now = status(first)
        assert now.interrupted is None
        if edited:
            assert contents(first) == {**model, b"a": ("file", b"mine"), b"mine": ("file", b"mine")}
            assert set(done.kept) <= {b"a"}
            assert (now.added, now.changed, now.deleted) == ((b"mine",), (b"a",), ())
        else:
            assert contents(first) == model
            assert now.clean
            assert done.kept == ()
        assert sorted(os.listdir(first / ".cas-workspace")) == [load(first).index, "lock", "state"]


def test_a_power_cut_at_any_step_of_an_update_leaves_every_file_old_or_new(objects, disk):
    old, new = (put_model(objects, model).digest for model in (OLD, NEW))
    work = disk / "work"
    for crash in faults.every_crash():
        clear(disk)
        checkout(objects, old, work, memory=state(), workers=1)
        edit(work)
        fd = os.open(work, os.O_RDONLY)
        fs.sync_filesystem(fd)
        os.close(fd)
        with Disk(disk) as medium:
            with crash:
                update(objects, work, new, memory=state("r@v2"), workers=1)
            medium.cut()
        assert (work / "a").read_text() == "mine"
        assert (work / "mine").read_text() == "mine"
        if not crash.fired:
            assert load(work).spec == "r@v2"
            assert status(work).changed == (b"a",)
        update(objects, work, new, memory=state("r@v2"), workers=1)
        assert contents(work) == {
            **NEW,
            b"a": ("file", b"mine"),
            b"mine": ("file", b"mine"),
        }


def test_a_failing_sync_is_no_success(objects, disk):
    tree = put_model(objects, OLD).digest
    with (
        faults.fail(1, errno.EIO, on={"sync_filesystem"}),
        pytest.raises(EnvironmentFailure),
    ):
        checkout(objects, tree, disk / "work", memory=state())
    assert os.listdir(disk) == []


def test_a_short_write_is_completed(objects, disk):
    tree = put_model(objects, OLD).digest
    for at in range(1, 10):
        clear(disk)
        with faults.cut_short(at):
            checkout(objects, tree, disk / "work", memory=state(), workers=1)
        assert contents(disk / "work") == OLD


def test_a_name_that_is_refused_only_when_it_is_written_is_said(objects, disk):
    tree = put_model(objects, {b"a": ("file", b"1")}).digest
    said = set()
    for failure in faults.every_failure(errno.EILSEQ, on={"create_excl"}):
        shutil.rmtree(disk / "work", ignore_errors=True)
        with failure:
            try:
                checkout(objects, tree, disk / "work", workers=1)
            except CasError as error:
                said.add(str(error))
    assert any("cannot hold 'a'" in text for text in said)


# --- real processes ----------------------------------------------------------------------------

PROGRAM = """
import sys
from cas.backends import LocalBackend
from cas.checkout import checkout
from cas.digest import Digest
from cas.objects import ObjectStore
from cas.workspace import WorkspaceState
store, tree, dest = sys.argv[1:]
memory = WorkspaceState(store_path=store, store_id="1" * 32, spec="r@v1")
print("begun", flush=True)
checkout(ObjectStore(LocalBackend(store)), Digest.parse(tree), dest, memory=memory, workers=2)
print("done", flush=True)
"""


def test_kill_at_random_moments_leaves_the_destination_absent_or_whole(tmp_path, disk):
    objects = ObjectStore(LocalBackend(tmp_path / "store", create=True))
    model = {
        b"d%02d" % n: {b"f%03d" % m: ("file", b"%d %d" % (n, m)) for m in range(100)}
        for n in range(30)
    }
    tree = put_model(objects, model).digest
    dest = disk / "work"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(tree), str(dest)]
    chance = random.Random(20)
    outcomes = set()
    for _ in range(12):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(chance.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        outcomes.add(dest.exists())
        if dest.exists():
            assert contents(dest) == model
            assert status(dest).clean
            shutil.rmtree(dest)
    deadline = time.monotonic() + 10
    while True:
        # Workers of a parent that was killed end by themselves; until then they hold no lock.
        checkout(objects, tree, dest, memory=state())
        if os.listdir(disk) == ["work"] or time.monotonic() > deadline:
            break
        shutil.rmtree(dest)
    assert os.listdir(disk) == ["work"]
    assert contents(dest) == model
    assert outcomes


def test_ctrl_c_leaves_nothing(tmp_path, disk):
    objects = ObjectStore(LocalBackend(tmp_path / "store", create=True))
    model = {
        b"d%02d" % n: {b"f%03d" % m: ("file", b"%d %d" % (n, m)) for m in range(100)}
        for n in range(60)
    }
    tree = put_model(objects, model).digest
    dest = disk / "work"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(tree), str(dest)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.readline()
    while not os.listdir(disk):
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert os.listdir(disk) in ([], ["work"])
