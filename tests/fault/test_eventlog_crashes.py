"""A kill or a power cut at every step of appends, and of the snapshots and merges they do."""

from __future__ import annotations

import contextlib
import gc
import random
import shutil
import subprocess
import sys

import pytest

from cas.backends import LocalBackend
from cas.eventlog import EventLog, blocks, segment, tiers, upkeep
from cas.testing import faults, mounts
from cas.testing.power_cut import Disk

EVERY = 3
# Files that a killed process held open are closed by the system, here by the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(segment, "BLOCK", 400)
    monkeypatch.setattr(blocks, "_WORTH", 100)
    monkeypatch.setattr(tiers, "_SMALLEST", 500)
    monkeypatch.setattr(upkeep, "AT_ONCE", 600)
    monkeypatch.setattr(upkeep, "STEP", 8000)
    monkeypatch.setattr(upkeep, "DELETIONS", 2)


def fold(state, event, position, index):
    key = event["token"].encode()
    state.put(key, (state.get(key) or b"") + b"x" * 250)


def append(log, tokens, told):
    for token in tokens:
        log.append(lambda state, position, token=token: [{"type": "add", "token": token}])
        told.append(token)


def check_holds(backend, told):
    """Check that every byte is right, and what was acknowledged is there, once."""
    log = EventLog(backend, "t", fold, compact_after=EVERY)
    assert list(log.check()) == []
    state = dict(log.state.scan(b""))
    assert {token.encode() for token in told} <= state.keys()
    assert set(state.values()) == {b"x" * 250}
    assert len(state) <= len(told) + 1
    return log


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A log whose next compaction leaves four segments of a size, to be merged then."""
    root = tmp_path_factory.mktemp("prepared") / "s"
    backend = LocalBackend(root, create=True)
    EventLog.create(backend, "t", fold, [{"type": "add", "token": "first"}])
    backend.close()
    return root


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_what_was_acknowledged_survives_a_crash_at_any_step(tmp_path, prepared, power, monkeypatch):
    choice = random.Random(2)
    merged = []
    publish = upkeep.Merge._publish

    def noting(merge, view, info):
        published = publish(merge, view, info)
        merged.append(published is not None)
        return published

    before = ["first"]
    root = tmp_path / "before"
    shutil.copytree(prepared, root)
    backend = LocalBackend(root)
    log = EventLog(backend, "t", fold, compact_after=EVERY)
    while len(log._current().layers.segments) < tiers.FAN - 1 or log._current().identities:
        append(log, [f"b{log.position}"], before)
    backend.close()
    monkeypatch.setattr(upkeep.Merge, "_publish", noting)
    for number, injection in enumerate(faults.every_crash()):
        place = tmp_path / f"s{number}"
        shutil.copytree(root, place)
        told = list(before)
        with Disk(place) as disk:
            backend = LocalBackend(place)
            with injection:
                log = EventLog(backend, "t", fold, compact_after=EVERY)
                append(log, [f"k{turn}" for turn in range(2 * EVERY)], told)
            backend.close()
            if power:
                disk.cut((lambda: choice.random() < 0.5) if number % 2 else None)
        backend = LocalBackend(place)
        log = check_holds(backend, told)
        done = log.position - 1
        append(log, [f"l{turn}" for turn in range(2 * EVERY)], told)
        check_holds(backend, told)
        assert log.position == done + 1 + 2 * EVERY
        backend.close()
        shutil.rmtree(place)
    assert any(merged)
    assert number > 60


def test_a_snapshot_is_durable_before_another_is_made_from_it(tmp_path, prepared):
    for number, injection in enumerate(faults.every_crash()):
        root = tmp_path / f"s{number}"
        shutil.copytree(prepared, root)
        with Disk(root) as disk:
            backend = LocalBackend(root)
            told = ["first"]
            log = EventLog(backend, "t", fold)
            append(log, ["one"], told)
            with injection:
                log.compact()
            # Another process finds what the killed one left, and relies on it.
            log = EventLog(backend, "t", fold)
            append(log, ["two"], told)
            log.compact()
            backend.close()
            disk.cut()
        backend = LocalBackend(root)
        check_holds(backend, told)
        backend.close()
    assert number > 10


# Dies without a chance to close or sync anything after its last acknowledgement.
WRITER = """
import sys
from cas.backends import LocalBackend
from cas.eventlog import EventLog, segment, tiers, upkeep

segment.BLOCK, tiers._SMALLEST = 400, 500
upkeep.AT_ONCE, upkeep.STEP, upkeep.DELETIONS = 600, 3000, 2

def fold(state, event, position, index):
    key = event["token"].encode()
    state.put(key, (state.get(key) or b"") + b"x" * 250)

log = EventLog(LocalBackend(sys.argv[1]), "t", fold, compact_after=3)
for number in range(150):
    token = f"t{number}"
    log.append(lambda state, position: [{"type": "add", "token": token}])
    print(token, len(log._upkeep._merges), flush=True)
    if number % 11 == 10:
        sys.stdin.readline()
"""


@pytest.mark.root
@pytest.mark.parametrize("kind", mounts.SAFE)
def test_a_log_survives_power_cuts_of_real_filesystems(tmp_path, kind):
    with contextlib.ExitStack() as stack:
        try:
            mount = stack.enter_context(mounts.mounted(kind, tmp_path))
        except mounts.Unavailable as reason:
            pytest.skip(str(reason))
        root = mount.path / "s"
        backend = LocalBackend(root, create=True)
        EventLog.create(backend, "t", fold, [{"type": "add", "token": "first"}])
        backend.close()
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", WRITER, root]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            told, merging = ["first"], 0
            for _ in range(13):
                for _ in range(11):
                    token, merges = process.stdout.readline().split()
                    told.append(token)
                    merging += int(merges)
                with mounts.after_power_cut(mount, tmp_path) as copy:
                    backend = LocalBackend(copy / root.name)
                    log = check_holds(backend, told)
                    append(log, ["next"], [])
                    del log
                    gc.collect()
                    backend.close()
                process.stdin.write("\n")
                process.stdin.flush()
        assert merging > 10
