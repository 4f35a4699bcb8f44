"""gc and repack on a disk that fails, killed at any step, and beside others at work."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import threading

import pytest

import cas
from cas.objects import merging
from cas.testing import faults, mounts
from cas.testing.closure import stored
from cas.testing.stores import check_names_are_whole, read_state
from cas.testing.strategies import materialise

BIG = b"big" * 400_000


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store of which much can go: whole packs, parts of packs, loose objects."""
    home = tmp_path_factory.mktemp("original")
    with cas.Store.init(home / "store") as store:
        for number in range(3):
            source = home / f"s{number}"
            model = {b"same": ("file", b"same"), b"own": ("file", b"%d" % number * 300)}
            materialise({**model, b"big": ("file", b"%d" % number + BIG)}, source)
            store.versions.add("skills", source)
        store.tags.set("live", "skills@v3")
        store.versions.remove("skills@v1")
    return home / "store"


@pytest.fixture
def copy(original, tmp_path):
    numbers = iter(range(10**6))

    def fresh():
        root = tmp_path / f"copy{next(numbers)}"
        shutil.copytree(original, root)
        return root

    return fresh


def states(store):
    return {version.spec: read_state(store, version.spec) for version in store.versions.list()}


def check(root, before, left):
    """Check that all names are whole and that a gc that is not disturbed leaves what it should."""
    with cas.Store.open(root) as store:
        assert states(store) == before
        assert store.verify(workers=1).ok
        added = store.versions.add("skills", root.parent / "again")
        assert store.verify(workers=1).ok
        store.versions.remove(added.spec)
        store.gc(grace=0)
        there = stored(store._context.objects)
        there.remove(added.digest)  # a manifest stays
        assert there == left
    assert not list(root.glob("tmp/*"))


@pytest.fixture
def expected(copy, tmp_path):
    """What all names stand for, and what an undisturbed gc leaves."""
    materialise({b"again": ("file", b"again" * 50)}, tmp_path / "again")
    with cas.Store.open(copy()) as store:
        before = states(store)
        store.gc(grace=0)
        return before, stored(store._context.objects)


@pytest.mark.parametrize("work", ["gc", "repack"])
def test_a_crash_at_any_step_loses_nothing_and_the_next_run_ends_it(copy, expected, work):
    steps = 0
    for injection in faults.every_crash():
        root = copy()
        store = cas.Store.open(root)
        with injection:
            if work == "gc":
                store.gc(grace=0)
            else:
                store.repack(level=3)
        check(root, *expected)
        shutil.rmtree(root)
        steps += 1
    assert steps > 10


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("work", ["gc", "repack"])
def test_an_error_at_any_step_is_said_and_loses_nothing(copy, expected, work, error):
    for injection in faults.every_failure(error):
        root = copy()
        with cas.Store.open(root) as store:
            with injection, contextlib.suppress(cas.EnvironmentFailure):
                if work == "gc":
                    store.gc(grace=0)
                else:
                    store.repack(level=3)
            assert states(store) == expected[0]
        check(root, *expected)
        shutil.rmtree(root)


@pytest.mark.root
def test_it_makes_room_on_a_disk_that_is_really_full(tmp_path):
    with contextlib.ExitStack() as stack:
        try:
            mount = stack.enter_context(mounts.mounted("ext4", tmp_path, size=32 << 20))
        except mounts.Unavailable as reason:
            pytest.skip(str(reason))
        store = stack.enter_context(cas.Store.init(mount.path / "store"))
        for number in range(4):
            source = tmp_path / f"s{number}"
            small = {b"%d" % n: ("file", os.urandom(9000)) for n in range(40)}
            materialise({b"d": small, b"big": ("file", os.urandom(2_000_000))}, source)
            store.versions.add("skills", source)
        store.versions.add("skills", tmp_path / "s0")
        with open(mount.path / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 65536):
                pass
        source = tmp_path / "s9"
        materialise({b"more": ("file", os.urandom(1_500_000))}, source)
        with pytest.raises(cas.DiskFullError):
            store.versions.add("skills", source)
        kept = read_state(store, "skills@v5")
        for number in (1, 2, 3, 4):
            store.versions.remove(f"skills@v{number}")
        done = store.gc(grace=0)
        assert done.removed_bytes > 3 * 2_000_000
        store.versions.add("skills", source)
        assert read_state(store, "skills@v5") == kept
        assert store.verify().ok


ADDING = """
import os, sys
import cas
home, number = sys.argv[1], int(sys.argv[2])
store = cas.Store.open(home + "/store")
print("ready", flush=True)
sys.stdin.readline()
for turn in range(6):
    # The content comes and goes, so a gc is often about to remove what an add relies on.
    source = f"{home}/shared{turn % 3}"
    added = store.versions.add(f"line{number}", source)
    with store.open(f"{added.spec}:d/f0") as file:
        file.read()
    store.versions.remove(added.spec)
    kept = store.versions.add(f"line{number}", f"{home}/shared{(turn + 1) % 3}")
    print(kept.spec, flush=True)
"""


def test_adds_that_rely_on_what_is_about_to_go_keep_it(tmp_path):
    models = []
    for turn in range(3):
        model = {b"d": {b"f%d" % n: ("file", b"%d %d" % (turn, n) * 100) for n in range(30)}}
        model[b"big"] = ("file", b"%d" % turn + BIG)
        materialise(model, tmp_path / f"shared{turn}")
        models.append(model)
    with cas.Store.init(tmp_path / "store") as store:
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", ADDING, str(tmp_path), str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(3)
        ]
        for racer in racers:
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        rounds = 0
        while any(racer.poll() is None for racer in racers):
            store.gc(grace=0)
            rounds += 1
        told = []
        for racer in racers:
            told += racer.communicate()[0].split()
            assert racer.returncode == 0
        assert rounds
        assert len(told) == 18
        for number, spec in enumerate(told):
            assert read_state(store, spec) == models[(number % 6 + 1) % 3]
        check_names_are_whole(store)
        assert store.verify().ok
        store.gc(grace=0)
        there = stored(store._context.objects)
        assert len(there) == len(set(there))


def test_readers_and_writers_go_on_while_it_is_repacked_and_collected(tmp_path):
    model = {b"f%d" % n: ("file", b"%d " % n * 200) for n in range(60)}
    materialise(model, tmp_path / "set")
    stop = threading.Event()
    failures = []

    def read():
        with cas.Store.open(tmp_path / "store") as reader:
            while not stop.is_set():
                try:
                    assert read_state(reader, "skills@v1") == model
                except BaseException as error:
                    failures.append(error)
                    raise

    def write():
        with cas.Store.open(tmp_path / "store") as writer:
            for number in range(12):
                (tmp_path / "set/own").write_bytes(b"%d" % number * 100)
                try:
                    writer.versions.add("others", tmp_path / "set")
                    if number % 2:
                        writer.versions.remove(f"others@v{number}")
                except BaseException as error:
                    failures.append(error)
                    raise

    with cas.Store.init(tmp_path / "store") as store:
        store.versions.add("skills", tmp_path / "set")
        threads = [threading.Thread(target=read), threading.Thread(target=write)]
        for thread in threads:
            thread.start()
        rounds = 0
        while threads[1].is_alive():
            store.repack(level=1 + rounds % 3)
            store.gc(grace=0)
            rounds += 1
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures
        assert rounds
        check_names_are_whole(store)
        assert store.verify().ok


def test_repack_waits_for_nobody_who_merges_without_end(copy, monkeypatch):
    monkeypatch.setattr("cas.maintenance.repack.LOCK_TIMEOUT", 0.05)
    monkeypatch.setattr("cas.maintenance.gc.LOCK_TIMEOUT", 0.05)
    root = copy()
    with cas.Store.open(root) as store, cas.Store.open(root) as other:
        with merging.merge_lock(other._context.backend) as held:
            assert held
            with pytest.raises(cas.BusyError):
                store.repack(level=1)
            with pytest.raises(cas.BusyError):
                store.gc(grace=0)
        store.repack(level=1)
        assert store.gc(grace=0).complete
