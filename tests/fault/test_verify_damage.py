"""Verify against damage: every file of a store flipped, cut or removed is found and named."""

import json
import random
import shutil
import subprocess
import sys

import pytest

import cas
from cas.testing.damage import cut, flip

BIG = random.Random(5).randbytes(1 << 20)
"""Large enough to be a loose object."""

ASIDE = ("cache/", "locks/", "tmp/")
"""Hints and caches: losing them costs time."""


def is_aside(name):
    return name.startswith(ASIDE) or name.endswith("/head")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store with everything in it: packs, a loose object, an index, logs, a workspace."""
    base = tmp_path_factory.mktemp("damage")
    skills = base / "skills"
    for i in range(20):
        folder = skills / f"skill{i}"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"# skill {i}\n" + "words of a skill\n" * 20)
    (skills / "media.bin").write_bytes(BIG)
    store = cas.Store.init(base / "store")
    store.versions.add("skills", skills)
    (skills / "skill3" / "SKILL.md").write_text("changed\n")
    store.versions.add("skills", skills)
    store.tags.set("live", "skills@v1", reason="good")
    store.checkout("skills@v2", base / "out")
    store.learning.record(cas.Candidate("c1", "merge_skills"))
    store.learning.add_eval_report(cas.EvalReport("skill3", "d1", "r1", ["words"] * 1000))
    store.learning.compact()
    store.learning.claim("c1", "worker", 60)
    store.close()
    assert verify(base / "store").ok
    return base / "store"


@pytest.fixture
def copy(original, tmp_path):
    target = tmp_path / "copy"
    shutil.copytree(original, target)
    return target


def verify(root, **options):
    with cas.Store.open(root) as store:
        return store.verify(workers=1, **options)


def files(root):
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def data_files(root):
    return [name for name in files(root) if not is_aside(name) and name != "store.json"]


def test_a_whole_copy_verifies_clean_and_is_read_whole(copy):
    report = verify(copy)
    assert report.ok
    assert report.coverage == 1.0
    assert report.checked_bytes == report.bytes > len(BIG)


def test_one_flipped_bit_in_any_file_is_found_and_its_file_is_named(copy):
    rng = random.Random(1)
    for name in data_files(copy):
        size = (copy / name).stat().st_size
        for offset in {0, size - 1, *(rng.randrange(size) for _ in range(6))}:
            mask = 1 << rng.randrange(8)
            flip(copy / name, offset, mask)
            report = verify(copy)
            assert not report.ok, f"{name} at {offset}"
            assert any(p.location.startswith(name) for p in report.problems), (name, report)
            flip(copy / name, offset, mask)
    assert verify(copy).ok


def test_a_file_cut_by_one_byte_is_found(copy):
    for name in data_files(copy):
        path = copy / name
        content = path.read_bytes()
        cut(path, len(content) - 1)
        report = verify(copy)
        assert not report.ok, name
        path.unlink()
        path.write_bytes(content)
    assert verify(copy).ok


def test_a_removed_file_is_found_unless_it_is_derived(copy):
    for name in data_files(copy):
        if name.startswith(("index/", "workspaces/")):
            continue
        path = copy / name
        content = path.read_bytes()
        path.unlink()
        report = verify(copy)
        assert not report.ok, name
        path.write_bytes(content)
    assert verify(copy).ok


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_store_that_cannot_be_opened_is_a_finding_of_the_command(copy, damage, capsys):
    path = copy / "store.json"
    if damage == "flip":
        flip(path, 30)
    elif damage == "cut":
        cut(path, path.stat().st_size - 1)
    else:
        path.unlink()
    with pytest.raises(cas.FormatError, match=r"store\.json"):
        cas.Store.open(copy)
    done = subprocess.run(
        [sys.executable, "-m", "cas_cli", "--store", copy, "verify", "--json"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["location"] == str(path)


def test_without_its_index_a_store_is_whole(copy):
    shutil.rmtree(copy / "index")
    assert verify(copy).ok


def test_damage_names_the_digest_and_every_spec_and_path_that_it_hits(copy):
    loose = next((copy / "loose").rglob("*/*"))
    flip(loose, 4711)
    report = verify(copy)
    (problem,) = report.problems
    assert problem.kind == "corrupt"
    assert str(problem.digest) == loose.name
    assert problem.affects == ("skills@v1:media.bin", "skills@v2:media.bin")


def test_a_missing_large_file_hits_the_paths_of_every_version(copy):
    loose = next((copy / "loose").rglob("*/*"))
    loose.unlink()
    (problem,) = verify(copy).problems
    assert problem.kind == "missing"
    assert problem.affects == ("skills@v1:media.bin", "skills@v2:media.bin")


def test_a_missing_pack_hits_what_lay_in_it(copy):
    for pack in (copy / "packs").iterdir():
        pack.unlink()
    report = verify(copy)
    hit = {spec for problem in report.problems for spec in problem.affects}
    assert {problem.kind for problem in report.problems} == {"missing"}
    assert {"skills@v1", "skills@v2", "skills@v1:", "skills@v2:"} <= hit


def test_damage_in_a_report_names_the_report(copy):
    with cas.Store.open(copy) as store:
        ((digest, kind, holder),) = store.learning.kept_digests()
    assert (kind, holder) == ("blob", "learn:eval/skill3/d1/r1")
    pack, offset = location(copy, digest)
    flip(copy / pack, offset)
    (problem,) = verify(copy).problems
    assert (problem.digest, problem.affects) == (digest, (holder,))


def test_a_record_of_the_learning_log_that_is_damaged_is_named_by_its_position(copy):
    records = sorted((copy / "log/learning/records").iterdir())
    flip(records[-1], 50)
    (problem,) = verify(copy).problems
    assert problem.kind == "bad_ref"
    assert problem.location == f"log/learning/records/{records[-1].name}"
    assert problem.detail.startswith(f"record {int(records[-1].name)}: ")
    with cas.Store.open(copy) as store, pytest.raises(cas.DamagedLogError) as damaged:
        store.learning.list()
    assert damaged.value.facts["position"] == int(records[-1].name)


def test_a_learning_log_that_is_gone_is_damage_and_no_empty_board(copy):
    shutil.rmtree(copy / "log/learning")
    assert any("log/learning" in problem.location for problem in verify(copy).problems)
    with cas.Store.open(copy) as store, pytest.raises(cas.DamagedLogError):
        store.learning.list()


def test_damage_in_a_tree_names_the_directory(copy):
    with cas.Store.open(copy) as store:
        tree = store.resolve("skills@v1:skill7")
    pack, offset = location(copy, tree.digest)
    flip(copy / pack, offset)
    report = verify(copy)
    hit = {spec for problem in report.problems for spec in problem.affects}
    assert {"skills@v1:skill7", "skills@v2:skill7"} <= hit


def location(root, digest):
    from cas.backends import LocalBackend
    from cas.objects import ObjectStore

    place = ObjectStore(LocalBackend(root)).info(digest).location
    pack, _, offset = place.rpartition(":")
    return pack, int(offset)


def test_one_spec_is_proven_alone(copy):
    with cas.Store.open(copy) as store:
        changed = store.resolve("skills@v2:skill3/SKILL.md")
    pack, offset = location(copy, changed.digest)
    flip(copy / pack, offset)
    assert verify(copy, target="skills@v1").ok
    report = verify(copy, target="skills@v2")
    (problem,) = report.problems
    assert problem.digest == changed.digest
    assert problem.affects == ("skills@v2:skill3/SKILL.md",)
    assert verify(copy, target="skills@v2:skill4").ok
    assert not verify(copy, target="skills@v2:skill3/SKILL.md").ok


def test_quick_says_that_it_did_not_read_and_still_finds_what_is_missing(copy):
    report = verify(copy, quick=True)
    assert (report.ok, report.quick, report.checked_bytes, report.coverage) == (True, True, 0, 0.0)
    next((copy / "loose").rglob("*/*")).unlink()
    assert not verify(copy, quick=True).ok


def test_a_sample_reads_a_part_and_says_which(copy):
    report = verify(copy, sample=10)
    assert report.ok
    assert 0 < report.coverage < 1


def test_runs_with_a_budget_go_on_where_the_last_one_stopped(copy):
    covered = 0
    for _ in range(len(data_files(copy))):
        report = verify(copy, budget=0)
        assert report.ok
        assert 0 < report.checked_bytes < report.bytes
        covered += report.checked_bytes
        if covered >= report.bytes:
            break
    assert covered == report.bytes


def test_verify_changes_nothing_but_caches(copy):
    before = {name: (copy / name).read_bytes() for name in files(copy) if not is_aside(name)}
    verify(copy)
    assert before == {
        name: (copy / name).read_bytes() for name in files(copy) if not is_aside(name)
    }


def test_workers_find_what_one_process_finds(copy):
    loose = next((copy / "loose").rglob("*/*"))
    flip(loose, 0)
    with cas.Store.open(copy) as store:
        alone = store.verify(workers=1)
        shared = store.verify(workers=3)
    assert alone == shared
