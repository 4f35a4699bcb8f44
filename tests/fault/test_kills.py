"""kill -9 at any moment: what was acknowledged is there and whole, the next command just works.

A few dozen kills in the ordinary run; 200 of each kind with CAS_SOAK=1.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

import cas
from cas.testing.runs import record_run
from cas.testing.stores import read_state
from cas.testing.strategies import materialise, read_back

KILLS = 200 if os.environ.get("CAS_SOAK") else 8
FILES = 400

ADDING = """
import os, sys
import cas
home, first = sys.argv[1], int(sys.argv[2])
store = cas.Store.open(home + "/store")
print("ready", flush=True)
for turn in range(first, first + 10**6):
    for i in range(400):
        with open(f"{home}/set/{i % 20}/{i}", "w") as file:
            file.write(f"{turn} {i}\\n" * (i % 7))
    added = store.versions.add("skills", home + "/set", description=str(turn))
    print(added.number, turn, flush=True)
"""

CREATING = """
import sys
import cas
home, first = sys.argv[1], int(sys.argv[2])
store = cas.Store.open(home + "/store")
print("ready", flush=True)
for turn in range(first, first + 10**6):
    with open(home + "/set/0/0", "w") as file:
        file.write(str(turn))
    seed = store.seeds.create(f"s{turn}", skills=home + "/set", prompts=home + "/set/0",
        baseline=home + "/run.db", baseline_run_id="r")
    print(turn, flush=True)
"""

PROMOTING = """
import sys
import cas
home, first = sys.argv[1], int(sys.argv[2])
store = cas.Store.open(home + "/store")
print("ready", flush=True)
for turn in range(first, first + 10**6):
    with open(home + "/work/skills/v1/0/0", "w") as file:
        file.write(str(turn))
    seed = store.seeds.promote(home + "/work", version="v1", eval_run_id="r", name=f"s{turn}")
    print(turn, flush=True)
"""


@pytest.fixture
def home(tmp_path):
    model = {b"%d" % d: {b"%d" % i: ("file", b"") for i in range(d, FILES, 20)} for d in range(20)}
    materialise(model, tmp_path / "set")
    record_run(tmp_path / "run.db", "r")
    cas.Store.init(tmp_path / "store").close()
    return tmp_path


def killed_at_random(home, script, first, chance):
    """Run a script, kill it at a random moment, and return the lines that it got out."""
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(home), str(first)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0, 0.6))
    finally:
        os.kill(child.pid, signal.SIGKILL)
        lines = child.stdout.read().splitlines()
        child.wait()
        child.stdout.close()
    return lines


def test_a_killed_add_made_a_whole_version_or_none_and_the_next_takes_the_number(home):
    chance = random.Random(1)
    told = []  # what each version must be: the turn that wrote its files, None for a mixture
    turn = 0
    for _ in range(KILLS):
        for line in killed_at_random(home, ADDING, turn, chance):
            number, turn = map(int, line.split())
            assert number == len(told) + 1
            told.append(turn)
        with cas.Store.open(home / "store") as store:
            versions = store.versions.list("skills") if store.versions.resources() else []
            assert [v.number for v in versions] == list(range(1, len(versions) + 1))
            assert len(told) <= len(versions) <= len(told) + 1
            if len(versions) > len(told):
                told.append(int(versions[-1].description))
            for version, wrote in list(zip(versions, told, strict=True))[-2:]:
                state = read_state(store, version.spec)
                for i in range(FILES if wrote is not None else 0):
                    expected = f"{wrote} {i}\n" * (i % 7)
                    assert state[b"%d" % (i % 20)][b"%d" % i] == ("file", expected.encode())
            added = store.versions.add("skills", home / "set", description="after a kill")
            assert added.number == len(versions) + 1
            assert read_state(store, added.spec) == read_back(home / "set")
            told.append(None)
        turn += 2
    with cas.Store.open(home / "store") as store:
        assert store.verify().ok


@pytest.mark.parametrize("script", [CREATING, PROMOTING], ids=["create", "promote"])
def test_a_killed_seed_is_whole_or_not_there_and_the_same_command_then_works(home, script):
    chance = random.Random(2)
    with cas.Store.open(home / "store") as store:
        asked = {
            "skills": home / "set",
            "prompts": home / "set/0",
            "baseline": home / "run.db",
            "baseline_run_id": "r",
        }
        store.seeds.create("first", **asked)
        store.checkout("seed:first", home / "work")
    acknowledged = set()
    ours = set()  # made here, of whatever files the killed process left
    turn = 0
    for _ in range(KILLS):
        done = [int(line) for line in killed_at_random(home, script, turn, chance)]
        acknowledged |= {f"s{number}" for number in done}
        turn = done[-1] + 1 if done else turn
        with cas.Store.open(home / "store") as store:
            seeds = {seed.name for seed in store.seeds.list()} - {"first"}
            assert acknowledged <= seeds <= acknowledged | {f"s{turn}"}
            for name in ({f"s{turn - 1}", f"s{turn}"} & seeds) - ours:
                state = read_state(store, f"seed:{name}")
                assert state[b"skills"][b"v1"][b"0"][b"0"] == ("file", name[1:].encode())
                assert state.keys() == {b"skills", b"prompts", b"harness.db", b"seed.json"}
            if f"s{turn}" not in seeds:
                if script is CREATING:
                    store.seeds.create(f"s{turn}", **asked)
                else:
                    store.seeds.promote(
                        home / "work", version="v1", eval_run_id="r", name=f"s{turn}"
                    )
                ours.add(f"s{turn}")
                read_state(store, f"seed:s{turn}")
                assert os.listdir(home / "store/cache/scratch") == []
            acknowledged.add(f"s{turn}")
            turn += 1
    with cas.Store.open(home / "store") as store:
        assert store.verify().ok
