"""Rot: whatever is wrong with one file of a store, repair heals it from a copy."""

from __future__ import annotations

import os
import random
import shutil
from itertools import count

import pytest

import cas
from cas.testing import faults
from cas.testing.damage import cut, flip
from cas.testing.runs import record_run
from cas.testing.stores import read_state
from cas.testing.strategies import materialise

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

BIG = random.Random(5).randbytes(1 << 20)
ASIDE = ("cache/", "locks/", "tmp/")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store with everything in it: packs, a loose object, tables, a snapshot, a workspace."""
    base = tmp_path_factory.mktemp("rot")
    skills = base / "skills"
    materialise({b"s%d" % n: {b"S.md": ("file", b"skill %d\n" % n * 40)} for n in range(9)}, skills)
    (skills / "media.bin").write_bytes(BIG)
    with cas.Store.init(base / "store") as store:
        store.versions.add("skills", skills)
        for number in range(70):
            store.tags.set("live", "skills@v1", reason=str(number))
        for number in range(3):
            (skills / "s3/S.md").write_text(str(number) * 300)
            store.versions.add("skills", skills)
        store.versions.remove("skills@v2")
        (base / "prompts").mkdir()
        record_run(base / "runs.db", "r1", skills="v4")
        store.seeds.create(
            "first",
            skills="skills@v4",
            prompts=base / "prompts",
            baseline=base / "runs.db",
            baseline_run_id="r1",
        )
        store.checkout("skills@v4", base / "work")
        assert store.verify().ok
    return base / "store"


@pytest.fixture
def copy(original, tmp_path):
    shutil.copytree(original, tmp_path / "copy")
    return tmp_path / "copy"


def data_files(root):
    names = sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
    return [name for name in names if not name.startswith(ASIDE) and not name.endswith("/head")]


def content(store):
    found = {version.spec: read_state(store, version.spec) for version in store.versions.list()}
    found |= {seed.spec: read_state(store, seed.spec) for seed in store.seeds.list()}
    history = [(move.reason, move.digest) for move in store.tags.history("live")]
    return found, history, store.versions.list(removed=True)


def check_healed(copy, original, source=None):
    with cas.Store.mend(copy, source or original) as store, cas.Store.open(original) as good:
        done = store.repair(source or original, workers=1)
        assert done.report.ok, done
        assert content(store) == content(good)
        assert store.verify(workers=1).ok
        return done


def rot(path, how, rng):
    size = path.stat().st_size
    if how == "removed":
        path.unlink()
    elif how == "emptied":
        cut(path, 0)
    elif how == "truncated":
        cut(path, rng.randrange(size))
    else:
        flip(path, rng.randrange(size), 1 << rng.randrange(8))


KINDS = ("removed", "emptied", "truncated", "flipped")


def test_any_file_that_rots_is_healed_from_a_copy(original, tmp_path):
    rng = random.Random(3)
    every = os.environ.get("CAS_SOAK")
    names = data_files(original)
    records = [name for name in names if "/records/" in name]
    few = [name for name in names if every or name not in records[1:-9]]
    for number, name in enumerate(few):
        for how in KINDS if every else (KINDS[number % 4], KINDS[(number + 2) % 4]):
            root = tmp_path / "try"
            shutil.copytree(original, root)
            rot(root / name, how, rng)
            try:
                check_healed(root, original)
            except BaseException:
                print(f"{how} {name}")
                raise
            shutil.rmtree(root)


def test_much_rot_at_once_is_healed_from_a_copy(original, tmp_path):
    for seed in range(200 if os.environ.get("CAS_SOAK") else 6):
        rng = random.Random(seed)
        root = tmp_path / "try"
        shutil.copytree(original, root)
        for name in rng.sample(data_files(original), 6):
            rot(root / name, rng.choice(KINDS), rng)
        try:
            check_healed(root, original)
        except BaseException:
            print(f"seed {seed}")
            raise
        shutil.rmtree(root)


@pytest.mark.parametrize("lost", ["log", "packs", "loose", "index", "workspaces"])
def test_a_folder_that_is_lost_is_brought_back_from_a_copy(original, copy, lost):
    shutil.rmtree(copy / lost)
    check_healed(copy, original)


def test_a_repair_that_crashes_at_any_step_is_finished_by_the_next(original, tmp_path):
    rng = random.Random(1)
    broken = tmp_path / "broken"
    shutil.copytree(original, broken)
    names = data_files(broken)
    flip(next(broken / n for n in names if n.startswith("loose/")), 5)
    largest = max((broken / n for n in names if n.startswith("packs/")), key=os.path.getsize)
    for _ in range(5):
        flip(largest, rng.randrange(os.path.getsize(largest)))
    cut(next(broken / n for n in names if "/records/" in n), 9)
    healed = set()
    steps = faults.CHANGES - {"allocate", "fsync", "fsync_dir"}
    for number in count(1, 1 if os.environ.get("CAS_SOAK") else 5):
        injection = faults.crash(number, on=steps)
        root = tmp_path / "try"
        shutil.copytree(broken, root)
        with injection, cas.Store.open(root) as store:
            store.repair(original, workers=1)
        with cas.Store.open(root) as store, cas.Store.open(original) as good:
            done = store.repair(original, workers=1)
            healed.add(bool(done.healed))
            assert done.report.ok, (number, done)
            assert content(store) == content(good)
        shutil.rmtree(root)
        if not injection.fired:
            break
    assert healed == {True, False}
