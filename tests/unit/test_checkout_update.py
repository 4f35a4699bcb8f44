"""An update touches what differs, and never what a person changed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time

import pytest

from cas import codec, fs
from cas.backends import LocalBackend
from cas.checkout import checkout, update
from cas.digest import hash_bytes
from cas.errors import BusyError, DamagedError, DiskFullError, NotFoundError, RefusedError
from cas.objects import ObjectStore
from cas.testing import faults
from cas.testing.strategies import read_back
from cas.testing.trees import put_model
from cas.workspace import WorkspaceState, load, remembered, status

OLD = {
    b"same": ("file", b"same"),
    b"edit": ("file", b"1"),
    b"gone": ("file", b"gone"),
    b"run": ("file", b"#!"),
    b"link": ("symlink", b"same"),
    b"d": {b"x": ("file", b"x"), b"e": {b"y": ("file", b"y")}},
    b"dir": {b"f": ("file", b"f")},
    b"file": ("file", b"file"),
    b"empty": {},
}
NEW = {
    b"same": ("file", b"same"),
    b"edit": ("file", b"2"),
    b"run": ("exec", b"#!"),
    b"link": ("symlink", b"edit"),
    b"d": {b"x": ("file", b"x"), b"n": {b"new": ("file", b"new")}},
    b"dir": ("file", b"now a file"),
    b"file": {b"f": ("file", b"now in a directory")},
    b"fresh": {},
}


@pytest.fixture
def objects(tmp_path):
    store = ObjectStore(LocalBackend(tmp_path / "store", create=True), loose_threshold=10_000)
    yield store
    store.close()


@pytest.fixture
def work(objects, tmp_path):
    checkout(objects, put_model(objects, OLD).digest, tmp_path / "work", memory=state("r@v1"))
    return tmp_path / "work"


def state(spec):
    return WorkspaceState(store_path="/the/store", store_id="1" * 32, spec=spec)


def move(objects, work, model, **options):
    return update(objects, work, put_model(objects, model).digest, memory=state("r@v2"), **options)


def contents(path):
    model = read_back(path)
    del model[b".cas-workspace"]
    return model


def memory_of(work):
    return sorted(os.listdir(work / ".cas-workspace"))


@pytest.mark.parametrize("sync", [True, False])
def test_the_workspace_becomes_the_other_tree(objects, work, sync):
    done = move(objects, work, NEW, sync=sync)
    assert contents(work) == NEW
    assert (done.kept, done.spec, done.files) == ((), "r@v2", 8)
    assert status(work).clean
    now = load(work)
    assert (now.spec, now.tree, now.intent) == ("r@v2", put_model(objects, NEW).digest, None)
    assert memory_of(work) == [now.index, "lock", "state"]


def test_it_can_be_moved_back(objects, work):
    move(objects, work, NEW)
    move(objects, work, OLD)
    assert contents(work) == OLD
    assert status(work).clean


def test_what_is_the_same_is_not_touched(objects, work):
    before = os.stat(work / "same"), os.stat(work / "d" / "x")
    move(objects, work, NEW)
    after = os.stat(work / "same"), os.stat(work / "d" / "x")
    assert list(map(fs.stat_key, before)) == list(map(fs.stat_key, after))


def test_an_update_to_the_same_tree_touches_nothing(objects, work):
    with faults.watch(on={"write", "unlink", "rename", "rename_noreplace"}) as watched:
        assert move(objects, work, OLD).kept == ()
    assert "rename_noreplace" not in watched.calls
    assert contents(work) == OLD


@pytest.mark.parametrize(
    ("edit", "kept"),
    [
        (lambda w: (w / "edit").write_text("mine"), [b"edit"]),
        (lambda w: (w / "edit").write_text("m"), [b"edit"]),
        (lambda w: (w / "edit").unlink(), [b"edit"]),
        (lambda w: (w / "gone").write_text("mine"), [b"gone"]),
        (lambda w: (w / "run").chmod(0o755) or (w / "run").write_text("mine"), [b"run"]),
        (lambda w: (w / "d" / "n").write_text("mine"), [b"d/n"]),
        (lambda w: (w / "fresh").write_text("mine"), [b"fresh"]),
        (lambda w: (w / "file").write_text("mine"), [b"file"]),
        (lambda w: (w / "dir" / "mine").write_text("mine"), [b"dir"]),
        (lambda w: (w / "dir" / "f").write_text("mine"), [b"dir", b"dir/f"]),
        (lambda w: (w / "d" / "e" / "y").write_text("mine"), [b"d/e/y"]),
        (lambda w: (w / "d" / "e" / "mine").write_text("mine"), []),
        (lambda w: (w / "same").write_text("mine"), []),
        (lambda w: (w / "same").unlink(), []),
        (lambda w: (w / "elsewhere").write_text("mine"), []),
    ],
)
def test_what_a_person_changed_stays_and_is_said(objects, work, edit, kept):
    edit(work)
    mine = {
        path: (work / path).read_bytes()
        for path in work.rglob("*")
        if not path.is_symlink() and path.is_file() and path.read_bytes().startswith(b"m")
    }
    done = move(objects, work, NEW)
    assert list(done.kept) == kept
    for path, content in mine.items():
        assert path.read_bytes() == content
    found = status(work)
    assert not found.clean
    assert found.interrupted is None


def test_a_person_who_made_the_same_change_is_not_in_the_way(objects, work):
    (work / "edit").write_text("2")
    (work / "gone").unlink()
    (work / "d" / "n").mkdir()
    (work / "d" / "n" / "new").write_text("new")
    assert move(objects, work, NEW).kept == ()
    assert contents(work) == NEW
    assert status(work).clean


def test_a_new_file_comes_although_its_directory_was_deleted(objects, work):
    shutil.rmtree(work / "d")
    done = move(objects, work, NEW)
    assert (work / "d" / "n" / "new").read_text() == "new"
    assert not (work / "d" / "x").exists()
    assert done.kept == ()
    assert status(work).deleted == (b"d/x",)


def test_a_link_in_place_of_a_directory_is_not_followed(objects, work, tmp_path):
    outside = tmp_path / "outside"
    shutil.move(work / "d", outside)
    (work / "d").symlink_to(outside)
    before = read_back(outside)
    done = move(objects, work, NEW)
    assert read_back(outside) == before
    assert done.kept == (b"d/n",)
    assert (work / "d").is_symlink()


def test_a_kept_file_that_a_person_puts_right_becomes_clean(objects, work):
    (work / "edit").write_text("mine")
    move(objects, work, NEW)
    assert status(work).changed == (b"edit",)
    (work / "edit").write_text("2")
    assert status(work).clean


def test_a_kept_edit_stays_kept_at_the_next_update(objects, work):
    (work / "edit").write_text("mine")
    move(objects, work, NEW)
    assert move(objects, work, OLD).kept == (b"edit",)
    assert (work / "edit").read_text() == "mine"


def test_a_file_that_is_edited_while_the_update_runs_is_kept(objects, work, monkeypatch):
    real = fs.sync_filesystem

    def sync(fd):
        (work / "edit").write_text("mine")
        (work / "d" / "n").mkdir(exist_ok=True)
        (work / "d" / "n" / "new").write_text("mine")
        real(fd)

    monkeypatch.setattr(fs, "sync_filesystem", sync)
    assert move(objects, work, NEW).kept == (b"d/n/new", b"edit")
    assert (work / "edit").read_text() == "mine"


def test_other_globs_are_refused_and_the_same_ones_kept(objects, tmp_path):
    work = tmp_path / "some"
    tree = put_model(objects, OLD).digest
    checkout(objects, tree, work, memory=state("r@v1"), only=["edit", "gone"])
    with pytest.raises(RefusedError, match="only"):
        move(objects, work, NEW, only=["same"])
    move(objects, work, NEW, only=["edit", "gone"])
    assert contents(work) == {b"edit": ("file", b"2")}
    assert status(work).clean


def test_what_is_no_workspace_is_not_found(objects, tmp_path):
    with pytest.raises(NotFoundError, match="no workspace"):
        move(objects, tmp_path, NEW)


def test_two_updates_at_once_are_refused(objects, work):
    lock = work / ".cas-workspace" / "lock"
    lock.touch()
    hold = (
        "import fcntl, os, sys\n"
        f"fd = os.open({str(lock)!r}, os.O_RDWR)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        holder.stdout.readline()
        with pytest.raises(BusyError, match="another update"):
            move(objects, work, NEW)
        holder.stdin.close()
    assert contents(work) == OLD


def test_an_update_that_was_cut_short_is_said_and_finished_by_the_next(objects, work):
    with faults.crash(1, on={"rename_noreplace"}) as crash:
        move(objects, work, NEW)
    assert crash.fired
    found = status(work)
    assert (found.clean, found.interrupted) == (False, "r@v2")
    [known] = remembered(objects.backend)
    assert set(known.trees) == {put_model(objects, one).digest for one in (OLD, NEW)}
    assert move(objects, work, NEW).kept == ()
    assert contents(work) == NEW
    assert status(work).clean
    assert memory_of(work) == [load(work).index, "lock", "state"]


def test_an_update_that_was_cut_short_does_not_look_like_a_persons_work(objects, work):
    third = {b"edit": ("file", b"3"), b"d": {b"n": {b"new": ("file", b"newer")}}}
    with faults.crash(1, on={"rmdir"}):
        move(objects, work, NEW)
    done = move(objects, work, third)
    assert done.kept == ()
    assert contents(work) == third
    assert status(work).clean


def test_a_missing_object_leaves_an_update_that_can_be_finished(objects, work):
    large = b"large" * 4000
    tree = put_model(objects, {**NEW, b"zz": ("file", large)}).digest
    path = objects.loose_path(hash_bytes(large))
    path.rename(path.parent / "aside")
    with pytest.raises(DamagedError):
        update(objects, work, tree, memory=state("r@v2"))
    assert status(work).interrupted == "r@v2"
    (path.parent / "aside").rename(path)
    assert update(objects, work, tree, memory=state("r@v2")).kept == ()
    assert status(work).clean


def test_progress_is_told(objects, work):
    told = []

    def progress(phase, files, bytes_, total_files, total_bytes):
        told.append((phase, files))

    move(objects, work, NEW, progress=progress)
    assert told[-1] == ("update", 6)


@pytest.mark.parametrize("kind", ["malformed", "own memory", "no match"])
def test_a_tree_that_cannot_be_written_is_refused_before_anything_is_changed(
    objects, work, tmp_path, kind
):
    if kind == "no match":
        work = tmp_path / "some"
        tree = put_model(objects, OLD).digest
        checkout(objects, tree, work, memory=state("r@v1"), only=["edit"])
        model = {b"other": ("file", b"x")}
    elif kind == "own memory":
        model = {b"0": ("file", b"x"), b"zz": {b".cas-workspace": {}}}
    else:
        model = {b"0": ("file", b"x")}
    tree = put_model(objects, model).digest
    if kind == "malformed":
        with objects.writer() as writer:
            rows = [[b"0", "f", 1, writer.put(b"x")], [b"d", "d", 0, writer.put(b"no tree")]]
            tree = writer.put(codec.encode_plain(["tree", 1, 1, 1, rows]))
            writer.flush()
    before = contents(work)
    with pytest.raises((RefusedError, DamagedError)):
        update(objects, work, tree, memory=state("r@v2"))
    assert contents(work) == before
    assert status(work).clean
    assert status(work).interrupted is None


def test_an_update_that_the_store_cannot_finish_does_not_stand_in_the_way_of_another(objects, work):
    large = b"large" * 4000
    tree = put_model(objects, {**NEW, b"zz": ("file", large)}).digest
    objects.loose_path(hash_bytes(large)).unlink()
    with pytest.raises(DamagedError):
        update(objects, work, tree, memory=state("r@v2"))
    move(objects, work, OLD)
    assert contents(work) == OLD
    assert status(work).clean


def test_an_update_that_failed_leaves_nothing_of_what_it_had_staged(objects, work):
    with faults.fail(1, errno.ENOSPC, on={"sync_filesystem"}), pytest.raises(DiskFullError):
        move(objects, work, NEW)
    assert memory_of(work) == [load(work).index, "lock", "state"]
    assert move(objects, work, NEW).kept == ()
    assert contents(work) == NEW


def test_an_update_sees_what_another_did_while_it_waited_for_the_lock(objects, work, monkeypatch):
    real = fs.create_excl

    def create_excl(path, mode=0o666, dir_fd=None):
        if path == b"lock" and not os.path.exists(work / ".cas-workspace" / "lock"):
            (work / ".cas-workspace" / "lock").touch()
            move(objects, work, NEW)
        return real(path, mode, dir_fd)

    monkeypatch.setattr(fs, "create_excl", create_excl)
    assert move(objects, work, OLD).kept == ()
    assert contents(work) == OLD
    assert status(work).clean


def test_a_hard_link_that_goes_is_no_change_of_another_to_the_same_file(objects, tmp_path):
    big = b"line\n" * 4000
    first = put_model(objects, {b"a": ("file", big), b"b": ("file", big)}).digest
    second = put_model(objects, {b"a": ("file", b"new")}).digest
    checkout(objects, first, tmp_path / "work", mode="hardlink", memory=state("r@v1"))
    time.sleep(2 * fs.CLOCK_GRAIN_NS / 1e9)
    done = update(objects, tmp_path / "work", second, memory=state("r@v2"))
    assert done.kept == ()
    assert (tmp_path / "work/a").read_bytes() == b"new"
    assert not (tmp_path / "work/b").exists()
