"""What was purged is nowhere in the store, stays out, and everybody who misses it is told why."""

from __future__ import annotations

import os

import pytest
import zstandard

import cas
from cas.codec import encode
from cas.digest import hash_bytes
from cas.objects.entries import BLOB, CHUNKS, in_memory
from cas.objects.pack import PackBuilder, pack_key
from cas.objects.table import Run, write_table
from cas.testing.closure import stored
from cas.testing.damage import flip
from cas.testing.runs import record_run
from cas.testing.stores import read_state
from cas.testing.strategies import materialise

SECRET = b"token = 8472-a-secret-that-leaked\n" * 9
CLIP = b"a withdrawn clip" * 80_000
WHY = "leaked on 1 May"


@pytest.fixture
def source(tmp_path):
    model = {
        b"keep": ("file", b"kept" * 99),
        b"conf": {b"secret": ("file", SECRET), b"other": ("file", b"other" * 50)},
        b"clip.mp4": ("file", CLIP),
    }
    materialise(model, tmp_path / "set")
    return tmp_path / "set"


@pytest.fixture
def store(tmp_path, source):
    with cas.Store.init(tmp_path / "store") as store:
        store.versions.add("skills", source)
        (source / "keep").write_bytes(b"changed" * 9)
        store.versions.add("skills", source)
        yield store


def contents(root):
    """Return every byte of every file of a store, packed objects decompressed."""
    found = []
    for path in root.rglob("*"):
        if path.is_file():
            found.append(path.read_bytes())
    with cas.Store.open(root) as store:
        objects = store._context.objects
        for digest in set(stored(objects)):
            found.append(objects.read(digest))
    return found


@pytest.mark.parametrize(
    ("path", "content"), [("conf/secret", SECRET), ("clip.mp4", CLIP)], ids=["packed", "loose"]
)
def test_a_purged_file_is_in_no_file_of_the_store(store, path, content):
    packed = zstandard.ZstdCompressor(level=1).compress(content)
    assert any(content in data or packed in data for data in contents(store.root))
    done = store.purge(f"skills@v1:{path}", reason=WHY, by="maria")
    assert (done.digest, done.by, done.reason) == (hash_bytes(content), "maria", WHY)
    assert done.affects == (f"skills@v1:{path}", f"skills@v2:{path}")
    assert (done.copies, done.bytes > 0) == (1, True)
    for data in contents(store.root):
        assert content not in data
        assert packed not in data
        assert content[:40] not in data


def test_the_rest_stays_whole_and_verify_says_what_was_purged(store):
    store.purge("skills@v1:conf/secret", reason=WHY, by="maria")
    report = store.verify()
    assert report.ok
    (told,) = report.purged
    assert told.startswith("skills@v1:conf/secret, skills@v2:conf/secret was purged on 20")
    assert told.endswith(f" by maria: {WHY}")
    assert store.verify("skills@v2").purged
    for spec in ("skills@v1:keep", "skills@v2:conf/other", "skills@v1:clip.mp4"):
        with store.open(spec) as file:
            assert file.read()


def test_reading_it_says_who_purged_it_when_and_why(store):
    store.purge("skills@v1:conf/secret", reason="leaked\non 1 May", by="maria")
    with pytest.raises(cas.PurgedError, match=r"was purged on 20.* by maria: leaked on 1 May"):
        store.open("skills@v2:conf/secret").read()
    with pytest.raises(cas.PurgedError):
        store._context.objects.read(hash_bytes(SECRET))


def test_a_checkout_leaves_it_out_and_says_so(store, tmp_path):
    store.checkout("skills@v1", tmp_path / "before")
    store.purge("skills@v1:conf/secret", reason=WHY)
    done = store.checkout("skills@v1", tmp_path / "work", verify=True)
    assert "conf/secret was purged on" in done.notices[0]
    assert not (tmp_path / "work/conf/secret").exists()
    assert (tmp_path / "work/conf/other").read_bytes() == b"other" * 50
    assert store.status(tmp_path / "work").clean
    assert cas.verify_workspace(tmp_path / "work").ok
    assert store.verify_directory(tmp_path / "work", against="skills@v1").ok
    # An update takes it out of a workspace that has it.
    done = store.checkout("skills@v2", tmp_path / "before", update=True)
    assert "conf/secret was purged on" in done.notices[0]
    assert not (tmp_path / "before/conf/secret").exists()
    assert store.status(tmp_path / "before").clean


@pytest.mark.parametrize("many", [False, True], ids=["one process", "workers"])
@pytest.mark.parametrize("content", [SECRET, CLIP], ids=["small", "large"])
def test_it_cannot_be_stored_again_under_any_name(store, tmp_path, content, many):
    digest = hash_bytes(content)
    store.purge(str(digest), reason=WHY, by="maria")
    model = {b"new": {b"copy": ("file", content)}}
    if many:
        model |= {b"f%d" % n: ("file", b"%d" % n) for n in range(2000)}
    materialise(model, tmp_path / "more")
    with pytest.raises(cas.PurgedError, match=r"more/new/copy holds content that was purged on"):
        store.versions.add("others", tmp_path / "more", workers=2)
    with pytest.raises(cas.PurgedError, match="copy"):
        store.versions.edit("skills@v2", put={b"x": tmp_path / "more/new/copy"})
    with pytest.raises(cas.PurgedError, match="copy"):
        store.versions.add("others", tmp_path / "more/new/copy")
    with cas.Store.open(store.root) as other, pytest.raises(cas.PurgedError):
        other.versions.add("others", tmp_path / "more", workers=1)
    assert not store._context.objects.has(digest)
    assert all(content not in data for data in contents(store.root))


def test_an_unchanged_source_that_has_it_is_refused(store, source):
    store.purge("skills@v2:conf/secret", reason=WHY)
    with pytest.raises(cas.PurgedError, match="conf/secret"):
        store.versions.add("skills", source)
    (source / "conf/secret").unlink()
    assert store.versions.add("skills", source).number == 3


def test_an_edit_makes_a_version_without_it(store, tmp_path):
    store.purge("skills@v2:conf/secret", reason=WHY)
    store.versions.edit("skills@v2", remove=["conf/secret"])
    done = store.checkout("skills@v3", tmp_path / "work")
    assert done.notices == ()
    assert read_state(store, "skills@v3")[b"conf"] == {b"other": ("file", b"other" * 50)}


def test_the_lineage_tells(store):
    store.purge("skills@v1:conf/secret", reason=WHY, by="maria")
    for entry in store.log("skills@v2"):
        (told,) = entry.purged
        assert told.startswith("conf/secret was purged on")
        assert told.endswith(f"by maria: {WHY}")


def test_names_can_be_brought_back_and_frozen_without_it(store, tmp_path):
    store.purge("skills@v2:conf/secret", reason=WHY)
    store.versions.remove("skills@v2")
    store.gc()
    store.versions.undelete("skills@v2")
    (tmp_path / "prompts").mkdir()
    record_run(tmp_path / "run.db", "r1")
    store.seeds.create(
        "first",
        skills="skills@v2",
        prompts=tmp_path / "prompts",
        baseline=tmp_path / "run.db",
        baseline_run_id="r1",
    )
    done = store.checkout("seed:first", tmp_path / "work")
    assert "purged" in done.notices[0]
    assert store.verify().ok


def test_a_purge_that_was_done_says_the_first_reason_and_finds_no_copy(store):
    store.purge("skills@v1:conf/secret", reason=WHY, by="maria")
    again = store.purge("skills@v2:conf/secret", reason="another", by="paul")
    assert (again.reason, again.by, again.copies) == (WHY, "maria", 0)


def test_what_is_no_file_and_what_is_not_there_is_refused(store):
    with pytest.raises(cas.RefusedError, match="directory"):
        store.purge("skills@v1:conf", reason=WHY)
    with pytest.raises(cas.RefusedError, match="directory"):
        store.purge("skills@v1", reason=WHY)
    with pytest.raises(cas.RefusedError, match="no file"):
        store.purge(str(store.versions.get("skills", 1).digest), reason=WHY)
    with pytest.raises(cas.NotFoundError):
        store.purge("skills@v1:nothing", reason=WHY)
    with pytest.raises(cas.NotFoundError):
        store.purge("0" * 64, reason=WHY)
    with pytest.raises(cas.RefusedError, match="reason"):
        store.purge("skills@v1:conf/secret", reason=" ")
    assert store.verify().purged == ()


def test_no_transfer_brings_it_back_and_the_reason_goes_along(store, tmp_path):
    with cas.Store.init(tmp_path / "other") as other:
        other.pull(store, ["skills@v1"])
        store.purge("skills@v1:conf/secret", reason=WHY, by="maria")
        # Who has it keeps it, until it is purged there too.
        other.pull(store)
        with other.open("skills@v2:conf/secret") as file:
            assert file.read() == SECRET
        store.versions.remove("skills@v1")
        store.pull(other)
        store.pull(other, ["skills@v1"], renumber=True)
        assert not store._context.objects.has(hash_bytes(SECRET))
        assert store.verify().ok
    with cas.Store.init(tmp_path / "third") as third:
        third.pull(store)
        assert third.verify().ok
        with pytest.raises(cas.PurgedError, match=f"by maria: {WHY}"):
            third.open("skills@v2:conf/secret").read()
    with cas.Store.clone(store, tmp_path / "clone") as clone:
        report = clone.verify()
        assert report.ok
        assert report.purged


def test_no_repair_brings_it_back(store, tmp_path, source):
    store.purge("skills@v1:conf/secret", reason=WHY)
    assert store.repair(source).report.ok
    for path in (store.root / "packs").iterdir():
        flip(path, 40)
    done = store.repair(source)
    assert not store._context.objects.has(hash_bytes(SECRET))
    assert all(SECRET not in data for data in contents(store.root))
    assert done.healed


def test_an_export_leaves_it_out(store, tmp_path):
    store.purge("skills@v1:conf/secret", reason=WHY)
    done = store.export_layout(tmp_path / "old")
    assert any("was purged on" in notice for notice in done.notices)
    assert not list((tmp_path / "old").rglob("secret"))
    assert len(list((tmp_path / "old").rglob("other"))) == 2


def test_its_chunks_go_and_those_of_others_stay(store):
    objects = store._context.objects
    backend = objects.backend
    pieces = [b"%d" % number * 5000 for number in range(4)]
    with objects.writer() as writer:
        for piece in pieces:
            writer.put(piece)
        writer.flush()
    for chosen in (pieces[:3], pieces[2:]):
        whole = b"".join(chosen)
        rows = encode([[hash_bytes(piece), len(piece)] for piece in chosen])
        builder = PackBuilder(backend.stage())
        builder.add(hash_bytes(whole), rows, len(whole), CHUNKS, BLOB)
        covered, index = builder.seal()
        with builder.staging as staging:
            backend.put_if_absent(pack_key(covered.digest), staging)
        write_table(backend, [Run(in_memory(index), (covered,))], frozenset((covered.digest,)))
    store.purge(str(hash_bytes(b"".join(pieces[:3]))), reason=WHY)
    objects.reload()
    assert objects.has_many(map(hash_bytes, pieces)) == [False, False, True, True]
    assert objects.read(hash_bytes(b"".join(pieces[2:]))) == b"".join(pieces[2:])


def test_copies_in_quarantine_go(store):
    (loose,) = (store.root / "loose").glob("*/*")
    aside = store.root / "quarantine/loose/ab"
    aside.mkdir(parents=True)
    (aside / f"{loose.name}-1").write_bytes(CLIP[:-1])
    packs = list((store.root / "packs").iterdir())
    (store.root / "quarantine/packs").mkdir()
    for pack in packs:
        (store.root / "quarantine/packs" / f"{pack.name}-1").write_bytes(pack.read_bytes())
    assert len(store.purge("skills@v1:clip.mp4", reason=WHY).notices) == 1
    done = store.purge("skills@v1:conf/secret", reason=WHY)
    assert done.notices[0].startswith("quarantine/packs/")
    assert all(SECRET not in data and CLIP[:99] not in data for data in contents(store.root))


def test_a_damaged_pack_that_may_hold_it_is_said(store):
    for path in (store.root / "packs").iterdir():
        flip(path, os.stat(path).st_size - 9)
    with pytest.raises(cas.CasError):
        store.purge("skills@v1:conf/secret", reason=WHY)


def test_one_that_was_cut_short_is_found_and_finished(store, monkeypatch):
    with monkeypatch.context() as cut:

        def fail(*_):
            raise cas.EnvironmentFailure("cut short")

        cut.setattr("cas.maintenance.purge.erase", fail)
        with pytest.raises(cas.EnvironmentFailure):
            store.purge("skills@v1:conf/secret", reason=WHY)
    report = store.verify()
    (problem,) = report.problems
    assert (problem.kind, problem.digest) == ("extra", hash_bytes(SECRET))
    assert "purge it again" in problem.detail
    assert store.purge("skills@v1:conf/secret", reason=WHY).copies == 1
    assert store.verify().ok


def records(root):
    return sorted((root / "log/catalogue/records").iterdir())


def cut(path):
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[:-1])


def test_a_damaged_catalogue_is_said_and_not_raised(store):
    store.purge("skills@v1:conf/secret", reason=WHY)
    root = store.root
    store.close()
    cut(records(root)[-1])
    with cas.Store.open(root) as damaged:
        report = damaged.verify(workers=1)
    assert not report.ok
    assert "bad_ref" in {problem.kind for problem in report.problems}


@pytest.mark.parametrize("also_lost", [False, True], ids=["log", "log and packs"])
def test_no_repair_of_the_catalogue_brings_it_back(store, tmp_path, source, also_lost):
    store.purge("skills@v1:conf/secret", reason=WHY)
    store.tags.set("live", "skills@v2")
    root = store.root
    store.close()
    cut(records(root)[-1])
    if also_lost:
        for path in [*(root / "packs").iterdir(), *(root / "index").iterdir()]:
            path.unlink()
    with cas.Store.open(root) as damaged:
        done = damaged.repair(source, workers=1)
        assert not damaged._context.objects.has(hash_bytes(SECRET))
        assert hash_bytes(SECRET) not in {p.digest for p in done.report.problems}
        assert done.report.purged
    assert all(SECRET not in data for data in contents(root))


def test_a_version_whose_record_was_lost_comes_back_without_it(store, source):
    store.purge("skills@v1:conf/secret", reason=WHY)
    store.versions.edit("skills@v2", remove=["keep"])
    root = store.root
    store.close()
    cut(records(root)[-1])
    with cas.Store.open(root) as damaged:
        done = damaged.repair(source, workers=1)
        assert done.report.ok, done.report
        assert damaged.versions.get("skills", 3)
        assert not damaged._context.objects.has(hash_bytes(SECRET))
    assert all(SECRET not in data for data in contents(root))


def test_a_tree_that_was_lost_is_brought_back_without_it(store, tmp_path, source):
    (tmp_path / "copy").mkdir()
    with cas.Store.clone(store, tmp_path / "copy/store"):
        pass
    store.purge("skills@v1:conf/secret", reason=WHY)
    for path in [*(store.root / "packs").iterdir(), *(store.root / "index").iterdir()]:
        path.unlink()
    root = store.root
    store.close()
    with cas.Store.open(root) as damaged:
        done = damaged.repair(tmp_path / "copy/store", workers=1)
        assert done.report.ok, done.report
        assert done.report.purged
        with damaged.open("skills@v2:conf/other") as file:
            assert file.read() == b"other" * 50
    assert all(SECRET not in data for data in contents(root))
