"""gc takes what nothing needs, when it is old enough, and nothing else."""

from __future__ import annotations

import os
import time

import pytest

import cas
from cas.codec import encode
from cas.digest import hash_bytes
from cas.maintenance import gc
from cas.objects.entries import BLOB, CHUNKS, TREE, in_memory
from cas.objects.pack import PackBuilder, pack_key
from cas.objects.table import Run, write_table
from cas.testing.closure import reached, stored
from cas.testing.damage import flip
from cas.testing.runs import record_run
from cas.testing.stores import check_names_are_whole, read_state
from cas.testing.strategies import materialise

DAY = 24 * 3600.0
BIG = b"big" * 500_000
LONG_AGO = "2020-01-01T00:00:00.000000+00:00"


@pytest.fixture
def source(tmp_path):
    return tmp_path / "set"


@pytest.fixture
def store(tmp_path):
    with cas.Store.init(tmp_path / "store") as store:
        yield store


def add(store, source, number, resource="skills"):
    """Add a version that shares one file with all others and has two of its own, one large."""
    if source.exists():
        (source / "same").unlink()
        (source / "d/own").unlink()
        (source / "big").unlink()
    model = {
        b"same": ("file", b"in all of them"),
        b"d": {b"own": ("file", b"%d" % number * 400)},
        b"big": ("file", b"%d" % number + BIG),
    }
    if source.exists():
        (source / "d").rmdir()
        source.rmdir()
    materialise(model, source)
    return store.versions.add(resource, source)


def age(store, days):
    """Make everything that was placed so far older."""
    then = time.time() - days * DAY
    for folder in ("packs", "loose"):
        for path in (store.root / folder).rglob("*"):
            if path.is_file():
                os.utime(path, (then, then))


def objects_of(store):
    return stored(store._context.objects)


def content_of(store):
    """Return what is stored but for the manifests of versions and seeds, which always stay."""
    objects = store._context.objects
    return [digest for digest in objects_of(store) if objects.info(digest).kind in (BLOB, TREE)]


def expected(store, *versions, manifests=()):
    """Return what must be stored if these versions, and manifests of others, are all there is."""
    found = reached(store._context.objects, [version.tree for version in versions])
    found |= {version.digest for version in (*versions, *manifests)}
    return sorted(found)


def test_what_was_removed_goes_with_its_large_files_and_the_rest_stays(store, source):
    first, second, third = (add(store, source, number) for number in range(3))
    store.versions.remove("skills@v2")
    before = len(objects_of(store))
    done = store.gc(grace=0)
    # Of an ancestor the manifest stays, so that the lineage does.
    assert objects_of(store) == expected(store, first, third, manifests=[second])
    assert done.removed_objects == before - len(objects_of(store))
    assert done.kept_objects == len(objects_of(store))
    assert done.complete
    assert not done.dry_run
    assert store.verify().ok
    assert [entry.spec for entry in store.log("skills@v3")] == [
        "skills@v3",
        "skills@v2",
        "skills@v1",
    ]
    assert not list((store.root / "cache/stat").iterdir())
    assert len(list((store.root / "cache/proofs").rglob("*/*"))) == 2


def test_a_dry_run_says_what_the_real_one_does_and_changes_nothing(store, source):
    for number in range(4):
        add(store, source, number)
    store.versions.remove("skills@v1")
    store.versions.remove("skills@v3")
    before = {path: path.stat() for path in store.root.rglob("*") if "cache/stat" not in str(path)}
    said = store.gc(grace=0, dry_run=True)
    after = {path: path.stat() for path in store.root.rglob("*") if "cache/stat" not in str(path)}
    assert {p: s.st_mtime_ns for p, s in before.items()} == {
        p: s.st_mtime_ns for p, s in after.items()
    }
    done = store.gc(grace=0)
    assert said.dry_run
    assert (said.removed_objects, said.removed_bytes, said.kept_objects) == (
        done.removed_objects,
        done.removed_bytes,
        done.kept_objects,
    )
    assert said.removed_objects > 0


def test_the_bytes_that_are_said_to_go_are_freed(store, source):
    for number in range(4):
        add(store, source, number)
    store.versions.remove("skills@v1")
    store.versions.remove("skills@v3")

    def size():
        return store.stats().stored_bytes

    before = size()
    done = store.gc(grace=0)
    assert before - size() == done.removed_bytes > 2 * len(BIG)


def test_a_removed_version_stays_for_the_grace_from_its_removal(store, source, monkeypatch):
    add(store, source, 1)
    kept = read_state(store, "skills@v1")
    store.versions.remove("skills@v1")
    age(store, 100)
    assert store.gc().removed_objects == 0
    store.versions.undelete("skills@v1")
    assert read_state(store, "skills@v1") == kept
    monkeypatch.setattr("cas.catalogue.publish.now", lambda: LONG_AGO)
    store.versions.remove("skills@v1")
    assert store.gc().removed_objects > 0
    with pytest.raises(cas.MissingObjectError, match="no longer all there"):
        store.versions.undelete("skills@v1")


def test_what_never_had_a_name_stays_for_the_grace_from_its_placing(store, tmp_path):
    (tmp_path / "blob").write_bytes(b"x" * 500)
    with store._context.objects.writer() as writer:
        writer.put(b"never named")
        writer.put(b"big" + BIG)
        writer.flush()
    done = store.gc()
    assert done.removed_objects == 0
    assert "2 objects" in done.notices[0]
    assert "younger" in done.notices[0]
    age(store, 15)
    assert store.gc(grace=16 * DAY).removed_objects == 0
    assert store.gc().removed_objects == 2
    assert content_of(store) == []


def test_a_tag_keeps_what_it_points_at_and_what_it_left_within_the_grace(
    store, source, monkeypatch
):
    one, two, three = (add(store, source, number) for number in (1, 2, 3))
    for version in (one, two, three):
        store.tags.set("live", version.spec)
    with monkeypatch.context() as past:
        past.setattr("cas.catalogue.publish.now", lambda: LONG_AGO)
        for version in (one, two, three):
            store.versions.remove(version.spec)
    age(store, 100)
    assert store.gc().removed_objects == 0
    for version in (one, two, three):
        read_state(store, str(version.tree))
    store.gc(grace=0)
    assert objects_of(store) == expected(store, three, manifests=[one, two])
    store.tags.remove("live")
    age(store, 100)
    assert store.gc().removed_objects == 0
    store.gc(grace=0)
    assert objects_of(store) == expected(store, manifests=[one, two, three])


def test_a_tag_on_a_bare_tree_and_one_on_a_file_keep_them(store, source):
    version = add(store, source, 1)
    (tree,) = [entry.digest for entry in store.walk("skills@v1") if entry.type == "dir"]
    (blob,) = [entry.digest for entry in store.walk("skills@v1") if entry.path == b"same"]
    store.tags.set("tree", str(tree))
    store.tags.set("file", str(blob))
    store.versions.remove(version.spec)
    store.gc(grace=0)
    assert content_of(store) == sorted(reached(store._context.objects, [tree]) | {blob})


def test_a_seed_keeps_its_parts_when_their_versions_are_gone(store, source, tmp_path):
    add(store, source, 1)
    add(store, source, 2, "prompts")
    record_run(tmp_path / "run.db", "r1")
    store.seeds.create(
        "first",
        skills="skills@v1",
        prompts="prompts@v1",
        baseline=tmp_path / "run.db",
        baseline_run_id="r1",
    )
    store.versions.remove("skills@v1")
    store.versions.remove("prompts@v1")
    state = read_state(store, "seed:first")
    store.gc(grace=0)
    assert read_state(store, "seed:first") == state
    assert store.verify().ok
    store.seeds.remove("first")
    age(store, 100)
    assert store.gc().removed_objects == 0
    store.seeds.undelete("first")
    store.seeds.remove("first")
    store.gc(grace=0)
    assert content_of(store) == []


def test_a_workspace_keeps_what_it_was_checked_out_from_until_it_is_forgotten(
    store, source, tmp_path
):
    version = add(store, source, 1)
    store.checkout("skills@v1", tmp_path / "work")
    store.versions.remove("skills@v1")
    store.gc(grace=0)
    assert content_of(store) == sorted(reached(store._context.objects, [version.tree]))
    (tmp_path / "work/d/new").write_text("new")
    assert store.status(tmp_path / "work").added
    store.workspaces.forget(tmp_path / "work")
    store.gc(grace=0)
    assert content_of(store) == []


def test_a_damaged_memory_of_a_workspace_stops_it(store, source, tmp_path):
    add(store, source, 1)
    store.checkout("skills@v1", tmp_path / "work")
    (memory,) = (store.root / "workspaces").iterdir()
    flip(memory, 20)
    store.versions.remove("skills@v1")
    before = objects_of(store)
    with pytest.raises(cas.DamagedError, match="workspaces/"):
        store.gc(grace=0)
    assert objects_of(store) == before


def test_drafts_their_bases_and_reports_stay(store, source, tmp_path):
    materialise({b"look": {b"SKILL.md": ("file", b"look")}}, tmp_path / "skills")
    materialise({b"SKILL.md": ("file", b"look twice")}, tmp_path / "draft")
    store.versions.add("skills", tmp_path / "skills")
    store.learning.record(cas.Candidate("c1", "change", extra={"base": "skills@v1:look"}))
    store.learning.draft("c1", tmp_path / "draft")
    report = {
        "skill_name": "look",
        "draft_id": "c1",
        "report_id": "r1",
        "content": {"found": "x" * 200_000},
    }
    store.learning.add_safety_report(cas.SafetyReport.from_dict(report))
    told = store.learning.diff("c1")
    store.versions.remove("skills@v1")
    store.gc(grace=0)
    assert store.learning.diff("c1") == told
    assert store.learning.safety_report("look", "c1").to_dict()["content"] == report["content"]
    assert store.verify().ok


@pytest.mark.parametrize("step", [1, 2], ids=["all are needed", "half of them are"])
def test_second_copies_of_two_racing_writers_go(store, step):
    objects = store._context.objects
    contents = [b"%d" % number * 300 for number in range(20)]
    one, two = objects.writer(), objects.writer()
    with one, two:
        for content in contents:
            one.put(content)
            two.put(content)
        one.flush()
        two.flush()
    digests = sorted(hash_bytes(content) for content in contents)
    assert objects_of(store) == sorted(digests * 2)
    for digest in digests[::step]:
        store.tags.set(f"t{digest.hex()[:8]}", digest.hex())
    store.gc(grace=0)
    assert objects_of(store) == digests[::step]
    for content in contents:
        if hash_bytes(content) in digests[::step]:
            assert store._context.objects.read(hash_bytes(content)) == content


def test_a_second_copy_stays_where_the_first_is_damaged(store):
    objects = store._context.objects
    one, two = objects.writer(), objects.writer()
    with one, two:
        one.put(b"content" * 50)
        two.put(b"content" * 50)
        two.put(b"more" * 500)
        one.flush()
        two.flush()
    digest = hash_bytes(b"content" * 50)
    store.tags.set("kept", digest.hex())
    for path in (store.root / "packs").iterdir():
        if path.stat().st_size > 400:
            flip(path, 30)
    store.gc(grace=0)
    assert store._context.objects.read(digest) == b"content" * 50


def test_the_chunks_of_what_is_needed_stay(store):
    objects = store._context.objects
    pieces = [b"%d" % number * 5000 for number in range(3)]
    whole = b"".join(pieces)
    backend = objects.backend
    with objects.writer() as writer:
        for piece in (*pieces, b"no chunk" * 50):
            writer.put(piece)
        writer.flush()
    rows = encode([[hash_bytes(piece), len(piece)] for piece in pieces])
    builder = PackBuilder(backend.stage())
    builder.add(hash_bytes(whole), rows, len(whole), CHUNKS, BLOB)
    covered, index = builder.seal()
    with builder.staging as staging:
        backend.put_if_absent(pack_key(covered.digest), staging)
    write_table(backend, [Run(in_memory(index), (covered,))], frozenset((covered.digest,)))
    store.tags.set("kept", hash_bytes(whole).hex())
    store.gc(grace=0)
    assert objects_of(store) == sorted(hash_bytes(content) for content in (whole, *pieces))
    assert store._context.objects.read(hash_bytes(whole)) == whole


def test_it_removes_nothing_where_a_name_cannot_be_followed(store, source):
    add(store, source, 1)
    add(store, source, 2)
    store.versions.remove("skills@v1")
    tree = store.versions.get("skills", 2).tree
    location = store._context.objects.info(tree).location
    key, _, offset = location.partition(":")
    flip(store.root / key, int(offset) + 3)
    before = objects_of(store)
    with pytest.raises(cas.DamagedError, match=r"what skills@v2 needs cannot be told.*repair it"):
        store.gc(grace=0)
    assert objects_of(store) == before


def test_a_budget_ends_it_early_and_the_next_run_goes_on(store, source):
    for number in range(5):
        add(store, source, number)
        store.versions.remove(f"skills@v{number + 1}")
    done = store.gc(grace=0, budget=0)
    assert not done.complete
    assert 0 < done.removed_bytes < 5 * len(BIG)
    assert "run it again" in done.notices[-1]
    assert store.gc(grace=0).complete
    assert content_of(store) == []


def test_large_packs_that_are_needed_for_the_most_part_stay_and_that_is_said(store, source):
    store._context.objects.pack_target = 40_000
    folder = {b"%d" % n: ("file", os.urandom(300)) for n in range(10)}
    materialise({b"d%d" % n: folder | {b"own": ("file", b"%d" % n)} for n in range(10)}, source)
    materialise({b"%d" % n: ("file", os.urandom(300)) for n in range(100)}, source / "e")
    store.versions.add("skills", source)
    (source / "d0/own").unlink()
    second = store.versions.add("skills", source)
    store.versions.remove("skills@v1")
    done = store.gc(grace=0)
    assert done.complete
    assert any("large packs" in notice for notice in done.notices)
    assert set(expected(store, second)) < set(objects_of(store))


def test_an_unchanged_source_is_read_again_after_it(store, source):
    first = add(store, source, 1)
    state = read_state(store, "skills@v1")
    store.versions.remove("skills@v1")
    store.gc(grace=0)
    again = store.versions.add("skills", source)
    assert (again.number, again.tree) == (2, first.tree)
    assert read_state(store, "skills@v2") == state
    assert store.verify().ok


def test_a_promotion_from_a_forgotten_workspace_never_names_what_is_gone(store, source, tmp_path):
    materialise({b"keep": ("file", b"kept"), b"d": {b"x": ("file", b"x" * 99)}}, source)
    store.versions.add("skills", source)
    store.checkout("skills@v1", tmp_path / "work")
    store.workspaces.forget(tmp_path / "work")
    store.versions.remove("skills@v1")
    store.gc(grace=0)
    (tmp_path / "work/new").write_text("new")
    record_run(tmp_path / "run.db", "r1")
    try:
        store.versions.add("skills", tmp_path / "work")
    except cas.CasError:
        pass
    check_names_are_whole(store)
    assert store.verify().ok


def test_temporary_files_of_killed_processes_go(store):
    (store.root / "tmp").mkdir(exist_ok=True)
    (store.root / "tmp" / ("0" * 32)).write_bytes(b"half of something")
    store.gc()
    assert not list((store.root / "tmp").iterdir())


def test_what_another_gc_takes_while_it_marks_does_not_stop_it(store, source, monkeypatch):
    add(store, source, 1)
    second = add(store, source, 2)
    real = gc.roots
    with cas.Store.open(store.root) as other:

        def roots_then_gone(context, since):
            found = list(real(context, since))
            monkeypatch.setattr(gc, "roots", real)
            other.versions.remove("skills@v1")
            other.gc(grace=0)
            return found

        monkeypatch.setattr(gc, "roots", roots_then_gone)
        assert store.gc(grace=0).complete
    assert store.verify().ok
    assert read_state(store, second.spec)


def test_who_has_the_store_open_names_nothing_that_another_removed(store, source):
    materialise({b"same": ("file", b"same"), b"d": {b"own": ("file", b"own" * 99)}}, source)
    version = store.versions.add("skills", source)
    file = next(entry.digest for entry in store.walk("skills@v1") if entry.path == b"same")
    with cas.Store.open(store.root) as other:
        read_state(other, "skills@v1")
        store.versions.remove("skills@v1")
        store.gc(grace=0)
        with pytest.raises(cas.MissingObjectError):
            other.versions.undelete("skills@v1")
        for gone in (version.tree, file):
            with pytest.raises((cas.MissingObjectError, cas.NotFoundError)):
                other.tags.set("kept", str(gone))
        for spec in (str(version.digest), str(version.tree)):
            with pytest.raises((cas.MissingObjectError, cas.NotFoundError)):
                other.versions.add("again", spec)
        assert other.tags.list() == []
        assert [version.resource for version in other.versions.list()] == []
    assert store.verify().ok
