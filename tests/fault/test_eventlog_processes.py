"""Eight processes at one log: appends, compactions and kills, on a real filesystem."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from cas.backends import LocalBackend
from cas.eventlog import EventLog

PROCESSES = 8
EACH = 40

WORKER = """
import json, sys, time
from cas.backends import LocalBackend
from cas.eventlog import EventLog

def fold(state, event, position, index):
    key = event["token"].encode()
    state.put(key, (state.get(key) or b"") + b"x")

root, which, count, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
log = EventLog(LocalBackend(root), "t", fold, compact_after=24)
log.refresh()
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + seconds
done = 0
while done < count and time.monotonic() < end:
    token = f"{which}.{done}"
    appended = log.append(lambda state, position: [{"type": "add", "token": token}])
    done += 1
    print(json.dumps([token, appended.position]), flush=True)
"""


def fold(state, event, position, index):
    key = event["token"].encode()
    state.put(key, (state.get(key) or b"") + b"x")


@pytest.fixture
def root(tmp_path):
    backend = LocalBackend(tmp_path / "s", create=True)
    EventLog.create(backend, "t", fold, [{"type": "add", "token": "first"}])
    backend.close()
    return tmp_path / "s"


def start(root, *, count, seconds=60.0):
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(root), str(which), str(count), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for which in range(PROCESSES)
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    return workers


def acknowledged(worker):
    """Return what a worker said it did; a killed one may have been cut off in the middle."""
    lines = worker.communicate()[0].split("\n")
    return dict(json.loads(line) for line in lines[:-1])


def compare(root, told):
    """Check that what was acknowledged is there, once, where it was said to be."""
    log = EventLog(LocalBackend(root), "t", fold)
    assert list(log.check()) == []
    state = dict(log.state.scan(b""))
    assert set(state.values()) == {b"x"}
    assert {token.encode() for token in told} <= state.keys()
    assert len(set(told.values())) == len(told)
    for record in log.records():
        token = record.events[0]["token"]
        assert told.get(token, record.number) == record.number
    log.append(lambda state, position: [{"type": "add", "token": "last"}])
    return state, log.position


def test_eight_processes_append_each_record_once(root):
    workers = start(root, count=EACH)
    told = {}
    for worker in workers:
        mine = acknowledged(worker)
        assert worker.returncode == 0
        assert len(mine) == EACH
        assert list(mine.values()) == sorted(mine.values())
        told |= mine
    state, position = compare(root, told)
    assert len(state) == PROCESSES * EACH + 1
    assert position == PROCESSES * EACH + 2


def test_no_process_starves(root):
    workers = start(root, count=10**6, seconds=4.0)
    counts = [len(acknowledged(worker)) for worker in workers]
    assert min(counts) >= sum(counts) / PROCESSES / 4, counts


def test_killed_processes_leave_a_whole_log(root):
    workers = start(root, count=10**6, seconds=60.0)
    time.sleep(0.5)
    for worker in workers:
        time.sleep(0.05)
        os.kill(worker.pid, signal.SIGKILL)
    told = {}
    for worker in workers:
        told |= acknowledged(worker)
    assert told
    state, _ = compare(root, told)
    assert len(state) - 1 - len(told) <= PROCESSES
