"""Eight processes do everything at once, some are killed: nothing that was told is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import cas
from cas.testing.runs import record_run
from cas.testing.stores import check_names_are_whole
from cas.testing.strategies import materialise

SECONDS = 120 if os.environ.get("CAS_SOAK") else 8
PROCESSES = 8

WORKING = """
import json, os, random, shutil, sys, time
import cas

home, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
draw = random.Random(name)
store = cas.Store.open(home + "/store")
own = f"{home}/{name}"
os.makedirs(own + "/set/d", exist_ok=True)
end = time.monotonic() + seconds

def say(*words):
    print(json.dumps(words), flush=True)

def write():
    for file in ("a", "b", "d/c"):
        with open(f"{own}/set/{file}", "w") as out:
            out.write(f"{draw.randrange(40)} " * draw.randrange(400))

def add():
    write()
    added = store.versions.add(draw.choice(["one", "two", name]), own + "/set")
    say("version", added.spec, str(added.digest))

def some():
    return draw.choice(store.versions.list())

def edit():
    write()
    made = store.versions.edit(some().spec, put={b"edited": own + "/set/a"})
    say("version", made.spec, str(made.digest))

def remove():
    spec = store.versions.list(name)[0].spec
    store.versions.remove(spec)
    say("removed", spec)

def tag():
    store.tags.set(name, some().spec, reason=str(draw.random()))
    say("tag", name, len(store.tags.history(name)))

def seed():
    what = some()
    os.makedirs(own + "/prompts", exist_ok=True)
    made = store.seeds.create(
        f"{name}-{draw.getrandbits(40):x}", skills=what.spec, prompts=own + "/prompts",
        baseline=home + "/run.db", baseline_run_id="r1",
    )
    say("seed", made.name, str(made.digest))

def checkout():
    work = f"{own}/work{draw.getrandbits(40):x}"
    done = store.checkout(some().spec, work)
    assert cas.verify_workspace(work).ok
    store.workspaces.forget(work)
    shutil.rmtree(work)

def claim():
    learning = store.learning
    if draw.random() < 0.4:
        ident = f"{name}-{draw.getrandbits(40):x}"
        learning.record(cas.Candidate(ident, "k"))
        say("candidate", ident)
    found = learning.claim_next(name, 600)
    if found is not None:
        ident = found.candidate.candidate_id
        say("claimed", ident, found.token)
        learning.transition(ident, "published", token=found.token)
        say("done", ident)

def gc():
    store.gc(grace=draw.choice([0, 3600]))

def repack():
    store.repack(level=draw.choice([None, 1, 5]))

def verify():
    report = store.verify(workers=1)
    # What was removed and swept meanwhile may be missed for a moment; nothing is ever damaged.
    wrong = [p for p in report.problems if p.kind != "missing"]
    assert not wrong, wrong

def push():
    with cas.Store.open(home + "/other") as other:
        try:
            store.push(other)
        except cas.MissingObjectError:
            pass  # removed and swept meanwhile

steps = [add] * 6 + [edit] * 3 + [tag] * 3 + [checkout] * 2 + [claim] * 5
steps += [seed, remove, gc, repack, verify, push]
say("ready")
add()
while time.monotonic() < end:
    step = draw.choice(steps)
    try:
        step()
    except (cas.NotFoundError, IndexError, cas.ConflictError, cas.MissingObjectError) as error:
        say("refused", step.__name__, str(error))  # another was quicker
say("end")
"""


def start(home, number):
    with open(home / f"errors{number}", "wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-c", WORKING, str(home), f"p{number}", str(SECONDS)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


@pytest.mark.timeout(900)
def test_everything_at_once_with_kills_keeps_all_that_was_told(tmp_path):
    materialise({b"f": ("file", b"common")}, tmp_path / "set")
    record_run(tmp_path / "run.db", "r1")
    with cas.Store.init(tmp_path / "store") as store:
        store.versions.add("one", tmp_path / "set")
    cas.Store.init(tmp_path / "other").close()
    chance = random.Random(8)
    workers = [start(tmp_path, number) for number in range(PROCESSES)]
    killed = chance.sample(range(PROCESSES), 3)
    for number in killed:
        time.sleep(chance.uniform(0, SECONDS / 3))
        os.kill(workers[number].pid, signal.SIGKILL)
    told = []
    for number, worker in enumerate(workers):
        lines = worker.communicate(timeout=SECONDS + 120)[0].split("\n")[:-1]
        said = [json.loads(line) for line in lines]
        if number not in killed:
            assert worker.returncode == 0, (tmp_path / f"errors{number}").read_text()
            assert said[-1] == ["end"]
        told += said
    with cas.Store.open(tmp_path / "store") as store:
        report = store.verify()
        assert report.ok, report.problems
        check_names_are_whole(store)
        versions = {v.spec: v for v in store.versions.list(removed=True)}
        for resource in store.versions.resources():
            numbers = [v.number for v in versions.values() if v.resource == resource]
            assert numbers == list(range(1, len(numbers) + 1))
        claims = {}
        for what, *rest in told:
            if what == "version":
                assert str(versions[rest[0]].digest) == rest[1]
            elif what == "removed":
                assert versions[rest[0]].removed_at is not None
            elif what == "tag":
                assert len(store.tags.history(rest[0])) >= rest[1]
            elif what == "seed":
                assert str(store.seeds.get(rest[0]).digest) == rest[1]
            elif what == "candidate":
                store.learning.get(rest[0])
            elif what == "claimed":
                assert rest[0] not in claims, "claimed twice within its lease"
                claims[rest[0]] = rest[1]
            elif what == "done":
                assert store.learning.get(rest[0]).status == "published"
        assert claims
        store.gc(grace=0)
        assert store.verify().ok
    with cas.Store.open(tmp_path / "other") as other:
        assert other.verify().ok
