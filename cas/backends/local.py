"""A backend in a local directory.

Order of a write, which nothing here may break: content synced, name given, file synced again,
directory synced. The second sync of the file is for its count of links: without it, ext4 without a
journal may take a file that began without a name for a deleted one. Elsewhere it is free, since the
directory's sync then finds nothing left to do. A directory is made before, and its own name synced
up to the root, by everyone who puts something into it for the first time: it may have been made a
moment ago by another process.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final, NoReturn

from cas import fs
from cas.backends import reserve
from cas.backends.directories import GROUP_READ, GROUP_WRITE, TMP, Directories, create_root
from cas.backends.protocol import Entry, Missing, check_key, check_prefix, is_key
from cas.backends.reader import LocalReader
from cas.backends.staging import LocalStaging, create_named, sweep
from cas.errors import (
    DiskFullError,
    EnvironmentFailure,
    FormatError,
    OutcomeUnknownError,
    RefusedError,
    UnsupportedError,
    environment_failure,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cas.backends.protocol import Staging

_IMMUTABLE: Final = 0o444
_MUTABLE: Final = 0o644
# After these a name may or may not have been given.
_UNSURE: Final = frozenset({errno.EIO, errno.ETIMEDOUT, errno.ESTALE})
# Above so many files, one sync of the whole filesystem takes less time.
_ONE_BY_ONE: Final = 16
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_NO_VALUE: Final = _ABSENT | {errno.ELOOP}
"""A link is not followed: it holds nothing."""


class LocalBackend:
    """Keys as files below a root directory. Threads may share it.

    Args:
        root: The directory.
        shared_gid: A group whose members may all use the store, whatever their umask.
        create: Make the root, and nothing else, if it does not exist.

    Raises:
        Missing: The root does not exist.
        EnvironmentFailure: It cannot be opened or made.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, shared_gid: int | None = None, create: bool = False
    ) -> None:
        """Open the root; it is written to only when something is put."""
        self.shared_gid = shared_gid
        self._text = os.path.abspath(root)
        self._unnamed = fs.can_link_fd()
        try:
            if create:
                create_root(self._text, shared_gid)
            self._directories = Directories(self._text, shared_gid)
        except OSError as error:
            if error.errno in _ABSENT and not create:
                raise Missing(f"folder {self._text} not found", path=self._text) from error
            self._fail(error, "opening the store", "")
        self._root_fd = self._directories.root_fd
        self._clock: LocalStaging | None = None

    @property
    def local(self) -> LocalBackend:
        """Return itself: keys are files here."""
        return self

    def close(self) -> None:
        """Close the descriptors that are held; may be called again."""
        if self._clock is not None:
            self._clock.discard()
            self._clock = None
        self._directories.close()
        self._root_fd = -1

    # --- Backend ---

    def stage(self) -> LocalStaging:
        """Begin a value.

        Raises:
            EnvironmentFailure: The store cannot be written.
        """
        try:
            return self._stage(_IMMUTABLE)
        except OSError as error:
            self._fail(error, "writing to the store", "")

    def put_if_absent(self, key: str, source: bytes | Staging) -> bool:
        """Create a key, whole and durably, unless it exists; say whether it was created."""
        check_key(key)
        try:
            if self._exists(key):
                return False
            if isinstance(source, LocalStaging):
                return self._place(key, source)
            if not isinstance(source, bytes):
                raise RefusedError("a staging can only be put into the backend that made it")
            with self._stage(_IMMUTABLE) as staging:
                fs.write_all(staging.fd, source)
                return self._place(key, staging)
        except OSError as error:
            self._fail(error, "writing to the store", key)

    def put(self, key: str, content: bytes, *, durable: bool = True) -> None:
        """Create or replace a key whole."""
        check_key(key)
        directory, _, name = key.rpartition("/")
        try:
            with self._stage(_MUTABLE) as staging:
                fs.write_all(staging.fd, content)
                self._directories.share(staging.fd, GROUP_WRITE)
                staging.take_name()
                assert staging.name is not None
                if durable:
                    fs.fsync(staging.fd)
                dir_fd = self._directories.open(directory, durable=durable)
                try:
                    fs.rename(staging.name, name, src_dir_fd=staging.tmp(), dst_dir_fd=dir_fd)
                    staging.name = None
                    if durable:
                        self._sync_name(dir_fd, key, None)
                finally:
                    os.close(dir_fd)
        except OSError as error:
            self._fail(error, "writing to the store", key)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the value of a key."""
        with self.open(key) as reader:
            if max_bytes is not None and reader.size > max_bytes:
                raise FormatError(
                    f"{self._where(key)} has {reader.size} bytes, at most {max_bytes} are allowed",
                    key=key,
                )
            return reader.read_at(0, reader.size)

    def open(self, key: str) -> LocalReader:
        """Open the value of a key."""
        check_key(key)
        try:
            fd = fs.open_read(key, dir_fd=self._root_fd)
        except OSError as error:
            if error.errno in _NO_VALUE:
                raise Missing(f"{self._where(key)} not found", key=key) from None
            self._fail(error, "reading from the store", key)
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode):
            os.close(fd)
            raise Missing(f"{self._where(key)} is not a file", key=key)
        return LocalReader(fd, st.st_size, self._where(key))

    def list(self, prefix: str) -> Iterator[Entry]:
        """Give the keys below a prefix, sorted."""
        return self._list(check_prefix(prefix))

    def delete(self, key: str) -> None:
        """Remove a key, if it is there."""
        check_key(key)
        try:
            fs.unlink(key, dir_fd=self._root_fd)
        except OSError as error:
            if error.errno not in _ABSENT:
                self._fail(error, "deleting from the store", key)

    def now_ns(self) -> int:
        """Return the time that the filesystem puts on a file now.

        It is asked with a file that stays open, and has no name: making one costs a journal entry.

        Raises:
            EnvironmentFailure: The store cannot be written.
        """
        clock = self._clock
        if clock is None:
            clock = self._clock = self.stage()
        try:
            return fs.ask_time(clock.fd)
        except OSError as error:
            self._fail(error, "asking for the time of the store", "")

    def settle(self, keys: Iterable[str]) -> None:
        """Return when keys that were seen to exist, whoever made them, are durable.

        Whoever made one may have been killed after the name was given and before the second sync
        of the file, so that is done here as well.
        """
        names = {check_key(key) for key in keys}
        if len(names) > _ONE_BY_ONE:
            try:
                fs.sync_filesystem(self._root_fd)
            except OSError as error:
                self._fail(error, "syncing the store", "")
            return
        for key in sorted(names):
            try:
                fd = fs.open_read(key, dir_fd=self._root_fd)
                try:
                    fs.fsync(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                if error.errno not in _ABSENT:
                    self._fail(error, "syncing the store", key)
        for directory in sorted({key.rpartition("/")[0] for key in names}):
            try:
                fd = self._directories.open(directory, durable=True, make=False)
                try:
                    fs.fsync_dir(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                if error.errno not in _ABSENT:
                    self._fail(error, "syncing the store", directory)

    # --- LocalFiles ---

    @property
    def root(self) -> Path:
        """The folder that holds the keys as files."""
        from pathlib import Path  # late: start-up time of workers

        return Path(self._text)

    @property
    def writable(self) -> bool:
        """Whether this process may write below the root."""
        return os.access(self._text, os.W_OK | os.X_OK)

    def path(self, key: str) -> Path:
        """Return where the value of a key lies."""
        return self.root / check_key(key)

    def names(self, directory: str) -> Iterable[str]:
        """Return the names in a directory, in no order; none if it does not exist."""
        try:
            fd = fs.open_dir(check_key(directory), dir_fd=self._root_fd)
            try:
                return os.listdir(fd)
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            self._fail(error, "listing the store", directory)

    def overwrite(self, key: str, content: bytes) -> bool:
        """Write over the beginning of an existing value in place; False where there is none."""
        try:
            fd = fs.open_write(check_key(key), dir_fd=self._root_fd)
            try:
                return fs.pwrite(fd, content, 0) == len(content)
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            self._fail(error, "writing to the store", key)

    def move(self, key: str, target: str) -> None:
        """Give a value another key, which nothing has, durably and without reading it."""
        try:
            self._rename(check_key(key), check_key(target))
        except OSError as error:
            self._fail(error, "moving a file of the store", key)

    def replace_folder(self, new: str, old: str, aside: str) -> None:
        """Put one folder in the place of another, durably, in one step where there is one."""
        root = self._root_fd
        try:
            if os.path.lexists(self.path(old)):
                try:
                    fs.exchange(check_key(new), check_key(old), root, root)
                except OSError as error:
                    if error.errno not in fs.CANNOT:
                        raise
                    self._rename(old, aside)
                    self._rename(new, old)
                else:
                    self._sync_parents(new, old)
                    self._rename(new, aside)
            else:
                self._rename(new, old)
        except OSError as error:
            self._fail(error, "replacing a folder of the store", old)

    def _rename(self, key: str, target: str) -> None:
        os.close(self._directories.open(target.rpartition("/")[0], durable=True))
        fs.rename(key, target, src_dir_fd=self._root_fd, dst_dir_fd=self._root_fd)
        self._sync_parents(key, target)

    def _sync_parents(self, *keys: str) -> None:
        for directory in sorted({key.rpartition("/")[0] for key in keys}):
            fd = self._directories.open(directory, durable=False)
            try:
                fs.fsync_dir(fd)
            finally:
                os.close(fd)

    def make_directories(self, keys: Iterable[str]) -> None:
        """Make directories, durably, for keys to lie in; existing ones are fine."""
        for key in keys:
            try:
                os.close(self._directories.open(check_key(key), durable=True))
            except OSError as error:
                self._fail(error, "making a folder of the store", key)

    def sweep(self) -> None:
        """Delete the temporary files of processes that were killed."""
        try:
            fd = self._directories.open(TMP, durable=False, make=False)
            try:
                sweep(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._fail(error, "sweeping temporary files of the store", TMP)

    def create_reserve(self) -> None:
        """Set space aside that `release_reserve` gives back when the disk is full."""
        try:
            with self._stage(_MUTABLE) as staging:
                reserve.allocate(staging.fd)
                self._directories.share(staging.fd, GROUP_WRITE)
                self._place(reserve.NAME, staging)
        except OSError as error:
            self._fail(error, "setting the reserve aside", reserve.NAME)

    def release_reserve(self, steps: int = 1) -> int:
        """Free `steps` pieces of the reserve and return how many bytes that gave."""
        try:
            return reserve.release(self._root_fd, steps)
        except OSError as error:
            self._fail(error, "releasing the reserve", reserve.NAME)

    def check_reserve(self) -> str:
        """Say what is wrong with the reserve, or nothing."""
        try:
            return reserve.check(self._root_fd)
        except OSError as error:
            self._fail(error, "reading the reserve", reserve.NAME)

    def refill_reserve(self) -> bool:
        """Take the reserve's space again; False if there is not enough."""
        try:
            return reserve.refill(self._root_fd)
        except FileNotFoundError:
            try:
                self.create_reserve()
            except DiskFullError:
                return False
            return True
        except OSError as error:
            self._fail(error, "refilling the reserve", reserve.NAME)

    # --- inside ---

    def _where(self, key: str) -> str:
        return f"{self._text}/{key}" if key else self._text

    def _fail(self, error: OSError, doing: str, key: str) -> NoReturn:
        if isinstance(error, EnvironmentFailure):
            raise error
        error.filename, error.filename2 = self._where(key), None
        raise environment_failure(error, doing) from error

    def _exists(self, key: str) -> bool:
        try:
            os.stat(key, dir_fd=self._root_fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _stage(self, mode: int) -> LocalStaging:
        if self._unnamed:
            fd = fs.open_tmpfile(self._root_fd, mode)
            if fd is not None:
                return LocalStaging(fd, self._directories.tmp)
            self._unnamed = False
        fd, name = create_named(self._directories.tmp(), mode)
        return LocalStaging(fd, self._directories.tmp, name)

    def _place(self, key: str, staging: LocalStaging) -> bool:
        """Sync a staging, give it its name unless that is taken, sync the directory."""
        directory, _, name = key.rpartition("/")
        self._directories.share(staging.fd, GROUP_READ)
        fs.fsync(staging.fd)
        dir_fd = self._directories.open(directory, durable=True)
        try:
            try:
                created = staging.place(name, dir_fd)
            except OSError as error:
                if error.errno in _UNSURE:
                    raise self._unknown(error, key) from error
                if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.EINVAL):
                    raise UnsupportedError(
                        f"the filesystem of {self._text} can neither link a file nor rename one "
                        "without replacing, so a store is not safe there; use another filesystem",
                        path=self._text,
                    ) from error
                raise
            finally:
                self._unnamed = self._unnamed and not staging.refused_link
            if created:
                self._sync_name(dir_fd, key, staging.fd)
            return created
        finally:
            os.close(dir_fd)

    def _sync_name(self, dir_fd: int, key: str, fd: int | None) -> None:
        try:
            if fd is not None:
                fs.fsync(fd)
            fs.fsync_dir(dir_fd)
        except OSError as error:
            raise self._unknown(error, key) from error

    def _unknown(self, error: OSError, key: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"{self._where(key)} was written, but it is unknown whether it survives a power cut: "
            f"{error.strerror}; look before trying again",
            key=key,
            errno=error.errno,
        )

    def _list(self, prefix: str) -> Iterator[Entry]:
        try:
            fd = fs.open_dir(prefix or ".", dir_fd=self._root_fd)
        except OSError as error:
            if error.errno in _ABSENT:
                return
            self._fail(error, "listing the store", prefix)
        try:
            try:
                with os.scandir(fd) as found:
                    # With its slash a directory sorts as the keys in it do.
                    names = sorted(
                        entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name
                        for entry in found
                    )
            except OSError as error:
                self._fail(error, "listing the store", prefix)
            for name in names:
                yield from self._list_one(fd, prefix, name)
        finally:
            os.close(fd)

    def _list_one(self, fd: int, prefix: str, name: str) -> Iterator[Entry]:
        """Give what one name in a directory stands for: nothing, if it is not a key."""
        key = prefix + name
        if not is_key(key.removesuffix("/")):
            return
        if name.endswith("/"):
            yield from self._list(key)
            return
        try:
            st = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError as error:
            self._fail(error, "listing the store", key)
        if stat.S_ISREG(st.st_mode):
            yield Entry(key, st.st_size, st.st_mtime_ns)
