"""The instruments that upper layers are tested with: injected faults and the power cut."""

from __future__ import annotations

import errno
import inspect
import os

import pytest

from cas import fs
from cas.testing import faults
from cas.testing.power_cut import Disk

# Functions that only call others of the module, or that nothing depends on.
COMPOUND = {"can_link_fd", "copy_sparse", "pread_exact", "racy", "stat_key", "write_all"}
HINTS = {"start_writeback"}


def write_file(path, content):
    fd = fs.create_excl(path)
    try:
        fs.write_all(fd, content)
        fs.fsync(fd)
    finally:
        os.close(fd)
    fs.fsync_dir(os.path.dirname(path))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "folder").mkdir()
    return str(tmp_path / "folder")


def test_every_function_of_the_seam_is_sorted_into_a_kind():
    functions = {
        name
        for name, value in vars(fs).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or hasattr(value, "cache_info"))
        and value.__module__ == fs.__name__
    }
    assert functions == faults.CHANGES | faults.LOOKS | COMPOUND | HINTS


def test_a_watch_notes_the_steps(folder):
    with faults.watch() as injection:
        write_file(f"{folder}/a", b"x")
    assert injection.calls == ["create_excl", "write", "fsync", "fsync_dir"]
    assert not injection.fired


def test_a_failure_comes_at_its_step_and_only_there(folder):
    with faults.fail(2, errno.EIO, on={"write", "fsync"}) as injection:
        with pytest.raises(OSError) as caught:
            write_file(f"{folder}/a", b"x")
        write_file(f"{folder}/b", b"x")
    assert caught.value.errno == errno.EIO
    assert injection.fired
    assert injection.calls == ["write", "fsync", "write", "fsync"]


def test_a_lost_acknowledgement_has_its_effect(folder):
    write_file(f"{folder}/a", b"x")
    with faults.fail(1, errno.EIO, on={"rename"}, effect=True), pytest.raises(OSError):
        fs.rename(f"{folder}/a", f"{folder}/b")
    assert os.listdir(folder) == ["b"]


def test_a_short_write_is_made_up_for(folder):
    for at in (1, 2):
        with faults.cut_short(at) as injection:
            write_file(f"{folder}/{at}", b"0123456789")
        assert (injection.fired, injection.calls.count("write")) == (at == 1, 3 - at)
        with open(f"{folder}/{at}", "rb") as file:
            assert file.read() == b"0123456789"


def test_a_crash_tears_the_write_and_stops_everything(folder):
    with faults.crash(2) as injection:
        try:
            write_file(f"{folder}/a", b"0123456789")
        finally:
            fs.unlink(f"{folder}/a")
    assert injection.fired
    with open(f"{folder}/a", "rb") as file:
        assert file.read() == b"01234"
    fs.unlink(f"{folder}/a")


def test_crashes_walk_through_the_steps_until_the_work_is_done(folder):
    seen = []
    for number, injection in enumerate(faults.every_crash()):
        with injection:
            write_file(f"{folder}/{number}", b"0123456789")
        seen.append(injection.calls[-1])
    assert seen == ["create_excl", "write", "fsync", "fsync_dir", "fsync_dir"]
    assert sorted(os.listdir(folder)) == ["1", "2", "3", "4"]


def test_other_errors_pass_through_an_injection(folder):
    with pytest.raises(FileNotFoundError), faults.watch():
        fs.unlink(f"{folder}/none")
    assert fs.unlink.__module__ == "cas.fs"
    assert not hasattr(fs.unlink, "__wrapped__")


def test_an_unknown_function_is_refused():
    with pytest.raises(ValueError, match="nonsense"):
        faults.fail(1, errno.EIO, on={"nonsense"})


def test_what_was_not_synced_is_lost_at_a_power_cut(folder):
    with Disk(folder) as disk:
        write_file(f"{folder}/synced", b"content")
        fd = fs.create_excl(f"{folder}/name-only")
        fs.write_all(fd, b"content")
        fs.fsync_dir(folder)
        os.close(fd)
        fd = fs.create_excl(f"{folder}/content-only")
        fs.write_all(fd, b"content")
        fs.fsync(fd)
        os.close(fd)
        disk.cut()
    assert sorted(os.listdir(folder)) == ["name-only", "synced"]
    assert os.path.getsize(f"{folder}/name-only") == 0
    assert os.path.getsize(f"{folder}/synced") == 7


def test_a_rename_without_a_sync_may_not_have_happened(folder):
    with Disk(folder) as disk:
        write_file(f"{folder}/old", b"old")
        write_file(f"{folder}/new", b"new")
        fs.rename(f"{folder}/new", f"{folder}/old")
        disk.cut()
        with open(f"{folder}/old", "rb") as file:
            assert file.read() == b"old"
        fs.rename(f"{folder}/new", f"{folder}/old")
        fs.fsync_dir(folder)
        disk.cut()
    assert os.listdir(folder) == ["old"]
    with open(f"{folder}/old", "rb") as file:
        assert file.read() == b"new"


def test_what_was_not_synced_may_survive_a_power_cut(folder):
    with Disk(folder) as disk:
        fs.mkdir(f"{folder}/sub")
        fs.symlink(b"target", f"{folder}/sub/link")
        fd = fs.create_excl(f"{folder}/sub/file")
        fs.write_all(fd, b"content")
        os.close(fd)
        disk.cut(lambda: True)
    assert os.readlink(f"{folder}/sub/link") == "target"
    with open(f"{folder}/sub/file", "rb") as file:
        assert file.read() == b"content"


def test_a_folder_is_lost_if_its_own_name_was_not_synced(folder):
    with Disk(folder) as disk:
        fs.mkdir(f"{folder}/sub")
        write_file(f"{folder}/sub/a", b"x")
        disk.cut()
        assert os.listdir(folder) == []
        fs.mkdir(f"{folder}/sub")
        write_file(f"{folder}/sub/a", b"x")
        fs.fsync_dir(folder)
        disk.cut()
    assert os.listdir(f"{folder}/sub") == ["a"]


def test_syncing_the_filesystem_saves_everything(folder):
    with Disk(folder) as disk:
        fs.mkdir(f"{folder}/sub")
        fs.symlink(b"gone", f"{folder}/sub/link")
        fd = fs.create_excl(f"{folder}/sub/file")
        fs.write_all(fd, b"content")
        fs.sync_filesystem(fd)
        os.close(fd)
        disk.cut()
    assert sorted(os.listdir(f"{folder}/sub")) == ["file", "link"]
    assert os.path.getsize(f"{folder}/sub/file") == 7


@pytest.mark.skipif(not fs.can_link_fd(), reason="needs files without a name")
def test_a_file_that_began_without_a_name_needs_a_sync_after_it_got_one(folder):
    with Disk(folder) as disk:
        dir_fd = fs.open_dir(folder)
        for name, again in (("once", False), ("twice", True)):
            fd = fs.open_tmpfile(dir_fd)
            fs.write_all(fd, b"x")
            fs.fsync(fd)
            fs.link_fd(fd, name, dir_fd)
            if again:
                fs.fsync(fd)
            os.close(fd)
        fs.fsync_dir(dir_fd)
        os.close(dir_fd)
        disk.cut()
    assert os.listdir(folder) == ["twice"]
