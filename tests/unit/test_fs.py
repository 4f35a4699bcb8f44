"""The seam to the filesystem: what its functions promise beyond those of os."""

from __future__ import annotations

import errno
import os
import time

import pytest

from cas import fs


@pytest.fixture
def folder(tmp_path):
    fd = fs.open_dir(tmp_path)
    yield fd
    os.close(fd)


def create(folder, name, content=b""):
    fd = fs.create_excl(name, dir_fd=folder)
    fs.write_all(fd, content)
    return fd


def read(folder, name):
    fd = fs.open_read(name, dir_fd=folder)
    try:
        return fs.pread(fd, 1 << 24, 0)
    finally:
        os.close(fd)


def test_opening_follows_no_symlink(tmp_path, folder):
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    fs.symlink("sub", "to-sub", dir_fd=folder)
    fs.symlink(b"file", "to-file", dir_fd=folder)
    with pytest.raises(OSError):
        fs.open_dir("to-sub", dir_fd=folder)
    with pytest.raises(OSError):
        fs.open_read("to-file", dir_fd=folder)
    with pytest.raises(OSError):
        fs.open_write("to-file", dir_fd=folder)
    with pytest.raises(FileExistsError):
        fs.create_excl("to-file", dir_fd=folder)
    os.close(fs.open_read("to-file", dir_fd=folder, nofollow=False))
    os.close(fs.open_dir("to-sub", dir_fd=folder, nofollow=False))
    assert fs.readlink("to-file", dir_fd=folder) == b"file"


def test_opening_a_fifo_does_not_block(tmp_path, folder):
    os.mkfifo(tmp_path / "fifo")
    os.close(fs.open_read("fifo", dir_fd=folder))


def test_descriptors_are_not_inherited(folder):
    fd = create(folder, "a")
    assert not os.get_inheritable(fd)
    os.close(fd)


@pytest.mark.skipif(not fs.can_link_fd(), reason="needs files without a name")
def test_an_unnamed_file_gets_a_name_once(tmp_path, folder):
    fd = fs.open_tmpfile(folder, 0o444)
    fs.write_all(fd, b"content")
    assert os.listdir(tmp_path) == []
    fs.link_fd(fd, "a", folder)
    assert read(folder, "a") == b"content"
    with pytest.raises(FileExistsError):
        fs.link_fd(fd, "a", folder)
    os.close(fd)


def test_where_there_are_no_unnamed_files_none_comes(monkeypatch, folder):
    for code in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):

        def refuse(*args, code=code, **kwargs):
            raise OSError(code, "no")

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            assert fs.open_tmpfile(folder) is None


def test_a_full_disk_is_not_taken_for_no_unnamed_files(monkeypatch, folder):
    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="full"):
        fs.open_tmpfile(folder)


def test_renaming_without_replacing(folder):
    os.close(create(folder, "a", b"a"))
    os.close(create(folder, "b", b"b"))
    with pytest.raises(FileExistsError) as caught:
        fs.rename_noreplace("a", "b", folder, folder)
    assert caught.value.filename == "b"
    fs.rename_noreplace("a", b"c", folder, folder)
    assert (read(folder, "b"), read(folder, "c")) == (b"b", b"a")
    with pytest.raises(FileNotFoundError):
        fs.rename_noreplace("a", "d", folder, folder)


def test_renaming_without_directories_uses_the_working_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_bytes(b"a")
    fs.rename_noreplace("a", "b")
    (tmp_path / "a").write_bytes(b"new")
    fs.exchange("a", "b")
    assert (tmp_path / "a").read_bytes() == b"a"


def test_a_call_that_the_library_lacks_says_so(monkeypatch):
    monkeypatch.setattr(fs, "_libc", lambda: object())
    with pytest.raises(OSError) as caught:
        fs.rename_noreplace("a", "b")
    assert caught.value.errno == errno.ENOSYS
    assert caught.value.errno in fs.CANNOT


def test_short_writes_are_made_up_for(monkeypatch, folder):
    real = fs.write
    monkeypatch.setattr(fs, "write", lambda fd, content: real(fd, bytes(content[:7])))
    content = os.urandom(100)
    for name, form in (("a", content), ("b", bytearray(content)), ("c", memoryview(content))):
        os.close(create(folder, name, form))
        assert read(folder, name) == content
    numbers = memoryview(content).cast("I")
    monkeypatch.setattr(fs, "write", real)
    os.close(create(folder, "d", numbers))
    assert read(folder, "d") == content


def test_reading_is_short_only_at_the_end(monkeypatch, folder):
    fd = create(folder, "a", b"0123456789")
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: real(fd, min(length, 3), offset))
    assert fs.pread(fd, 8, 1) == b"12345678"
    assert fs.pread(fd, 8, 5) == b"56789"
    assert fs.pread(fd, 8, 10) == b""
    assert fs.pread_exact(fd, 10, 0) == b"0123456789"
    with pytest.raises(EOFError):
        fs.pread_exact(fd, 11, 0)
    os.close(fd)


@pytest.mark.parametrize("kernel", [True, False])
def test_ranges_are_copied(monkeypatch, folder, kernel):
    if not kernel:

        def refuse(*args):
            raise OSError(errno.EXDEV, "no")

        monkeypatch.setattr(os, "copy_file_range", refuse)
    content = os.urandom(3 << 20)
    source = create(folder, "a", content)
    target = create(folder, "b")
    assert fs.copy_range(source, target, 0, len(content)) == len(content)
    assert read(folder, "b") == content
    assert fs.copy_range(source, target, 100, 50, 5) == 50
    assert read(folder, "b") == content[:5] + content[100:150] + content[55:]
    assert fs.copy_range(source, target, len(content) - 10, 50, 0) == 10
    assert fs.copy_range(source, target, len(content) + 10, 50, 0) == 0
    os.close(source)
    os.close(target)


def test_a_kernel_that_copies_too_little_is_helped(monkeypatch, folder):
    monkeypatch.setattr(os, "copy_file_range", lambda *args: 0)
    source = create(folder, "a", b"0123456789")
    target = create(folder, "b")
    assert fs.copy_range(source, target, 0, 10) == 10
    assert read(folder, "b") == b"0123456789"
    os.close(source)
    os.close(target)


def test_an_error_while_copying_is_not_swallowed(monkeypatch, folder):
    def refuse(*args):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    fd = create(folder, "a", b"x")
    with pytest.raises(OSError, match="broken"):
        fs.copy_range(fd, fd, 0, 1)
    os.close(fd)


@pytest.mark.parametrize(
    ("pieces", "size"),
    [
        ([], 0),
        ([], 10 << 20),
        ([(0, b"head")], 10 << 20),
        ([(5 << 20, b"middle" * 1000)], 10 << 20),
        ([(0, b"a" * 70000), (9 << 20, b"b" * (1 << 20))], 10 << 20),
        ([(0, b"dense" * 1000)], 5000),
    ],
)
def test_holes_stay_holes(folder, pieces, size):
    source = create(folder, "a")
    for offset, content in pieces:
        fs.pwrite(source, content, offset)
    fs.truncate(source, size)
    target = create(folder, "b")
    assert fs.copy_sparse(source, target, size) == size
    assert read(folder, "b") == read(folder, "a")
    assert os.fstat(target).st_blocks <= os.fstat(source).st_blocks + 16
    os.close(source)
    os.close(target)


def test_a_source_that_shrank_is_copied_as_far_as_it_goes(folder):
    source = create(folder, "a", b"0123456789")
    target = create(folder, "b")
    assert fs.copy_sparse(source, target, 20) == 10
    assert read(folder, "b") == b"0123456789"
    assert fs.copy_sparse(source, target, 4) == 4
    os.close(source)
    os.close(target)


def test_cloning_works_or_says_no(folder):
    source = create(folder, "a", b"x" * 5000)
    target = create(folder, "b")
    if fs.clone(source, target):
        assert read(folder, "b") == b"x" * 5000
    else:
        assert read(folder, "b") == b""
    os.close(source)
    os.close(target)


@pytest.mark.parametrize("native", [True, False])
def test_allocated_space_is_there(monkeypatch, folder, native):
    if not native:

        def refuse(*args):
            raise OSError(errno.EOPNOTSUPP, "no")

        monkeypatch.setattr(os, "posix_fallocate", refuse)
    fd = create(folder, "a", b"x")
    fs.allocate(fd, 200_000)
    st = os.fstat(fd)
    assert st.st_size == 200_000
    if native:  # without, it may still be on its way to the disk
        assert st.st_blocks * 512 >= 200_000
    assert read(folder, "a") == b"x" + bytes(199_999)
    os.close(fd)


def test_syncing_works_on_files_directories_and_filesystems(tmp_path, folder):
    fd = create(folder, "a", b"x" * 100_000)
    fs.start_writeback(fd, 0, 100_000)
    fs.fsync(fd)
    fs.fsync_dir(folder)
    fs.fsync_dir(tmp_path)
    fs.sync_filesystem(fd)
    os.close(fd)
    with pytest.raises(OSError) as caught:
        fs.sync_filesystem(fd)
    assert caught.value.errno == errno.EBADF


def test_modes_and_groups_are_set_by_descriptor_and_by_name(tmp_path, folder):
    fd = create(folder, "a")
    fs.set_mode(fd, 0o640)
    assert os.fstat(fd).st_mode & 0o777 == 0o640
    fs.set_mode("a", 0o604, dir_fd=folder)
    assert os.fstat(fd).st_mode & 0o777 == 0o604
    fs.chown_group(fd, os.getgid())
    fs.chown_group("a", os.getgid(), dir_fd=folder)
    os.close(fd)


def test_a_fresh_stat_is_racy_and_an_old_one_is_not(folder):
    fd = create(folder, "a", b"x")
    now = time.time_ns()
    assert fs.racy(os.fstat(fd), now)
    assert not fs.racy(os.fstat(fd), now + 5_000_000_000)
    os.close(fd)


def test_whole_seconds_are_taken_for_a_coarse_clock():
    at = 1_700_000_000
    times = {"st_mtime_ns": at * 10**9, "st_ctime_ns": at * 10**9}
    st = os.stat_result((0o100644, 1, 1, 1, 0, 0, 5, at, at, at), times)
    assert fs.racy(st, at * 10**9 + 1_900_000_000)
    assert not fs.racy(st, at * 10**9 + 2_000_000_000)


def test_a_time_in_the_future_set_by_hand_is_not_racy_for_ever(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    os.utime(tmp_path / "a", (5e9, 5e9))
    st = os.stat(tmp_path / "a")
    assert fs.racy(st, time.time_ns())
    assert not fs.racy(st, time.time_ns() + 5_000_000_000)


def test_the_key_of_a_stat_changes_with_the_file(folder):
    fd = create(folder, "a", b"x")
    before = fs.stat_key(os.fstat(fd))
    assert before == fs.stat_key(os.stat("a", dir_fd=folder))
    fs.write_all(fd, b"y")
    assert fs.stat_key(os.fstat(fd)) != before
    os.close(fd)
