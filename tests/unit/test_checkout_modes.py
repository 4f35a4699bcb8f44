"""What each mode gives, and that no edit in a workspace reaches the store unnoticed."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from cas import fs
from cas.backends import LocalBackend, MemoryBackend
from cas.checkout import checkout, update
from cas.digest import hash_bytes
from cas.errors import CorruptObjectError, UnsupportedError
from cas.objects import ObjectStore
from cas.testing.strategies import read_back
from cas.testing.trees import put_model
from cas.workspace import WorkspaceState, status, verify_workspace

LARGE = b"large " * 4000
OTHER = b"other " * 4000
MODEL = {
    b"small": ("file", b"small"),
    b"run": ("exec", b"#!/bin/sh\n"),
    b"clip": ("file", LARGE),
    b"tool": ("exec", LARGE),
    b"link": ("symlink", b"clip"),
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


def state():
    return WorkspaceState(store_path="/the/store", store_id="1" * 32, spec="skills@v1")


def contents(path):
    model = read_back(path)
    model.pop(b".cas-workspace", None)
    return model


def check_store(objects):
    for content in (LARGE, MODEL[b"small"][1], MODEL[b"run"][1]):
        assert objects.read(hash_bytes(content)) == content


@pytest.fixture
def clones(monkeypatch):
    """Make a filesystem that shares no blocks look like one that does."""
    calls = []

    def clone(source, target):
        calls.append(source)
        os.pwrite(target, os.pread(source, 1 << 20, 0), 0)
        return True

    monkeypatch.setattr(fs, "clone", clone)
    return calls


@pytest.fixture
def no_clones(monkeypatch):
    monkeypatch.setattr(fs, "clone", lambda source, target: False)


def test_auto_copies_where_blocks_cannot_be_shared(objects, tree, dest, no_clones):
    done = checkout(objects, tree.digest, dest)
    assert (done.mode, done.proof) == ("copy", "content")
    assert contents(dest) == MODEL


def test_auto_shares_blocks_where_it_can_and_says_so(objects, tree, dest, clones):
    done = checkout(objects, tree.digest, dest)
    assert (done.mode, done.proof) == ("reflink", "stat")
    assert contents(dest) == MODEL
    assert len(clones) == 2


def test_auto_without_large_files_says_copy(objects, dest, clones):
    tree = put_model(objects, {b"small": ("file", b"small")})
    done = checkout(objects, tree.digest, dest)
    assert (done.mode, done.proof) == ("copy", "content")


def test_copy_never_shares_blocks(objects, tree, dest, clones):
    assert checkout(objects, tree.digest, dest, mode="copy").mode == "copy"
    assert clones == []


def test_reflink_is_refused_where_it_cannot_be_had(objects, tree, dest, no_clones):
    with pytest.raises(UnsupportedError, match="reflink"):
        checkout(objects, tree.digest, dest, mode="reflink")
    assert sorted(os.listdir(dest.parent)) == ["store"]


def test_a_clone_stands_on_a_proof_and_is_hashed_without_one(objects, tree, dest, clones):
    path = objects.loose_path(hash_bytes(LARGE))
    path.chmod(0o644)
    path.write_bytes(LARGE[:-1] + b"!")
    with pytest.raises(CorruptObjectError):
        checkout(objects, tree.digest, dest)
    assert not dest.exists()


def test_hard_links_are_read_only_and_the_rest_is_read_only_copies(objects, tree, dest):
    done = checkout(objects, tree.digest, dest, mode="hardlink", memory=state())
    assert (done.mode, done.proof) == ("hardlink", "stat")
    assert any("store" in notice for notice in done.notices)
    assert contents(dest) == MODEL
    modes = {name: stat.S_IMODE(os.lstat(dest / os.fsdecode(name)).st_mode) for name in MODEL}
    del modes[b"link"]
    assert modes == {b"small": 0o444, b"run": 0o555, b"clip": 0o444, b"tool": 0o555}
    assert os.path.samefile(dest / "clip", objects.loose_path(hash_bytes(LARGE)))
    assert not os.path.samefile(dest / "tool", dest / "clip")
    assert status(dest).clean


def test_a_link_leaves_the_proof_of_a_stored_file_good(objects, tree, dest):
    objects.prove(hash_bytes(LARGE))
    checkout(objects, tree.digest, dest, mode="hardlink")
    checkout(objects, tree.digest, dest.parent / "again", mode="hardlink")
    assert objects.proven(hash_bytes(LARGE))


def test_an_edit_forced_through_a_hard_link_is_detected(objects, tree, dest):
    checkout(objects, tree.digest, dest, mode="hardlink", memory=state())
    before = os.stat(dest / "clip")
    (dest / "clip").chmod(0o644)
    (dest / "clip").write_bytes(LARGE[:-1] + b"!")
    os.utime(dest / "clip", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert status(dest).changed == (b"clip",)
    assert [one.path for one in verify_workspace(dest).differences] == [b"clip"]
    assert not objects.proven(hash_bytes(LARGE))
    with pytest.raises(CorruptObjectError):
        objects.read(hash_bytes(LARGE))
    with pytest.raises(CorruptObjectError):
        checkout(objects, tree.digest, dest.parent / "again", mode="hardlink")


def test_another_workspace_of_hard_links_does_not_make_the_first_look_changed(objects, tree, dest):
    checkout(objects, tree.digest, dest, mode="hardlink", memory=state())
    checkout(objects, tree.digest, dest.parent / "again", mode="hardlink", memory=state())
    assert status(dest).clean


@pytest.mark.parametrize("error", [errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP])
def test_hard_links_are_refused_by_name_where_they_cannot_be_had(
    objects, tree, dest, monkeypatch, error
):
    def link(*_, **__):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fs, "link", link)
    with pytest.raises(UnsupportedError, match="hardlink"):
        checkout(objects, tree.digest, dest, mode="hardlink")
    assert sorted(os.listdir(dest.parent)) == ["store"]


def test_a_stored_file_with_too_many_links_is_copied(objects, tree, dest, monkeypatch):
    real = fs.link

    def link(source, target, **options):
        if "loose" in os.fspath(source):
            raise OSError(errno.EMLINK, "too many links")
        real(source, target, **options)

    monkeypatch.setattr(fs, "link", link)
    checkout(objects, tree.digest, dest, mode="hardlink")
    assert contents(dest) == MODEL
    assert not os.path.samefile(dest / "clip", objects.loose_path(hash_bytes(LARGE)))


@pytest.mark.parametrize("mode", ["hardlink", "reflink"])
def test_a_store_in_memory_can_only_be_copied(dest, mode):
    objects = ObjectStore(MemoryBackend(), loose_threshold=10_000)
    tree = put_model(objects, MODEL)
    with pytest.raises(UnsupportedError, match=mode):
        checkout(objects, tree.digest, dest, mode=mode)


@pytest.mark.parametrize("mode", ["copy", "auto"])
def test_no_edit_in_a_workspace_reaches_the_store(objects, tree, dest, mode):
    checkout(objects, tree.digest, dest, mode=mode, memory=state())
    for name in ("small", "run", "clip", "tool"):
        (dest / name).chmod(0o600)
        with (dest / name).open("r+b") as file:
            file.write(b"!!")
            file.truncate(3)
    check_store(objects)


def test_an_edit_that_replaces_a_hard_link_does_not_reach_the_store(objects, tree, dest):
    checkout(objects, tree.digest, dest, mode="hardlink", memory=state())
    (dest / "new").write_bytes(b"mine")
    os.replace(dest / "new", dest / "clip")
    assert status(dest).changed == (b"clip",)
    check_store(objects)


def test_an_update_stays_with_hard_links(objects, tree, dest):
    checkout(objects, tree.digest, dest, mode="hardlink", memory=state())
    other = put_model(objects, {**MODEL, b"clip": ("file", OTHER), b"small": ("file", b"2")})
    done = update(objects, dest, other.digest, memory=state())
    assert done.mode == "hardlink"
    assert os.path.samefile(dest / "clip", objects.loose_path(hash_bytes(OTHER)))
    assert stat.S_IMODE((dest / "small").stat().st_mode) == 0o444
    assert status(dest).clean
    check_store(objects)
