"""Writing objects: what is counted, what is sealed when, and how large files come in."""

from __future__ import annotations

import os
import random
import time

import pytest

from cas import fs
from cas.backends import LocalBackend, MemoryBackend
from cas.digest import hash_bytes
from cas.errors import (
    CorruptObjectError,
    DiskFullError,
    MissingObjectError,
    SourceChangedError,
)
from cas.objects import ObjectStore, large
from cas.objects.loose import loose_key
from cas.testing import faults
from cas.testing.damage import cut
from cas.testing.objects import check_holds, check_sound, sample


@pytest.fixture(params=["local", "memory"])
def backend(request, tmp_path):
    if request.param == "memory":
        yield MemoryBackend()
        return
    backend = LocalBackend(tmp_path / "store", create=True)
    yield backend
    backend.close()


@pytest.fixture
def local(tmp_path):
    backend = LocalBackend(tmp_path / "store", create=True)
    yield backend
    backend.close()


@pytest.fixture
def source(tmp_path):
    """Give a function that makes a file, old enough for its stat to be trusted."""
    opened = []

    def make(content, name="source"):
        path = tmp_path / name
        path.write_bytes(content)
        opened.append(os.open(path, os.O_RDWR))
        return opened[-1]

    yield make
    for fd in opened:
        os.close(fd)


def settle_clock():
    time.sleep(2 * fs.CLOCK_GRAIN_NS / 1e9)


def take(store, fd, **options):
    with store.writer() as writer:
        digest = writer.put_large(fd, os.fstat(fd).st_size, source="the file", **options)
        writer.flush()
        return digest, writer.new_objects


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


def test_what_is_new_is_counted(backend):
    with ObjectStore(backend).writer() as writer:
        writer.put(b"text " * 100)
        writer.put(b"text " * 100)
        writer.put(b"12345")
        writer.put(noise(2 << 20))
        writer.flush()
        assert writer.new_objects == 3
        assert writer.new_bytes == 505 + (2 << 20)
        assert 5 + (2 << 20) < writer.stored_bytes < 100 + (2 << 20)


def test_a_long_add_is_sealed_pack_by_pack_and_forgotten(backend):
    store = ObjectStore(backend, pack_target=10_000)
    expected = {}
    with store.writer() as writer:
        for seed in range(40):
            for content in sample(10, seed=seed):
                expected[writer.put(content)] = content
        assert len(writer._new) < 100
        assert all(writer.known(digest) for digest in expected)
        for content in expected.values():
            writer.put(content)
        writer.flush()
        assert writer.new_objects == len(expected)
    assert len(list(backend.list("index/"))) < 20
    check_holds(ObjectStore(backend), expected)
    check_sound(ObjectStore(backend))


def test_a_writer_goes_on_after_a_flush(backend):
    store = ObjectStore(backend)
    with store.writer() as writer:
        expected = {writer.put(b"one"): b"one"}
        writer.flush()
        check_holds(ObjectStore(backend), expected)
        expected[writer.put(b"two")] = b"two"
        writer.put(b"one")
        writer.flush()
        writer.flush()
    check_holds(ObjectStore(backend), expected)
    assert ObjectStore(backend).count() == 2


def test_what_workers_stored_is_adopted(backend):
    parent = ObjectStore(backend).writer()
    digest = hash_bytes(b"by a worker")
    assert not parent.known(digest)
    parent.promise(digest)
    assert parent.known(digest)
    with ObjectStore(backend).writer() as worker:
        worker.put(b"by a worker")
        worker.flush()
        written = worker.written()
        assert written == {"objects": 1, "bytes": 11, "stored": 11}
        assert worker.written() == {"objects": 0, "bytes": 0, "stored": 0}
    parent.adopt(written)
    assert parent.known(digest)
    parent.flush()
    assert (parent.new_objects, parent.new_bytes) == (1, 11)
    parent.__exit__(None, None, None)


def test_relied_directories_are_synced_before_a_flush_returns(local):
    store = ObjectStore(local)
    contents = [b"small", noise(1 << 20)]
    with store.writer() as writer:
        for content in contents:
            writer.put(content)
        writer.flush()
    with faults.watch() as watched, ObjectStore(local).writer() as writer:
        for content in contents:
            writer.put(content)
        assert "fsync_dir" not in watched.calls
        writer.flush()
        assert watched.calls.count("fsync_dir") >= 2


def test_a_full_disk_is_said_and_what_was_flushed_stays(local):
    store = ObjectStore(local, pack_target=5_000)
    with store.writer() as writer:
        expected = {writer.put(b"before"): b"before"}
        writer.flush()
    for injection in faults.every_failure(28):
        with injection, ObjectStore(local, pack_target=5_000).writer() as writer:
            try:
                for content in sample(12):
                    writer.put(content)
                writer.put(noise(1 << 20))
                writer.flush()
            except DiskFullError:
                assert injection.fired
        check_holds(ObjectStore(local), expected)
    check_sound(ObjectStore(local))


# --- large files -------------------------------------------------------------------------------


def test_a_large_file_comes_in_whole_and_proven(backend, source):
    content = noise(9 << 20)
    digest, new = take(ObjectStore(backend), source(content))
    assert (digest, new) == (hash_bytes(content), 1)
    store = ObjectStore(backend)
    check_holds(store, {digest: content})
    assert store.proven(digest) == (backend.local is not None)


@pytest.mark.parametrize("size", [0, 1, large.PIECE - 1, large.PIECE, large.PIECE + 1])
def test_any_size_comes_in(backend, source, size):
    content = noise(size)
    digest, _ = take(ObjectStore(backend), source(content))
    check_holds(ObjectStore(backend), {digest: content})


def test_a_sparse_file_stays_sparse(local, source, tmp_path):
    fd = source(b"begin")
    os.ftruncate(fd, 64 << 20)
    os.pwrite(fd, b"end", (64 << 20) - 3)
    digest, _ = take(ObjectStore(local), fd)
    assert digest == hash_bytes((tmp_path / "source").read_bytes())
    path = ObjectStore(local).loose_path(digest)
    assert path.stat().st_size == 64 << 20
    assert path.stat().st_blocks * 512 < 8 << 20


def test_a_large_file_that_is_stored_is_not_stored_again(backend, source):
    content = noise(3 << 20)
    store = ObjectStore(backend)
    digest, _ = take(store, source(content))
    assert take(store, source(content, "again")) == (digest, 0)
    settle_clock()
    assert take(store, source(content, "again")) == (digest, 0)
    with store.writer() as writer:
        assert writer.put(content) == digest
        assert writer.new_objects == 0


def test_a_large_file_is_not_copied_when_it_looks_like_a_stored_one(local, source, monkeypatch):
    content = noise(3 << 20)
    store = ObjectStore(local)
    digest, _ = take(store, source(content))
    fd = source(content, "again")
    other = source(content[:1_000_000] + b"?" + content[1_000_001:], "like it, but not in a sample")
    settle_clock()
    staged = []
    monkeypatch.setattr(local, "stage", lambda real=local.stage: staged.append(1) or real())
    with store.writer() as writer:
        assert writer.put_large(fd, len(content)) == digest
        assert staged == []
        assert writer.put_large(other, len(content)) != digest
        writer.put_large(fd, len(content))
        writer.flush()
        assert writer.new_objects == 1


def test_equal_files_in_one_add_are_stored_once(backend, source):
    content = noise(2 << 20)
    one, two = source(content, "one"), source(content, "two")
    with ObjectStore(backend).writer() as writer:
        assert writer.put_large(one, len(content)) == writer.put_large(two, len(content))
        writer.flush()
        assert writer.new_objects == 1


def test_a_source_of_another_size_is_refused(backend, source):
    fd = source(b"12345")
    with ObjectStore(backend).writer() as writer, pytest.raises(SourceChangedError, match="notes"):
        writer.put_large(fd, 6, source="notes")


@pytest.mark.parametrize("change", ["touch", "grow", "shrink"])
def test_a_source_that_changes_while_it_is_read_is_refused(backend, source, monkeypatch, change):
    content = noise(large.PIECE + 100)
    fd = source(content)
    real = os.preadv

    def preadv(file, buffers, offset):
        count = real(file, buffers, offset)
        if file == fd and offset == 0:
            size = len(content) + {"touch": 0, "grow": 1, "shrink": -1}[change]
            os.ftruncate(fd, size)
            os.utime(fd, ns=(5, 5))
        return count

    monkeypatch.setattr(os, "preadv", preadv)
    with ObjectStore(backend).writer() as writer:
        with pytest.raises(SourceChangedError, match="the file"):
            writer.put_large(fd, len(content), source="the file")
        writer.flush()
    assert ObjectStore(backend).count() == 0


def pretend_clone(src_fd, dst_fd):
    os.pwrite(dst_fd, os.pread(src_fd, 1 << 30, 0), 0)
    return True


def test_blocks_are_shared_where_that_works(local, source, monkeypatch):
    monkeypatch.setattr(fs, "clone", pretend_clone)
    content = noise(2 << 20)
    fd = source(content)
    settle_clock()
    with faults.watch(on={"write"}) as watched:
        digest, _ = take(ObjectStore(local), fd)
    check_holds(ObjectStore(local), {digest: content})
    assert len(watched.calls) < 3  # the proof, not the content


def test_a_young_source_is_not_hashed_in_place_of_its_clone(local, source, monkeypatch):
    content = noise(2 << 20)
    fd = source(content)
    hashed = []
    real = large.hash_fd
    monkeypatch.setattr(fs, "clone", pretend_clone)
    monkeypatch.setattr(large, "hash_fd", lambda file, **_: hashed.append(file) or real(file))
    os.utime(fd)
    take(ObjectStore(local), fd)
    settle_clock()
    assert fd not in hashed
    fd = source(noise(2 << 20, seed=2), "old")
    settle_clock()
    take(ObjectStore(local), fd)
    assert fd in hashed


def test_a_source_that_changes_around_its_clone_is_refused(local, source, monkeypatch):
    content = noise(2 << 20)
    fd = source(content)
    settle_clock()

    def clone(src_fd, dst_fd):
        pretend_clone(src_fd, dst_fd)
        os.pwrite(fd, b"changed", 0)
        return True

    monkeypatch.setattr(fs, "clone", clone)
    with pytest.raises(SourceChangedError):
        take(ObjectStore(local), fd)
    assert ObjectStore(local).count() == 0


def test_no_blocks_are_shared_when_that_is_not_wanted(local, source, monkeypatch):
    monkeypatch.setattr(fs, "clone", lambda *fds: pytest.fail("cloned"))
    content = noise(2 << 20)
    digest, _ = take(ObjectStore(local), source(content), clone_ok=False)
    check_holds(ObjectStore(local), {digest: content})


def test_a_loose_object_that_was_cut_is_replaced_by_the_next_add(local, source):
    content = noise(2 << 20)
    store = ObjectStore(local)
    digest, _ = take(store, source(content))
    cut(local.path(loose_key(digest)), 1000)
    assert take(store, source(content)) == (digest, 1)
    check_holds(ObjectStore(local), {digest: content})
    cut(local.path(loose_key(digest)), 1000)
    with store.writer() as writer:
        writer.put(content)
        writer.flush()
    check_holds(ObjectStore(local), {digest: content})


def test_a_loose_object_relied_on_must_still_be_there(local, source):
    content = noise(2 << 20)
    store = ObjectStore(local)
    digest, _ = take(store, source(content))
    path = local.path(loose_key(digest))
    with store.writer() as writer:
        assert writer.known(digest)
        cut(path, 1000)
        with pytest.raises(CorruptObjectError, match=loose_key(digest)):
            writer.flush()
    with store.writer() as writer:
        assert writer.known(digest)
        path.unlink()
        with pytest.raises(MissingObjectError, match=str(digest)):
            writer.flush()


def test_an_object_in_a_pack_is_not_stored_loose_as_well(backend, source):
    content = noise(2 << 20)
    with ObjectStore(backend, loose_threshold=4 << 20).writer() as writer:
        writer.put(content)
        writer.flush()
    store = ObjectStore(backend)
    assert take(store, source(content))[1] == 0
    with store.writer() as writer:
        writer.put(content)
        writer.flush()
        assert writer.new_objects == 0
    assert store.totals().loose == 0
