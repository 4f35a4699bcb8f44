"""Several processes at one store at the same moment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap

import pytest

import cas
from cas.testing.runs import record_run, runs_in
from cas.testing.stores import check_names_are_whole, read_state
from cas.testing.strategies import materialise, read_back

PREAMBLE = """
import json, os, sys
import cas
home, number = sys.argv[1], int(sys.argv[2])
store = cas.Store.open(home + "/store")
print("ready", flush=True)
sys.stdin.readline()
"""


def race(home, count, script):
    """Run a script in several processes that begin at the same moment; return what each printed."""
    code = PREAMBLE + textwrap.dedent(script)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(home), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n", racer.communicate()
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    results = []
    for racer in racers:
        out, err = racer.communicate(timeout=120)
        assert racer.returncode == 0, err
        results.append([json.loads(line) for line in out.splitlines()])
    return results


@pytest.fixture
def store(tmp_path):
    with cas.Store.init(tmp_path / "store") as store:
        yield store


def test_eight_processes_that_add_at_once_make_versions_without_gap_or_repeat(store, tmp_path):
    for number in range(8):
        model = {b"%d" % i: ("file", b"%d of %d" % (i, number)) for i in range(20)}
        materialise(model, tmp_path / f"set{number}")
    results = race(
        tmp_path,
        8,
        """
        for turn in range(3):
            added = store.versions.add("skills", f"{home}/set{number}", description=str(number))
            print(json.dumps([added.number, str(added.digest)]), flush=True)
        """,
    )
    given = {number: digest for result in results for number, digest in result}
    assert sorted(given) == list(range(1, 25))
    for racer, result in enumerate(results):
        for number, digest in result:
            version = store.versions.get("skills", number)
            assert str(version.digest) == digest
            assert version.description == str(racer)
            assert read_state(store, version.spec) == read_back(tmp_path / f"set{racer}")
    # Each came from the one before it: the newest at the moment of its record.
    versions = store.versions.list("skills")
    assert [v.parents for v in versions[1:]] == [(v.digest,) for v in versions[:-1]]
    assert store.verify().ok


def test_one_of_many_creators_of_a_seed_wins_and_the_others_are_told(store, tmp_path):
    materialise({b"x": ("file", b"x")}, tmp_path / "set")
    record_run(tmp_path / "run.db", "r")
    results = race(
        tmp_path,
        5,
        """
        try:
            seed = store.seeds.create("initial", skills=home + "/set", prompts=home + "/set",
                baseline=home + "/run.db", baseline_run_id="r", description=str(number))
            print(json.dumps(["won", seed.description]))
        except cas.ConflictError as error:
            print(json.dumps(["lost", str(error)]))
        """,
    )
    won = [result[0][1] for result in results if result[0][0] == "won"]
    assert won == [store.seeds.get("initial").description]
    assert len(results) == 5
    check_names_are_whole(store)


def test_two_promotes_at_once_from_one_workspace_make_two_right_seeds(store, tmp_path):
    materialise({b"x": ("file", b"x")}, tmp_path / "set")
    record_run(tmp_path / "run.db", "r")
    store.seeds.create(
        "initial",
        skills=tmp_path / "set",
        prompts=tmp_path / "set",
        baseline=tmp_path / "run.db",
        baseline_run_id="r",
    )
    work = tmp_path / "work"
    store.checkout("seed:initial", work)
    for number in range(2):
        shutil.copytree(work / "skills/v1", work / f"skills/v{number + 2}")
        (work / f"skills/v{number + 2}/own").write_text(str(number))
        record_run(work / "harness.db", f"e{number}", skills=f"v{number + 2}", answers=number + 5)
    race(
        tmp_path,
        2,
        """
        store.seeds.promote(home + "/work", version=f"v{number + 2}", eval_run_id=f"e{number}",
            name=f"s{number}")
        """,
    )
    for number in range(2):
        state = read_state(store, f"seed:s{number}")
        label = b"v%d" % (number + 2)
        assert state[b"skills"].keys() == {label}
        assert state[b"skills"][label][b"own"] == ("file", b"%d" % number)
        (tmp_path / f"copy{number}").write_bytes(state[b"harness.db"][1])
        assert runs_in(tmp_path / f"copy{number}") == {f"e{number}": number + 5}
        assert store.seeds.get(f"s{number}").baseline_run_id == f"e{number}"


def test_moves_removals_and_adds_of_many_processes_are_all_kept(store, tmp_path):
    materialise({b"x": ("file", b"x")}, tmp_path / "set")
    store.versions.add("skills", tmp_path / "set")
    race(
        tmp_path,
        6,
        """
        for turn in range(4):
            spec = store.versions.add(f"r{number % 2}", home + "/set").spec
            store.tags.set("live", spec, by=str(number), reason=str(turn))
            if turn % 2:
                store.versions.remove(spec)
        """,
    )
    moves = store.tags.history("live")
    assert sorted((m.by, m.reason) for m in moves) == sorted(
        (str(number), str(turn)) for number in range(6) for turn in range(4)
    )
    for resource in ("r0", "r1"):
        every = store.versions.list(resource, removed=True)
        assert [v.number for v in every] == list(range(1, 13))
        assert sum(v.removed_at is None for v in every) == 6
    check_names_are_whole(store)
