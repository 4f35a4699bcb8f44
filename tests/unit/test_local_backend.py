"""What the local backend promises beyond the protocol: modes, litter, errors, the reserve."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
import sys

import pytest

from cas import fs
from cas.backends import LocalBackend, Missing
from cas.errors import (
    DiskFullError,
    EnvironmentFailure,
    OutcomeUnknownError,
    RefusedError,
    UnsupportedError,
)
from cas.testing import faults


@pytest.fixture
def backend(tmp_path):
    backend = LocalBackend(tmp_path / "store", create=True)
    yield backend
    backend.close()


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def modes(root):
    found = {}
    for path in [root, *root.rglob("*")]:
        found[path.relative_to(root).as_posix()] = f"{stat.S_IMODE(path.stat().st_mode):o}"
    return found


def fill(root, **options):
    backend = LocalBackend(root, create=True, **options)
    backend.put_if_absent("packs/a", b"x")
    backend.put("workspaces/b", b"x")
    with backend.stage() as staging:
        staging.write(b"x")
        backend.put_if_absent("loose/ab/c", staging)
    backend.create_reserve()
    backend.close()
    return modes(root)


# --- opening ---


def test_a_missing_root_is_said(tmp_path):
    with pytest.raises(Missing, match="store"):
        LocalBackend(tmp_path / "store")
    (tmp_path / "file").touch()
    with pytest.raises(Missing, match="file"):
        LocalBackend(tmp_path / "file")


def test_a_root_is_made_with_the_folders_above_it(tmp_path):
    with faults.watch() as injection:
        LocalBackend(tmp_path / "a" / "b" / "store", create=True).close()
    assert injection.calls == ["mkdir", "fsync_dir"] * 3
    LocalBackend(tmp_path / "a" / "b" / "store", create=True).close()


def test_the_root_may_be_a_symlink(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "store").symlink_to("real")
    backend = LocalBackend(tmp_path / "store")
    backend.put("a", b"x")
    assert (tmp_path / "real" / "a").read_bytes() == b"x"
    assert backend.root == tmp_path / "store"
    assert backend.path("a") == tmp_path / "store" / "a"
    backend.close()


def test_opening_changes_nothing(tmp_path):
    (tmp_path / "store").mkdir()
    with faults.watch() as injection:
        backend = LocalBackend(tmp_path / "store")
        assert list(backend.list("")) == []
        with pytest.raises(Missing):
            backend.get("a")
        backend.close()
    assert injection.calls == []


# --- modes ---


def test_files_are_read_only_and_folders_follow_the_umask(tmp_path, umask):
    found = fill(tmp_path / "store")
    assert found["."] == found["packs"] == found["loose/ab"] == "755"
    assert found["packs/a"] == found["loose/ab/c"] == "444"
    assert found["workspaces/b"] == found["reserve"] == "644"
    umask(0o077)
    found = fill(tmp_path / "private")
    assert found["."] == found["packs"] == "700"
    assert found["packs/a"] == "400"
    assert found["workspaces/b"] == "600"


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_group_gets_its_rights_whatever_the_umask(tmp_path, umask, monkeypatch, unnamed):
    if not unnamed:
        monkeypatch.setattr(fs, "open_tmpfile", lambda *args: None)
    umask(0o077)
    found = fill(tmp_path / "store", shared_gid=os.getgid())
    assert found["."] == found["packs"] == found["loose/ab"] == found["tmp"] == "2770"
    assert found["packs/a"] == found["loose/ab/c"] == "440"
    assert found["workspaces/b"] == found["reserve"] == "660"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to another group")
def test_everything_belongs_to_the_group(tmp_path):
    fill(tmp_path / "store", shared_gid=12345)
    assert {path.stat().st_gid for path in (tmp_path / "store").rglob("*")} == {12345}
    assert (tmp_path / "store").stat().st_gid == 12345


# --- order and cost ---


@pytest.mark.skipif(not fs.can_link_fd(), reason="needs files without a name")
def test_a_put_syncs_content_then_name_then_folder(backend):
    with faults.watch() as injection:
        backend.put_if_absent("log/records/1", b"x" * 300)
    assert injection.calls == [
        *("open_tmpfile", "write", "fsync"),
        *("mkdir", "fsync_dir", "mkdir", "fsync_dir"),
        *("link_fd", "fsync", "fsync_dir"),
    ]
    with faults.watch() as injection:
        backend.put_if_absent("log/records/2", b"x" * 300)
    assert injection.calls == ["open_tmpfile", "write", "fsync", "link_fd", "fsync", "fsync_dir"]
    with faults.watch() as injection:
        assert not backend.put_if_absent("log/records/2", b"x" * 300)
    assert injection.calls == []


def test_a_folder_that_another_process_made_is_synced_too(backend, tmp_path):
    (tmp_path / "store" / "log" / "records").mkdir(parents=True)
    with faults.watch(on={"fsync_dir"}) as injection:
        backend.put_if_absent("log/records/1", b"x")
        backend.put_if_absent("log/records/2", b"x")
    assert injection.calls == ["fsync_dir"] * (3 + 1)


def test_settling_syncs_each_folder_once(backend):
    for number in range(5):
        backend.put(f"packs/{number}", b"x", durable=False)
        backend.put(f"index/{number}", b"x", durable=False)
    with faults.watch() as injection:
        backend.settle([f"{kind}/{number}" for kind in ("packs", "index") for number in range(5)])
    assert injection.calls == ["fsync"] * 10 + ["fsync_dir"] * 4
    with faults.watch() as injection:
        backend.settle(["packs/1", "packs/2"])
    assert injection.calls == ["fsync"] * 2 + ["fsync_dir"]


def test_settling_many_keys_syncs_the_filesystem_once(backend):
    keys = [f"packs/{number}" for number in range(100)]
    for key in keys:
        backend.put(key, b"x", durable=False)
    with faults.watch() as injection:
        backend.settle(keys)
    assert injection.calls == ["sync_filesystem"]


def test_a_put_that_need_not_be_durable_syncs_nothing(backend):
    with faults.watch() as injection:
        backend.put("log/head", b"x", durable=False)
    assert not {"fsync", "fsync_dir", "sync_filesystem"} & set(injection.calls)


# --- errors ---


@pytest.mark.parametrize("name", ["open_tmpfile", "write", "fsync", "link_fd", "mkdir"])
def test_a_full_disk_is_said_with_the_place(backend, name):
    with faults.fail(1, errno.ENOSPC, on={name}), pytest.raises(DiskFullError) as caught:
        backend.put_if_absent("packs/a", b"x")
    assert "packs/a" in str(caught.value)
    assert str(backend.root) in caught.value.facts["path"]
    assert backend.put_if_absent("packs/a", b"x")


def test_a_full_disk_is_said_while_staging(backend):
    with backend.stage() as staging:
        with faults.fail(1, errno.ENOSPC, on={"write"}), pytest.raises(DiskFullError):
            staging.write(b"x")
        with faults.fail(1, errno.EIO, on={"pread"}), pytest.raises(EnvironmentFailure):
            staging.read_at(0, 1)


def test_a_name_that_may_be_lost_is_of_unknown_outcome(backend):
    for name, at in (("fsync_dir", 3), ("fsync", 2), ("link_fd", 1)):
        backend.close()
        backend = LocalBackend(backend.root)
        with faults.fail(at, errno.EIO, on={name}) as injection:
            with pytest.raises(OutcomeUnknownError) as caught:
                backend.put_if_absent(f"a/b/{name}", b"x")
            assert injection.fired
        assert caught.value.errno == errno.EIO
        assert caught.value.facts["key"] == f"a/b/{name}"
    with faults.fail(1, errno.EIO, on={"fsync_dir"}), pytest.raises(OutcomeUnknownError):
        backend.put("k", b"x")
    backend.close()


def test_a_lost_acknowledgement_of_a_link_is_found_out(backend, monkeypatch):
    with faults.fail(1, errno.EEXIST, on={"link_fd"}, effect=True):
        assert backend.put_if_absent("a", b"x") is True
    monkeypatch.setattr(fs, "open_tmpfile", lambda *args: None)
    with faults.fail(1, errno.EEXIST, on={"link"}, effect=True):
        assert backend.put_if_absent("b", b"x") is True
    with faults.fail(1, errno.EEXIST, on={"link"}):
        assert backend.put_if_absent("c", b"x") is False


@pytest.mark.parametrize("missing", [errno.EINVAL, errno.ENOSYS])
def test_a_filesystem_that_cannot_place_safely_is_refused_by_name(backend, monkeypatch, missing):
    def refuse(code):
        def function(*args, **kwargs):
            raise OSError(code, os.strerror(code))

        return function

    monkeypatch.setattr(fs, "open_tmpfile", lambda *args: None)
    monkeypatch.setattr(fs, "link", refuse(errno.EPERM))
    monkeypatch.setattr(fs, "rename_noreplace", refuse(missing))
    with pytest.raises(UnsupportedError, match=str(backend.root)):
        backend.put_if_absent("a", b"x")
    assert list(backend.list("")) == []


def test_what_is_no_file_is_no_key(backend):
    root = backend.root
    (root / "link").symlink_to("/etc/passwd")
    (root / "folder").mkdir()
    (root / ".hidden").touch()
    (root / "a b").touch()
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
    with open(os.fsencode(root) + b"/\xff", "wb"):
        pass
    backend.put("good", b"x")
    assert [entry.key for entry in backend.list("")] == ["good"]
    for key in ("folder", "fifo", "link"):
        with pytest.raises(Missing):
            backend.open(key)
    with pytest.raises(EnvironmentFailure, match="socket"):
        backend.open("socket")


def test_a_staging_of_another_backend_is_refused(backend):
    from cas.backends import MemoryBackend

    with MemoryBackend().stage() as staging, pytest.raises(RefusedError):
        backend.put_if_absent("a", staging)


# --- staging by descriptor ---


def test_what_is_written_through_the_descriptor_counts(backend):
    with backend.stage() as staging:
        staging.write(b"head-")
        fs.pwrite(staging.fileno(), b"middle", 5)
        assert staging.tell() == 11
        staging.write(b"-tail")
        assert staging.tell() == 16
        assert backend.put_if_absent("a", staging)
        before = fs.stat_key(os.fstat(staging.fileno()))
    assert backend.get("a") == b"head-middle-tail"
    with backend.open("a") as reader:
        assert fs.stat_key(os.fstat(reader.fileno())) == before


# --- litter ---

WRITER = """
import sys
from cas import fs
from cas.backends import LocalBackend
if sys.argv[2] == "named":
    fs.open_tmpfile = lambda *args: None
backend = LocalBackend(sys.argv[1])
with backend.stage() as staging:
    staging.write(b"x" * 1000000)
    print("written", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["unnamed", "named"])
def test_a_killed_writer_leaves_nothing_for_long(backend, kind):
    command = [sys.executable, "-c", WRITER, backend.root, kind]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout.readline() == b"written\n"
        # One that is being written is nobody else's to sweep.
        other = LocalBackend(backend.root)
        other.put("a", b"x")
        other.close()
        there = len(os.listdir(backend.root / "tmp"))
        assert there == (kind == "named")
        process.send_signal(signal.SIGKILL)
    backend.put("b", b"x")
    assert os.listdir(backend.root / "tmp") == []
    assert [entry.key for entry in backend.list("")] == ["a", "b"]


def test_no_descriptor_is_left_open(tmp_path):
    before = set(os.listdir("/proc/self/fd"))
    backend = LocalBackend(tmp_path / "store", create=True)
    for number in range(3):
        backend.put_if_absent(f"a/{number}", b"x")
        backend.put(f"b/{number}", b"x")
        for at in range(1, 12):
            with faults.fail(at, errno.EIO):
                try:
                    backend.put_if_absent(f"c/{number}/{at}", b"x")
                    backend.put(f"d/{number}/{at}", b"x")
                except EnvironmentFailure:
                    pass
        next(iter(backend.list("")))
    backend.close()
    assert set(os.listdir("/proc/self/fd")) == before


# --- the reserve ---


def test_the_reserve_is_released_in_steps_and_refilled(backend):
    backend.create_reserve()
    backend.create_reserve()
    path = backend.root / "reserve"
    assert path.stat().st_blocks * 512 >= 1 << 20
    assert backend.release_reserve() == 64 << 10
    assert backend.release_reserve(3) == 3 * (64 << 10)
    assert path.stat().st_blocks * 512 <= 13 * (64 << 10)
    assert backend.refill_reserve()
    assert path.stat().st_blocks * 512 >= 1 << 20
    assert backend.release_reserve(100) == 1 << 20
    assert backend.release_reserve() == 0
    assert path.stat().st_size == 0


def test_a_reserve_that_does_not_fit_stays_as_it_was(backend):
    backend.create_reserve()
    backend.release_reserve(2)
    with faults.fail(1, errno.ENOSPC, on={"allocate"}):
        assert backend.refill_reserve() is False
    assert (backend.root / "reserve").stat().st_size == 14 * (64 << 10)


def test_a_store_without_a_reserve_has_none_to_give_until_it_is_refilled(backend):
    assert backend.release_reserve() == 0
    with faults.fail(1, errno.ENOSPC, on={"allocate"}):
        assert backend.refill_reserve() is False
    assert backend.refill_reserve() is True
    assert backend.release_reserve() == 64 << 10


def test_a_hint_is_written_over_in_place_if_it_is_there(tmp_path):
    backend = LocalBackend(tmp_path / "s", create=True)
    assert not backend.overwrite("log/x/head", b"new")
    backend.put("log/x/head", b"old", durable=False)
    before = backend.path("log/x/head").stat().st_ino
    assert backend.overwrite("log/x/head", b"new")
    assert backend.get("log/x/head") == b"new"
    assert backend.path("log/x/head").stat().st_ino == before


def test_names_are_those_of_a_directory_and_none_where_there_is_none(tmp_path):
    backend = LocalBackend(tmp_path / "s", create=True)
    assert list(backend.names("log/x")) == []
    backend.put_if_absent("log/x/b", b"")
    backend.put_if_absent("log/x/a", b"")
    assert sorted(backend.names("log/x")) == ["a", "b"]
