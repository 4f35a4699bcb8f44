"""The one seam to the filesystem: whatever changes a disk goes through a function of this module.

Callers write ``fs.rename(...)``, never ``from cas.fs import rename``, so that a test can put a
fault in the place of any function (`cas.testing.faults`). The functions are thin: they raise the
system's own OSError, and a higher layer says what it was doing.

A file written through here is durable when its content was synced (`fsync`) and then the directory
that names it (`fsync_dir`). Names are relative to `dir_fd` where one is given, and no function
follows a symlink in the last component of a name.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import sys
from typing import Any, Final

Name = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""What the operating system takes as a path."""

Buffer = bytes | bytearray | memoryview
"""Bytes in any form that can be written without a copy."""

CLOCK_GRAIN_NS: Final = 20_000_000
"""No common kernel's file times are coarser, on a filesystem that keeps nanoseconds."""

_COARSE_GRAIN_NS: Final = 2_000_000_000
"""FAT keeps even seconds; older filesystems whole ones."""

_COPY_CHUNK: Final = 1 << 20
_KERNEL_COPY: Final = 1 << 30
_MACOS: Final = sys.platform == "darwin"

_OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
_TMPFILE: Final[int] = getattr(os, "O_TMPFILE", 0)
_FICLONE: Final = 0x40049409
_F_FULLFSYNC: Final = 51  # macOS: down to the medium, not only to the drive

CANNOT: Final = frozenset(
    {
        errno.EINVAL,
        errno.ENOSYS,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.ENOTTY,
        errno.EPERM,
        errno.EXDEV,
    }
)
"""Error numbers that say "not here": another way is worth trying."""


# --- opening -----------------------------------------------------------------------------------


def open_dir(path: Name, dir_fd: int | None = None, *, nofollow: bool = True) -> int:
    """Open a directory, not a symlink to one unless asked."""
    flags = os.O_RDONLY | os.O_DIRECTORY | _OPEN
    if not nofollow:
        flags &= ~os.O_NOFOLLOW
    return os.open(path, flags, dir_fd=dir_fd)


def open_read(path: Name, dir_fd: int | None = None, *, nofollow: bool = True) -> int:
    """Open a file for reading; a FIFO put in its place does not block."""
    flags = os.O_RDONLY | os.O_NONBLOCK | _OPEN
    if not nofollow:
        flags &= ~os.O_NOFOLLOW
    return os.open(path, flags, dir_fd=dir_fd)


def open_write(path: Name, dir_fd: int | None = None) -> int:
    """Open an existing file for reading and writing."""
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | _OPEN, dir_fd=dir_fd)


def create_excl(path: Name, mode: int = 0o666, dir_fd: int | None = None) -> int:
    """Create a file for reading and writing, which must not exist; `mode` is cut by the umask."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, mode, dir_fd=dir_fd)


def open_tmpfile(dir_fd: int, mode: int = 0o666) -> int | None:
    """Create a file without a name, which vanishes with its process unless `link_fd` names it.

    Returns:
        A descriptor for reading and writing, or None where there is no such thing.
    """
    if not _TMPFILE:
        return None
    try:
        return os.open(".", os.O_RDWR | os.O_CLOEXEC | _TMPFILE, mode, dir_fd=dir_fd)
    except OSError as error:
        # EISDIR: a kernel that does not know the flag. ENOENT: some that know it half.
        if error.errno in CANNOT or error.errno in (errno.EISDIR, errno.ENOENT):
            return None
        raise


@functools.cache
def can_link_fd() -> bool:
    """Say whether `link_fd` has what it needs: a mounted /proc."""
    return bool(_TMPFILE) and os.path.isdir("/proc/self/fd")


# --- names -------------------------------------------------------------------------------------


def link_fd(fd: int, path: Name, dir_fd: int) -> None:
    """Give the file open as `fd` a name that must not exist."""
    # Any source directory makes Python call linkat, which alone can follow the link in /proc.
    os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=True)


def link(
    source: Name, target: Name, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> None:
    """Give a file a second name, which must not exist."""
    os.link(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=False)


def rename(
    source: Name, target: Name, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> None:
    """Rename, replacing a file of the new name whole."""
    os.rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)


def rename_noreplace(
    source: Name, target: Name, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> None:
    """Rename to a name that must not exist, in one step.

    Raises:
        FileExistsError: The new name exists.
        OSError: One of `CANNOT` where the filesystem or system has no such step.
    """
    _rename_by(4 if _MACOS else 1, source, target, src_dir_fd, dst_dir_fd)


def exchange(
    one: Name, other: Name, one_dir_fd: int | None = None, other_dir_fd: int | None = None
) -> None:
    """Swap two names, whatever they stand for, in one step.

    Raises:
        OSError: One of `CANNOT` where the filesystem or system has no such step.
    """
    _rename_by(2, one, other, one_dir_fd, other_dir_fd)


def _rename_by(
    flag: int, source: Name, target: Name, src_dir_fd: int | None, dst_dir_fd: int | None
) -> None:
    """Rename with a flag: RENAME_NOREPLACE is 1, RENAME_EXCL of macOS 4, both swap with 2."""
    here = -2 if _MACOS else -100  # AT_FDCWD
    _libc_call(
        "renameatx_np" if _MACOS else "renameat2",
        here if src_dir_fd is None else src_dir_fd,
        os.fsencode(source),
        here if dst_dir_fd is None else dst_dir_fd,
        os.fsencode(target),
        flag,
        path=target,
    )


def unlink(path: Name, dir_fd: int | None = None) -> None:
    """Remove a name of a file."""
    os.unlink(path, dir_fd=dir_fd)


def rmdir(path: Name, dir_fd: int | None = None) -> None:
    """Remove an empty directory."""
    os.rmdir(path, dir_fd=dir_fd)


def mkdir(path: Name, mode: int = 0o777, dir_fd: int | None = None) -> None:
    """Make a directory; `mode` is cut by the umask."""
    os.mkdir(path, mode, dir_fd=dir_fd)


def symlink(target: Name, path: Name, dir_fd: int | None = None) -> None:
    """Make a symlink at `path` that holds `target`."""
    os.symlink(target, path, dir_fd=dir_fd)


def readlink(path: Name, dir_fd: int | None = None) -> bytes:
    """Return what a symlink holds."""
    return os.readlink(os.fsencode(path), dir_fd=dir_fd)


def set_mode(target: Name | int, mode: int, dir_fd: int | None = None) -> None:
    """Set the permission bits of an open file, or of a name that is known to be no symlink."""
    if isinstance(target, int):
        os.fchmod(target, mode)
    else:
        os.chmod(target, mode, dir_fd=dir_fd)


def chown_group(target: Name | int, gid: int, dir_fd: int | None = None) -> None:
    """Set the group of an open file or of a name."""
    if isinstance(target, int):
        os.fchown(target, -1, gid)
    else:
        os.chown(target, -1, gid, dir_fd=dir_fd, follow_symlinks=False)


def touch(path: Name, dir_fd: int | None = None) -> None:
    """Set the times of a file to now."""
    os.utime(path, dir_fd=dir_fd, follow_symlinks=False)


def set_times(fd: int, ns: int) -> None:
    """Set the times of an open file or directory, in ns since 1970."""
    os.utime(fd, ns=(ns, ns))


def ask_time(fd: int) -> int:
    """Give an open file the time that it is, and return it: ns since 1970 by its filesystem."""
    os.utime(fd)
    return os.fstat(fd).st_mtime_ns


# --- content -----------------------------------------------------------------------------------


def write(fd: int, content: Buffer) -> int:
    """Write at the file's position, maybe less than asked; return how many bytes."""
    return os.write(fd, content)


def write_all(fd: int, content: Buffer) -> None:
    """Write everything at the file's position, however many calls it takes."""
    done = write(fd, content)
    size = len(content) if isinstance(content, (bytes, bytearray)) else content.nbytes
    if done < size:
        rest = memoryview(content).cast("B")
        while done < size:
            done += write(fd, rest[done:])


def pwrite(fd: int, content: Buffer, offset: int) -> int:
    """Write at `offset`, maybe less than asked; return how many bytes."""
    return os.pwrite(fd, content, offset)


def read(fd: int, length: int) -> bytes:
    """Read at the file's position, maybe less than asked."""
    return os.read(fd, length)


def pread(fd: int, length: int, offset: int) -> bytes:
    """Read `length` bytes at `offset`; fewer only where the file ends."""
    data = os.pread(fd, length, offset)
    if len(data) == length or not data:
        return data
    parts = [data]
    have = len(data)
    while have < length:
        data = os.pread(fd, length - have, offset + have)
        if not data:
            break
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def pread_exact(fd: int, length: int, offset: int) -> bytes:
    """Read exactly `length` bytes at `offset`.

    Raises:
        EOFError: The file ends before.
    """
    data = pread(fd, length, offset)
    if len(data) != length:
        raise EOFError(f"{length} bytes wanted at {offset}, {len(data)} there")
    return data


def truncate(fd: int, size: int) -> None:
    """Cut a file, or lengthen it by a hole."""
    os.ftruncate(fd, size)


def allocate(fd: int, size: int) -> None:
    """Make a file at least `size` bytes long with space taken on the disk for all of it."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno not in CANNOT:
                raise
        else:
            return
    end = os.fstat(fd).st_size
    zeros = bytes(64 << 10)
    while end < size:
        end += pwrite(fd, zeros[: size - end], end)


def copy_range(
    src_fd: int, dst_fd: int, offset: int, length: int, dst_offset: int | None = None
) -> int:
    """Copy bytes from one open file to another, inside the kernel where it can.

    File positions are neither used nor moved.

    Args:
        src_fd: Open for reading.
        dst_fd: Open for writing, not for appending.
        offset: Where to begin in the source.
        length: How many bytes.
        dst_offset: Where to begin in the target; the same as `offset` if not given.

    Returns:
        How many bytes were copied: fewer than `length` only where the source ends.
    """
    shift = 0 if dst_offset is None else dst_offset - offset
    done = 0
    if hasattr(os, "copy_file_range"):
        try:
            while done < length:
                at = offset + done
                count = os.copy_file_range(
                    src_fd, dst_fd, min(length - done, _KERNEL_COPY), at, at + shift
                )
                if count == 0:
                    break
                done += count
        except OSError as error:
            if error.errno not in CANNOT and error.errno != errno.EBADF:
                raise
    # Some filesystems say "end" where there is more, so a short copy is tried by hand.
    while done < length:
        at = offset + done
        data = os.pread(src_fd, min(length - done, _COPY_CHUNK), at)
        if not data:
            break
        at += shift
        rest = memoryview(data)
        while rest:
            count = pwrite(dst_fd, rest, at)
            rest = rest[count:]
            at += count
        done += len(data)
    return done


def copy_sparse(src_fd: int, dst_fd: int, size: int) -> int:
    """Copy the first `size` bytes of a file into an empty one, keeping holes as holes.

    The source's file position moves.

    Returns:
        How long the source turned out to be, at most `size`; the target is as long.
    """
    at = 0
    end = size
    while at < end:
        try:
            start = os.lseek(src_fd, at, os.SEEK_DATA)
            stop = min(os.lseek(src_fd, start, os.SEEK_HOLE), end)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                break
            if error.errno not in CANNOT:
                raise
            start, stop = at, end
        if start >= end:
            break
        copied = copy_range(src_fd, dst_fd, start, stop - start)
        at = start + copied
        if at < stop:
            break
    length = min(end, os.fstat(src_fd).st_size)
    truncate(dst_fd, length)
    return length


def clone(src_fd: int, dst_fd: int) -> bool:
    """Make an empty file share all blocks of another; False where that cannot be done."""
    if _MACOS:
        return False
    try:
        fcntl.ioctl(dst_fd, _FICLONE, src_fd)
    except OSError as error:
        if error.errno in CANNOT or error.errno == errno.ETXTBSY:
            return False
        raise
    return True


# --- durability --------------------------------------------------------------------------------


def _sync(fd: int) -> None:
    if _MACOS:
        try:
            fcntl.fcntl(fd, _F_FULLFSYNC)
        except OSError as error:
            if error.errno not in CANNOT:
                raise
        else:
            return
    os.fsync(fd)


def fsync(fd: int) -> None:
    """Return when the file's content is on the medium.

    After an error the content may be lost although a second call would succeed: the file has to
    be written again.
    """
    _sync(fd)


def fsync_dir(directory: Name | int) -> None:
    """Return when the names in a directory are on the medium."""
    if isinstance(directory, int):
        _sync(directory)
        return
    fd = open_dir(directory)
    try:
        _sync(fd)
    finally:
        os.close(fd)


def sync_filesystem(fd: int) -> None:
    """Return when everything written to the filesystem that `fd` lies on is on the medium.

    Raises:
        OSError: Writing some of it failed since `fd` was opened, whoever wrote it.
    """
    if _MACOS:
        _libc_call("fsync_volume_np", fd, 3)  # SYNC_VOLUME_FULLSYNC | SYNC_VOLUME_WAIT
    else:
        _libc_call("syncfs", fd)


def start_writeback(fd: int, offset: int, length: int) -> None:
    """Begin to write a range to the medium, so that a later sync has less to wait for.

    Only a hint: it makes nothing durable, and is left out where there is no such call.
    """
    if sys.platform != "linux":
        return
    import ctypes  # late: start-up time

    try:
        _libc_call("sync_file_range", fd, ctypes.c_int64(offset), ctypes.c_int64(length), 2)
    except OSError as error:
        if error.errno not in CANNOT and error.errno != errno.ESPIPE:
            raise


# --- stat --------------------------------------------------------------------------------------

StatKey = tuple[int, int, int, int, int]


def stat_key(st: os.stat_result) -> StatKey:
    """Return (device, inode, size, mtime in ns, ctime in ns): equal means "not touched since"."""
    return st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns


def racy(st: os.stat_result, at_ns: int) -> bool:
    """Say whether a change right after the stat could leave the very same stat.

    Args:
        st: A stat.
        at_ns: The clock (`time.time_ns`) before it was taken.
    """
    changed = st.st_ctime_ns
    # A later mtime was set by hand: a change does not leave it, and setting it moves the ctime.
    if changed < st.st_mtime_ns <= at_ns:
        changed = st.st_mtime_ns
    grain = CLOCK_GRAIN_NS if st.st_ctime_ns % 1_000_000_000 else _COARSE_GRAIN_NS
    return changed + grain > at_ns


# --- the C library, for what os lacks ----------------------------------------------------------


@functools.cache
def _libc() -> Any:
    import ctypes  # late: start-up time

    return ctypes.CDLL(None, use_errno=True)


def _libc_call(function: str, *args: Any, path: Name | None = None) -> None:
    """Call a function that returns 0 or sets errno, again where a signal interrupted it."""
    import ctypes  # late: start-up time

    try:
        call = getattr(_libc(), function)
    except AttributeError:
        raise OSError(errno.ENOSYS, f"{function}: {os.strerror(errno.ENOSYS)}") from None
    while call(*args) != 0:
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code), None if path is None else os.fsdecode(path))
