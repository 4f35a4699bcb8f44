"""Eight workers at one store, killed at random: each candidate is won once at a time, none is lost.

The ordinary run has 200 candidates, `CAS_SOAK=1` 2,000.
"""

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

WORKERS = 8
LEASE = 0.4

WORKER = """
import json, random, sys, time
import cas

root, name, seed, lease = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
draw = random.Random(seed)
learning = cas.Store.open(root).learning
def say(*words):
    sys.stdout.write(json.dumps(words) + chr(10))
    sys.stdout.flush()
while True:
    claim = learning.claim_next(name, lease)
    if claim is None:
        if not learning.list("open") and not learning.list("synthesizing"):
            say("done")
            break
        time.sleep(0.02)
        continue
    candidate_id, token = claim.candidate.candidate_id, claim.token
    say("claimed", candidate_id, token)
    try:
        if draw.random() < 0.1:
            time.sleep(lease * draw.uniform(0.5, 1.5))
            learning.renew(candidate_id, token, lease)
        status = draw.choice(["published", "published", "failed"])
        learning.transition(candidate_id, status, token=token, note=name)
        say("finished", candidate_id, token, status)
    except cas.LeaseLostError:
        say("lost", candidate_id, token)
"""


def start(root, name, seed):
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(root), name, str(seed), str(LEASE)],
        stdout=subprocess.PIPE,
        text=True,
    )


def said(worker):
    """Return what a worker said; of a killed one the last line may be cut short."""
    return [json.loads(line) for line in worker.communicate()[0].split("\n")[:-1]]


def make(tmp_path, count):
    with cas.Store.init(tmp_path / "store") as store:
        store.learning.record_all(cas.Candidate(f"c{i}", "skill") for i in range(count))
    return tmp_path / "store"


def run(root, kills, seconds):
    """Let workers work, kill them every now and then, and return all that they said."""
    draw = random.Random(4)
    words, began, names = [], time.monotonic(), 0
    workers = []
    for _ in range(WORKERS):
        workers.append(start(root, f"w{names}", names))
        names += 1
    while kills:
        time.sleep(draw.uniform(0.05, seconds / kills))
        place = draw.randrange(WORKERS)
        os.kill(workers[place].pid, signal.SIGKILL)
        words.append(said(workers[place]))
        workers[place] = start(root, f"w{names}", names)
        names += 1
        kills -= 1
        assert time.monotonic() - began < 200
    for worker in workers:
        words.append(said(worker))
        assert worker.returncode == 0
        assert words[-1][-1] == ["done"]
    return words


def check(root, count, words):
    claimed, finished, lost = {}, {}, set()
    for what, *rest in (word for worker in words for word in worker):
        if what == "claimed":
            assert rest[1] not in claimed, "one token was given twice"
            claimed[rest[1]] = rest[0]
        elif what == "finished":
            assert rest[1] not in finished
            finished[rest[1]] = (rest[0], rest[2])
        elif what == "lost":
            lost.add(rest[1])
    with cas.Store.open(root) as store:
        learning = store.learning
        assert learning.verify() == []
        candidates = {c.candidate_id: c for c in learning.list()}
        assert len(candidates) == count
        assert {c.status for c in candidates.values()} <= {"published", "failed"}
        assert learning.claim_next("late") is None
        ends, generations = {}, {}
        for event in learning.audit():
            if event.to_status == "synthesizing":
                generations.setdefault(event.candidate_id, []).append(event.token)
            elif event.from_status == "synthesizing":
                assert event.candidate_id not in ends, "it ended twice"
                ends[event.candidate_id] = event
                assert event.token == generations[event.candidate_id][-1], "by an old holder"
        assert ends.keys() == candidates.keys()
        for name, tokens in generations.items():
            assert tokens == sorted(set(tokens)), "tokens of a candidate grow"
            assert candidates[name].status == ends[name].to_status
    given = [token for tokens in generations.values() for token in tokens]
    assert set(claimed) <= set(given), "a claim that was told is not there"
    for token, (name, status) in finished.items():
        assert (ends[name].token, ends[name].to_status) == (token, status), "told, but not so"
    assert not lost & finished.keys()
    return generations


def test_workers_that_are_killed_lose_no_candidate_and_finish_none_twice(tmp_path):
    count = 2000 if os.environ.get("CAS_SOAK") else 200
    root = make(tmp_path, count)
    words = run(root, kills=count // 20, seconds=count / 50)
    generations = check(root, count, words)
    assert any(len(tokens) > 1 for tokens in generations.values()), "nothing was taken over"


def test_two_processes_claim_the_same_candidates_and_each_is_won_once(tmp_path):
    root = make(tmp_path, 300)
    script = (
        "import sys, cas\n"
        "learning = cas.Store.open(sys.argv[1]).learning\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "won = 0\n"
        "for i in range(300):\n"
        "    try:\n"
        "        learning.claim(f'c{i}', sys.argv[2], 600); won += 1\n"
        "    except cas.BeingSynthesizedError:\n"
        "        pass\n"
        "print(won)\n"
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(root), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    won = [int(worker.communicate()[0]) for worker in workers]
    assert sum(won) == 300
    with cas.Store.open(root) as store:
        owners = [event.actor for event in store.learning.audit() if event.token is not None]
    assert [owners.count("a"), owners.count("b")] == won


def test_a_holder_that_wakes_up_after_its_lease_is_refused(tmp_path):
    root = make(tmp_path, 1)
    script = (
        "import sys, cas\n"
        "claim = cas.Store.open(sys.argv[1]).learning.claim('c0', 'first', 0.05)\n"
        "print(claim.token, flush=True); sys.stdin.readline()\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", script, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    token = int(worker.stdout.readline())
    os.kill(worker.pid, signal.SIGKILL)
    worker.communicate()
    time.sleep(0.1)
    with cas.Store.open(root) as store:
        second = store.learning.claim_next("second", 60)
        assert second is not None
        assert second.token > token
        with pytest.raises(cas.LeaseLostError) as refused:
            store.learning.transition("c0", "published", token=token)
        assert refused.value.facts["owner"] == "second"
        with pytest.raises(cas.LeaseLostError):
            store.learning.renew("c0", token)
        assert store.learning.transition("c0", "published", token=second.token).status
