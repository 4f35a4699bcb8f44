"""What travels between two stores, and what does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import cas
from cas.sync.content import Lacking
from cas.testing.damage import flip
from cas.testing.runs import record_run
from cas.testing.stores import check_names_are_whole, read_state
from cas.testing.strategies import materialise

FRAMES = {f"{n:03}.jpg".encode(): ("file", os.urandom(400)) for n in range(40)}
VIDEOS = {f"video{n}".encode(): FRAMES | {b"own": ("file", b"%d" % n)} for n in range(6)}


@pytest.fixture
def pair(tmp_path):
    with cas.Store.init(tmp_path / "a") as a, cas.Store.init(tmp_path / "b") as b:
        materialise(VIDEOS, tmp_path / "videos")
        a.versions.add("videos", tmp_path / "videos")
        yield a, b


def change(tmp_path, store, video="video3"):
    (tmp_path / "videos" / video / "own").write_bytes(os.urandom(9))
    return store.versions.add("videos", tmp_path / "videos")


def test_of_a_changed_tree_only_what_is_new_is_looked_at_and_copied(pair, tmp_path):
    a, b = pair
    b.pull(a)
    change(tmp_path, a)
    seen = []
    done = b.pull(a, ["videos@v2"], progress=lambda phase, files, *_: seen.append((phase, files)))
    # The file, its folder, the root, the manifest.
    assert (done.new, done.objects) == (("videos@v2",), 4)
    assert max(files for phase, files in seen if phase == "compare") < 50
    assert read_state(b, "videos@v2") == read_state(a, "videos@v2")


def test_a_version_that_is_equal_is_looked_through_and_made_whole(pair, tmp_path):
    a, b = pair
    b.pull(a)
    b.close()
    shutil.rmtree(tmp_path / "b/packs")
    shutil.rmtree(tmp_path / "b/index")
    with cas.Store.open(tmp_path / "b") as copy:
        assert not copy.verify().ok
        done = copy.pull(a)
        assert (done.new, done.present) == ((), ("videos@v1",))
        assert done.objects == 40 + 6 + 6 + 1 + 1
        assert copy.verify().ok


def test_a_tree_without_its_content_is_not_taken_for_whole(pair, tmp_path):
    a, b = pair
    tree = a.resolve("videos@v1").tree
    with b._context.objects.writer() as writer:
        writer.put(a._context.objects.read(tree))
        writer.flush()
    b.pull(a)
    check_names_are_whole(b)


def test_a_tag_brings_its_history_and_what_it_points_at(pair, tmp_path):
    a, b = pair
    change(tmp_path, a)
    a.tags.set("live", "videos@v1", reason="first")
    a.tags.set("live", "videos@v2", reason="better", by="ann")
    assert set(b.pull(a, ["tag:live"]).new) == {"videos@v2", "tag:live"}
    assert b.tags.history("live") == a.tags.history("live")
    a.tags.set("live", "videos@v1")
    assert b.pull(a, ["tag:live"]).new == ("videos@v1", "tag:live")
    assert b.tags.get("live").target == "videos@v1"
    b.tags.set("live", "videos@v2")
    done = b.pull(a)
    assert done.notices == (f"tag:live moved on in {done.destination}; it stays",)
    a.tags.set("live", "videos@v2", reason="mine")
    assert b.pull(a).conflicts == ()  # both say the same of now
    a.tags.set("live", "videos@v1")
    assert b.pull(a).conflicts == ("tag:live",)
    with pytest.raises(cas.ConflictError, match="tag:live"):
        b.pull(a, ["tag:live"])


def test_a_tag_on_a_bare_tree_brings_the_tree(pair, tmp_path):
    a, b = pair
    tree = a.resolve("videos@v1:video2").tree
    a.tags.set("frames", str(tree))
    b.pull(a, ["tag:frames"])
    assert read_state(b, "tag:frames") == read_state(a, "videos@v1:video2")
    assert b.verify().ok


def test_gaps_and_parents_of_removed_versions_come_along(pair, tmp_path):
    a, b = pair
    change(tmp_path, a)
    change(tmp_path, a)
    a.versions.remove("videos@v2")
    b.pull(a)
    assert [v.number for v in b.versions.list()] == [1, 3]
    assert [(e.spec, e.known) for e in b.log("videos@v3")] == [
        ("videos@v3", True),
        ("videos@v2", True),
        ("videos@v1", True),
    ]
    assert change(tmp_path, b).number == 4


def test_a_name_that_was_removed_here_stays_removed(pair):
    a, b = pair
    b.pull(a)
    b.versions.remove("videos@v1")
    done = b.pull(a)
    assert done.new == ()
    assert done.notices == (
        f"videos@v1 was removed from {done.destination}; undelete it there to bring it back",
    )


def test_seeds_travel_and_are_never_overwritten(pair, tmp_path):
    a, b = pair
    (tmp_path / "empty").mkdir()
    record_run(tmp_path / "runs.db", "r1")
    for store, skills in ((a, "videos"), (b, "empty")):
        store.seeds.create(
            "first",
            skills=tmp_path / skills,
            prompts=tmp_path / "empty",
            baseline=tmp_path / "runs.db",
            baseline_run_id="r1",
        )
    ours = b.seeds.get("first").digest
    assert b.pull(a).conflicts == ("seed:first",)
    assert b.seeds.get("first").digest == ours
    with cas.Store.init(tmp_path / "c") as c:
        assert c.pull(a, ["seed:first"]).new == ("seed:first",)
        assert c.seeds.get("first") == a.seeds.get("first")
        assert c.verify().ok


def test_more_names_than_one_record_holds_come_in_several(pair, tmp_path, monkeypatch):
    a, b = pair
    for number in range(9):
        a.versions.add("skills", "videos@v1", description=str(number) * 60_000)
    monkeypatch.setattr("cas.sync.plan._ROOM", 200_000)
    before = b._context.refs.log.position
    assert len(b.pull(a).new) == 10
    assert b._context.refs.log.position - before == 3
    assert [v.description for v in b.versions.list("skills")] == [
        v.description for v in a.versions.list("skills")
    ]


def test_someone_who_takes_a_name_meanwhile_wins(pair, tmp_path, monkeypatch):
    a, b = pair
    change(tmp_path, a)
    real = Lacking.bring

    def bring(lacking):
        with cas.Store.open(b.root) as other:
            if not other.versions.list():
                (tmp_path / "mine").mkdir()
                other.versions.add("videos", tmp_path / "mine")
        real(lacking)

    monkeypatch.setattr(Lacking, "bring", bring)
    done = b.pull(a)
    assert done.conflicts == ("videos@v1",)
    assert done.new == ("videos@v2",)
    assert b.versions.get("videos", 1).files == 0


def test_a_store_is_not_pulled_from_itself(pair, tmp_path):
    a, _ = pair
    with pytest.raises(cas.RefusedError, match="itself"):
        a.push(a.root)
    with pytest.raises(cas.NotFoundError):
        a.push(a.root / "nowhere")
    with pytest.raises(cas.RefusedError, match="place inside"):
        a.push(tmp_path / "b", ["videos@v1:video1"])


def test_what_the_source_lacks_gives_no_name(pair, tmp_path):
    a, b = pair
    a.close()
    for pack in (tmp_path / "a/packs").iterdir():
        pack.unlink()
    with pytest.raises(cas.MissingObjectError, match="lacks something"):
        b.pull(tmp_path / "a")
    assert b.versions.list() == []


def test_damage_at_the_source_does_not_travel(tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(1_500_000))
    with cas.Store.init(tmp_path / "a") as a, cas.Store.init(tmp_path / "b") as b:
        a.versions.add("videos", tmp_path / "big")
        loose = next((tmp_path / "a/loose").rglob("*/*"))
        os.chmod(loose, 0o644)
        with loose.open("r+b") as file:
            file.write(b"damage")
        with pytest.raises(cas.CorruptObjectError, match=loose.name):
            b.pull(a)
        assert b.versions.list() == []
        assert list(b._context.objects.loose_objects()) == []


def test_large_files_share_blocks_or_are_copied_and_packs_keep_their_encoding(tmp_path):
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/big").write_bytes(os.urandom(3_000_000))
    (tmp_path / "dir/text").write_text("words " * 20_000)
    with cas.Store.init(tmp_path / "a") as a, cas.Store.init(tmp_path / "b") as b:
        a.versions.add("videos", tmp_path / "dir")
        done = b.pull(a)
        assert done.stored_bytes < 3_010_000 < done.bytes
        digest = a.resolve("videos@v1:text").digest
        assert b._context.objects.info(digest).encoding == 1
        big = a.resolve("videos@v1:big").digest
        assert b._context.objects.proven(big)
        assert b.verify().ok


def test_the_source_is_only_read(pair, tmp_path):
    a, b = pair
    a.tags.set("live", "videos@v1")
    a.close()
    before = sorted(str(path) for path in (tmp_path / "a").rglob("*"))
    stamps = {path: os.stat(path).st_mtime_ns for path in before}
    b.pull(tmp_path / "a")
    cas.Store.clone(tmp_path / "a", tmp_path / "c").close()
    after = sorted(str(path) for path in (tmp_path / "a").rglob("*"))
    assert after == before
    assert {path: os.stat(path).st_mtime_ns for path in after} == stamps


def test_a_clone_goes_into_an_empty_place_only(pair, tmp_path):
    a, b = pair
    with pytest.raises(cas.ConflictError, match="is a store already"):
        cas.Store.clone(a, b.root)
    with pytest.raises(cas.ConflictError, match="not empty"):
        cas.Store.clone(a, tmp_path / "videos")
    with pytest.raises(cas.NotFoundError):
        cas.Store.clone(tmp_path / "nowhere", tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_clone_of_a_store_that_was_compacted_has_its_history(pair, tmp_path):
    a, _ = pair
    for number in range(150):
        a.tags.set("live", "videos@v1", reason=str(number))
    a.versions.add("videos", "videos@v1")
    a.versions.remove("videos@v1")
    with cas.Store.clone(a, tmp_path / "c") as c:
        assert c.tags.history("live") == a.tags.history("live")
        assert c.verify().ok
        assert c.versions.list(removed=True) == a.versions.list(removed=True)
        assert c.versions.add("videos", "videos@v2").number == 3


def test_a_clone_while_others_add_is_whole(pair, tmp_path):
    a, _ = pair
    script = (
        "import cas, sys\n"
        "store = cas.Store.open(sys.argv[1])\n"
        "for n in range(400):\n"
        "    store.tags.set('t%d' % (n % 7), 'videos@v1')\n"
        "    if n % 10 == 0: store.versions.add('videos', 'videos@v1', description=str(n))\n"
    )
    adder = subprocess.Popen([sys.executable, "-c", script, a.root])
    try:
        for number in range(6):
            with cas.Store.clone(a.root, tmp_path / f"c{number}") as c:
                assert c.verify(workers=1).ok
                check_names_are_whole(c)
    finally:
        assert adder.wait() == 0


def test_a_bit_that_flipped_in_a_pack_of_the_source_does_not_travel(pair, tmp_path):
    a, b = pair
    digest = a.resolve("videos@v1:video1/003.jpg").digest
    pack, _, offset = a._context.objects.info(digest).location.rpartition(":")
    flip(tmp_path / "a" / pack, int(offset) + 7)
    with pytest.raises(cas.CorruptObjectError, match=str(digest)):
        b.pull(a)
    assert b.versions.list() == []
    flip(tmp_path / "a" / pack, int(offset) + 7)
    b.pull(a)
    assert b.verify().ok


def test_two_that_push_to_one_store_at_once_both_arrive_or_conflict(pair, tmp_path):
    _, b = pair
    with cas.Store.init(tmp_path / "c") as c:
        c.versions.add("videos", tmp_path / "videos", description="another")
        c.versions.add("skills", tmp_path / "videos/video1")
    script = "import cas, sys; print(*cas.Store.open(sys.argv[1]).push(sys.argv[2]).conflicts)"
    pushing = [
        subprocess.Popen(
            [sys.executable, "-c", script, tmp_path / name, b.root], stdout=subprocess.PIPE
        )
        for name in "ac"
    ]
    said = [process.communicate()[0].split() for process in pushing]
    assert sorted(said) == [[], [b"videos@v1"]]
    assert [v.spec for v in b.versions.list()] == ["skills@v1", "videos@v1"]
    assert b.verify().ok


def test_two_stores_that_renumber_from_each_other_come_to_rest(tmp_path):
    with cas.Store.init(tmp_path / "a") as one, cas.Store.init(tmp_path / "b") as two:
        for number, store in enumerate((one, two)):
            (tmp_path / "set").mkdir(exist_ok=True)
            (tmp_path / "set/f").write_text("common")
            if not number:
                store.versions.add("skills", tmp_path / "set")
        two.pull(one)
        for store, text in ((one, "ours"), (two, "theirs"), (one, "ours 2"), (two, "theirs 2")):
            (tmp_path / "set/f").write_text(text)
            store.versions.add("skills", tmp_path / "set")
        for _ in range(2):
            two.pull(one, renumber=True)
            one.pull(two, renumber=True)
        for store in (one, two):
            trees = [version.tree for version in store.versions.list("skills")]
            assert len(trees) == len(set(trees)) == 5
        with cas.Store.init(tmp_path / "c") as three:
            three.versions.add("skills", tmp_path / "set")
            three.pull(one, renumber=True)
            three.pull(two, renumber=True)
            trees = [version.tree for version in three.versions.list("skills")]
            assert len(trees) == len(set(trees)) + 1  # its own is like one of them, but its own
            assert not three.pull(one, renumber=True).new
            assert not three.pull(two, renumber=True).new


def test_a_clone_goes_neither_into_its_source_nor_through_a_link(pair, tmp_path):
    _, source = pair
    with pytest.raises(cas.RefusedError, match="in the store itself"):
        cas.Store.clone(source, source.root / "sub")
    assert not (source.root / "sub").exists()
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with pytest.raises(cas.ConflictError, match="is a link"):
        cas.Store.clone(source, tmp_path / "link")
    assert not any((tmp_path / "there").iterdir())
