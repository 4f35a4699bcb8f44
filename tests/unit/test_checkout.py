"""A checkout gives the tree, whole or not at all, and touches nothing else."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys

import pytest

from cas import fs
from cas.backends import LocalBackend, MemoryBackend
from cas.checkout import checkout
from cas.digest import hash_bytes
from cas.errors import (
    ConflictError,
    CorruptObjectError,
    DiskFullError,
    EnvironmentFailure,
    MissingObjectError,
    RefusedError,
    UnsupportedError,
)
from cas.manifests import FILE, TreeBuilder
from cas.objects import ObjectStore
from cas.testing import faults
from cas.testing.strategies import read_back
from cas.testing.trees import put_model
from cas.workspace import WorkspaceState, load, remembered, status

LARGE = b"large " * 4000

MODEL = {
    b"README.md": ("file", b"# skills\n"),
    b"run": ("exec", b"#!/bin/sh\n"),
    b"link": ("symlink", b"README.md"),
    b"dangling": ("symlink", b"../../nowhere"),
    b"empty": {},
    b"nothing": ("file", b""),
    b"media": {b"clip": ("file", LARGE), b"tool": ("exec", LARGE), b"copy": ("file", LARGE)},
    b"deep": {b"er": {b"still": {b"-rf": ("file", b"x"), b"\xff\n": ("file", b"y")}}},
}


@pytest.fixture
def objects(tmp_path):
    store = ObjectStore(LocalBackend(tmp_path / "store", create=True), loose_threshold=10_000)
    yield store
    store.close()


@pytest.fixture
def tree(objects):
    return put_model(objects, MODEL)


@pytest.fixture
def dest(tmp_path):
    return tmp_path / "work"


def state(**given):
    return WorkspaceState(store_path="/the/store", store_id="1" * 32, spec="skills@v1", **given)


def siblings(path):
    return sorted(os.listdir(path.parent))


def contents(path):
    model = read_back(path)
    model.pop(b".cas-workspace", None)
    return model


@pytest.mark.parametrize("workers", [1, 3])
def test_everything_comes_back(objects, tree, dest, workers, monkeypatch):
    monkeypatch.setattr("cas.workspace.crew._PAYS", 1)
    monkeypatch.setattr("cas.checkout.writers._BATCH_FILES", 2)
    done = checkout(objects, tree.digest, dest, workers=workers)
    assert contents(dest) == MODEL
    assert (done.files, done.bytes) == (tree.files, tree.bytes)
    assert (done.dest, done.proof) == (dest, "content")


def test_a_store_in_memory_can_be_checked_out(dest):
    objects = ObjectStore(MemoryBackend(), loose_threshold=10_000)
    checkout(objects, put_model(objects, MODEL).digest, dest)
    assert contents(dest) == MODEL


def test_the_empty_tree_is_an_empty_directory(objects, dest):
    checkout(objects, put_model(objects, {}).digest, dest, memory=state())
    assert contents(dest) == {}
    assert status(dest).clean


def test_files_are_writable_by_their_owner_and_follow_the_umask(objects, tree, dest):
    before = os.umask(0o027)
    try:
        checkout(objects, tree.digest, dest)
    finally:
        os.umask(before)
    modes = {
        name: stat.S_IMODE(os.lstat(dest / name).st_mode) for name in ("README.md", "run", "deep")
    }
    assert modes == {"README.md": 0o640, "run": 0o750, "deep": 0o750}
    assert stat.S_IMODE(dest.stat().st_mode) == 0o750


def test_missing_parents_are_made(objects, tree, tmp_path):
    checkout(objects, tree.digest, tmp_path / "a" / "b" / "work")
    assert contents(tmp_path / "a" / "b" / "work") == MODEL


def test_an_empty_directory_is_replaced_and_keeps_its_mode(objects, tree, dest):
    dest.mkdir(mode=0o700)
    checkout(objects, tree.digest, dest)
    assert contents(dest) == MODEL
    assert stat.S_IMODE(dest.stat().st_mode) == 0o700


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_with_a_strangers_file_is_not_touched(objects, tree, dest, force):
    dest.mkdir()
    (dest / "mine").write_text("mine")
    with pytest.raises(ConflictError, match="work"):
        checkout(objects, tree.digest, dest, force=force)
    assert os.listdir(dest) == ["mine"]
    assert siblings(dest) == ["store", "work"]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_what_is_no_directory_is_not_touched(objects, tree, dest, tmp_path, kind, force):
    target = tmp_path / "elsewhere"
    target.mkdir()
    if kind == "file":
        dest.write_text("mine")
    else:
        dest.symlink_to(target if kind == "link" else "nowhere")
    with pytest.raises(ConflictError):
        checkout(objects, tree.digest, dest, force=force)
    assert os.listdir(target) == []
    assert dest.is_symlink() or dest.read_text() == "mine"


def test_what_appears_at_the_destination_meanwhile_is_not_touched(objects, tree, dest, monkeypatch):
    real = fs.sync_filesystem

    def sync(fd):
        dest.mkdir()
        (dest / "mine").write_text("mine")
        real(fd)

    monkeypatch.setattr(fs, "sync_filesystem", sync)
    with pytest.raises(ConflictError):
        checkout(objects, tree.digest, dest, memory=state())
    assert os.listdir(dest) == ["mine"]
    assert siblings(dest) == ["store", "work"]
    assert list(remembered(objects.backend)) == []


def test_the_root_directory_is_no_destination(objects, tree):
    with pytest.raises(RefusedError, match="root directory"):
        checkout(objects, tree.digest, "/")


def test_a_name_as_long_as_can_be_is_a_destination(objects, tree, tmp_path):
    checkout(objects, tree.digest, tmp_path / ("n" * 255))
    assert contents(tmp_path / ("n" * 255)) == MODEL


def test_nothing_is_left_beside_the_destination(objects, tree, dest):
    checkout(objects, tree.digest, dest, memory=state())
    assert siblings(dest) == ["store", "work"]


def test_a_staging_directory_that_a_crash_left_is_removed(objects, tree, dest):
    stale = dest.parent / ".work.cas-0123456789abcdef"
    (stale / "some" / "thing").mkdir(parents=True)
    other = dest.parent / ".work.cas-not-ours"
    other.mkdir()
    checkout(objects, tree.digest, dest)
    assert not stale.exists()
    assert other.exists()


def test_a_staging_directory_in_use_is_left_alone(objects, tree, dest):
    busy = dest.parent / ".work.cas-0123456789abcdef"
    busy.mkdir()
    hold = (
        "import fcntl, os, sys\n"
        f"fd = os.open({str(busy)!r}, os.O_RDONLY)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        holder.stdout.readline()
        checkout(objects, tree.digest, dest)
        assert busy.exists()
        holder.stdin.close()


def test_no_sync_syncs_nothing(objects, tree, dest):
    with faults.watch() as watched:
        checkout(objects, tree.digest, dest, sync=False)
    assert not {"fsync", "fsync_dir", "sync_filesystem"} & set(watched.calls)


def test_everything_is_synced_before_the_directory_has_its_name(objects, tree, dest):
    with faults.watch() as watched:
        checkout(objects, tree.digest, dest)
    last = [call for call in watched.calls if call in ("sync_filesystem", "rename", "fsync_dir")]
    assert last[-3:] == ["sync_filesystem", "rename", "fsync_dir"]
    assert "write" not in watched.calls[watched.calls.index("sync_filesystem") :]


def test_a_full_disk_leaves_nothing(objects, tree, dest):
    with faults.fail(3, errno.ENOSPC, on={"write"}) as injected, pytest.raises(DiskFullError):
        checkout(objects, tree.digest, dest)
    assert injected.fired
    assert siblings(dest) == ["store"]


def test_a_missing_object_is_said_and_leaves_nothing(objects, dest):
    tree = put_model(objects, {b"a": ("file", LARGE)})
    os.unlink(objects.loose_path(hash_bytes(LARGE)))
    with pytest.raises(MissingObjectError):
        checkout(objects, tree.digest, dest)
    assert siblings(dest) == ["store"]


def test_a_corrupt_large_object_is_said_and_leaves_nothing(objects, dest):
    tree = put_model(objects, {b"a": ("file", LARGE)})
    path = objects.loose_path(hash_bytes(LARGE))
    path.chmod(0o644)
    path.write_bytes(LARGE[:-1] + b"!")
    with pytest.raises(CorruptObjectError):
        checkout(objects, tree.digest, dest)
    assert siblings(dest) == ["store"]


def test_verify_reads_back_what_was_written(objects, tree, dest, monkeypatch):
    real = fs.sync_filesystem
    assert checkout(objects, tree.digest, dest, verify=True).files == tree.files

    def write(fd, content, offset):
        return os.pwrite(fd, bytes(len(content)), offset)  # a disk that lies

    monkeypatch.setattr(fs, "pwrite", write)
    with pytest.raises(CorruptObjectError, match="read back"):
        checkout(objects, tree.digest, dest.parent / "other", verify=True)
    assert siblings(dest) == ["store", "work"]
    assert fs.sync_filesystem is real


def test_holes_of_a_large_file_stay_holes(tmp_path, dest):
    objects = ObjectStore(LocalBackend(tmp_path / "store", create=True), loose_threshold=10_000)
    source = tmp_path / "sparse"
    with source.open("wb") as file:
        file.seek(8 << 20)
        file.write(b"data")
        file.truncate(16 << 20)
    with objects.writer() as writer, source.open("rb") as file:
        digest = writer.put_large(file.fileno(), 16 << 20)
        writer.flush()
    with objects.writer() as writer:
        builder = TreeBuilder(writer.put)
        builder.add(b"sparse", FILE, 16 << 20, digest)
        tree = builder.finish()
        writer.flush()
    checkout(objects, tree.digest, dest, mode="copy")
    assert (dest / "sparse").read_bytes() == source.read_bytes()
    assert (dest / "sparse").stat().st_blocks <= source.stat().st_blocks + 64


# --- only --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("globs", "left"),
    [
        (["*.md"], {b"README.md": MODEL[b"README.md"]}),
        (["media/"], {b"media": MODEL[b"media"]}),
        (["/media/*", "!copy"], {b"media": {k: MODEL[b"media"][k] for k in (b"clip", b"tool")}}),
        (["still"], {b"deep": MODEL[b"deep"]}),
        (["empty/"], {b"empty": {}}),
        (["-rf"], {b"deep": {b"er": {b"still": {b"-rf": ("file", b"x")}}}}),
    ],
)
def test_only_matching_paths_and_their_parents_are_written(objects, tree, dest, globs, left):
    done = checkout(objects, tree.digest, dest, only=globs, memory=state())
    assert contents(dest) == left
    assert load(dest).only == tuple(globs)
    assert status(dest).clean
    assert done.files <= tree.files


def test_globs_that_match_nothing_are_refused(objects, tree, dest):
    with pytest.raises(RefusedError, match="nothing"):
        checkout(objects, tree.digest, dest, only=["*.py"])
    with pytest.raises(RefusedError, match="only"):
        checkout(objects, tree.digest, dest, only=["a\\"])
    assert siblings(dest) == ["store"]


# --- force -------------------------------------------------------------------------------------


def test_force_replaces_a_workspace_that_nobody_changed(objects, tree, dest):
    checkout(objects, tree.digest, dest, memory=state())
    other = put_model(objects, {b"new": ("file", b"new")})
    first = load(dest).id
    checkout(objects, other.digest, dest, memory=state(), force=True)
    assert contents(dest) == {b"new": ("file", b"new")}
    assert siblings(dest) == ["store", "work"]
    assert [one.id for one in remembered(objects.backend)] == [load(dest).id] != [first]


def test_force_works_without_a_way_to_swap_names(objects, tree, dest, monkeypatch):
    def exchange(*_):
        raise OSError(errno.EINVAL, "no such thing")

    monkeypatch.setattr(fs, "exchange", exchange)
    checkout(objects, tree.digest, dest, memory=state())
    other = put_model(objects, {b"new": ("file", b"new")})
    checkout(objects, other.digest, dest, memory=state(), force=True)
    assert contents(dest) == {b"new": ("file", b"new")}
    assert siblings(dest) == ["store", "work"]


@pytest.mark.parametrize("edit", ["add", "change", "delete"])
def test_force_keeps_a_workspace_that_a_person_changed(objects, tree, dest, edit):
    checkout(objects, tree.digest, dest, memory=state())
    if edit == "add":
        (dest / "mine").write_text("mine")
    elif edit == "change":
        (dest / "README.md").write_text("mine")
    else:
        (dest / "README.md").unlink()
    before = contents(dest)
    with pytest.raises(ConflictError, match="changed"):
        checkout(objects, tree.digest, dest, memory=state(), force=True)
    assert contents(dest) == before
    assert siblings(dest) == ["store", "work"]


def test_force_swaps_back_when_a_person_was_faster(objects, tree, dest, monkeypatch):
    checkout(objects, tree.digest, dest, memory=state())
    real = fs.sync_filesystem

    def sync(fd):
        (dest / "mine").write_text("mine")
        real(fd)

    monkeypatch.setattr(fs, "sync_filesystem", sync)
    with pytest.raises(ConflictError):
        checkout(objects, tree.digest, dest, memory=state(), force=True)
    assert contents(dest) == {**MODEL, b"mine": ("file", b"mine")}
    assert siblings(dest) == ["store", "work"]
    assert [one.id for one in remembered(objects.backend)] == [load(dest).id]


def test_force_on_nothing_is_a_plain_checkout(objects, tree, dest):
    checkout(objects, tree.digest, dest, force=True)
    assert contents(dest) == MODEL


# --- what the store remembers ------------------------------------------------------------------


def test_the_store_remembers_the_workspace(objects, tree, dest):
    checkout(objects, tree.digest, dest, memory=state())
    [known] = remembered(objects.backend)
    assert (known.path, known.spec, known.trees) == (dest, "skills@v1", (tree.digest,))
    assert known.device == dest.stat().st_dev
    assert known.id == load(dest).id


def test_a_checkout_without_memory_is_an_ordinary_directory(objects, tree, dest):
    checkout(objects, tree.digest, dest)
    assert not (dest / ".cas-workspace").exists()
    assert list(remembered(objects.backend)) == []


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_a_read_only_store_remembers_nothing(objects, tree, dest, monkeypatch, error):
    def put(key, content, *, durable=True):
        raise EnvironmentFailure("read-only", errno=error)

    monkeypatch.setattr(objects.backend, "put", put)
    checkout(objects, tree.digest, dest, memory=state())
    assert contents(dest) == MODEL
    assert list(remembered(objects.backend)) == []


def test_an_entry_with_the_name_of_the_memory_is_refused(objects, dest):
    tree = put_model(objects, {b"a": {b".cas-workspace": {b"state": ("file", b"")}}})
    with pytest.raises(RefusedError, match=r"a/\.cas-workspace"):
        checkout(objects, tree.digest, dest)
    assert siblings(dest) == ["store"]


def test_a_symlink_that_no_system_can_make_is_refused(objects, dest):
    for target in (b"", b"a\0b"):
        tree = put_model(objects, {b"link": ("symlink", target)})
        with pytest.raises(RefusedError, match="symlink"):
            checkout(objects, tree.digest, dest)
    tree = put_model(objects, {b"link": ("symlink", b"t" * 5000)})
    with pytest.raises((RefusedError, EnvironmentFailure)):
        checkout(objects, tree.digest, dest)
    assert siblings(dest) == ["store"]


def test_an_unknown_mode_is_refused(objects, tree, dest):
    with pytest.raises(RefusedError, match="fast"):
        checkout(objects, tree.digest, dest, mode="fast")


def test_a_mount_point_is_refused(objects, tree, dest, monkeypatch):
    dest.mkdir()
    real = os.stat

    def look(path, **options):
        st = real(path, **options)
        if path in (b"work", "work"):
            values = list(st)
            values[2] += 1
            return os.stat_result(values)
        return st

    monkeypatch.setattr(os, "stat", look)
    with pytest.raises(UnsupportedError, match="mount point"):
        checkout(objects, tree.digest, dest)


def test_replacing_the_current_directory_is_said(objects, tree, dest, monkeypatch):
    dest.mkdir()
    monkeypatch.chdir(dest)
    done = checkout(objects, tree.digest, ".")
    assert any("current directory" in notice for notice in done.notices)
    assert contents(dest) == MODEL


def test_what_a_crash_left_and_cannot_be_removed_is_no_obstacle(objects, tree, dest, monkeypatch):
    stale = dest.parent / ".work.cas-0123456789abcdef"
    stale.mkdir()
    real = fs.rmdir

    def rmdir(path, dir_fd=None):
        if os.fsdecode(path) == stale.name:
            raise PermissionError(errno.EPERM, "another user's")
        real(path, dir_fd)

    monkeypatch.setattr(fs, "rmdir", rmdir)
    checkout(objects, tree.digest, dest)
    assert contents(dest) == MODEL


@pytest.mark.parametrize("force", [False, True])
def test_a_workspace_that_is_in_place_stays_remembered_when_the_last_sync_fails(
    objects, tree, dest, force, monkeypatch
):
    if force:
        checkout(objects, tree.digest, dest, memory=state())
    real = fs.fsync_dir

    def fsync_dir(directory):
        if isinstance(directory, int) and os.path.samestat(os.fstat(directory), dest.parent.stat()):
            raise OSError(errno.EIO, "broken")
        real(directory)

    monkeypatch.setattr(fs, "fsync_dir", fsync_dir)
    with pytest.raises(EnvironmentFailure):
        checkout(objects, tree.digest, dest, memory=state(), force=force)
    assert status(dest).clean
    assert load(dest).id in {one.id for one in remembered(objects.backend)}
