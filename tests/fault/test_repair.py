"""Rot: whatever is wrong with one file of a store, repair heals it from a copy."""

from __future__ import annotations

import os
import random
import shutil

import pytest

import cas
from cas.testing import faults
from cas.testing.damage import cut, flip
from cas.testing.runs import record_run
from cas.testing.stores import check_names_are_whole, read_state
from cas.testing.strategies import materialise

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

BIG = random.Random(5).randbytes(1 << 20)
ASIDE = ("cache/", "locks/", "tmp/")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store with everything in it: packs, a loose object, tables, a compacted log, a workspace."""
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
        again = store.repair(source or original, workers=1)
        assert again.report.ok
        assert again.healed == ()
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


@pytest.mark.parametrize("how", ["removed", "emptied", "truncated", "flipped"])
def test_any_file_that_rots_is_healed_from_a_copy(original, copy, tmp_path, how):
    rng = random.Random(how)
    for name in data_files(original):
        root = tmp_path / "try"
        shutil.copytree(original, root)
        rot(root / name, how, rng)
        try:
            check_healed(root, original)
        except BaseException:
            print(f"{how} {name}")
            raise
        shutil.rmtree(root)
