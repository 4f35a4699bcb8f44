"""A value on its way into a local directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Self

from cas import fs
from cas.errors import environment_failure
from cas.locking import try_lock_fd

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from cas.fs import Buffer

WRITEBACK_STEP: Final = 8 << 20
"""A long value begins to go to the medium every so many bytes."""


class LocalStaging:
    """A file that nobody else sees.

    It has no name where the filesystem can do that. Otherwise, and while a value is being
    replaced, it has one in `tmp/` and is locked, so that `sweep` can tell it from litter.

    Args:
        fd: Open for reading and writing; closed by `discard`.
        tmp: Opens `tmp/`, or returns it opened.
        name: Its name there, if it has one.
    """

    def __init__(self, fd: int, tmp: Callable[[], int], name: str | None = None) -> None:
        """Take over an empty file."""
        self.fd = fd
        self.tmp = tmp
        self.name = name
        self.refused_link = False
        self._size = 0
        self._written_back = 0
        self._foreign = False

    def write(self, content: Buffer) -> None:
        """Append.

        Raises:
            EnvironmentFailure: The disk is full or fails.
        """
        try:
            if self._foreign:
                self._size = os.lseek(self.fd, 0, os.SEEK_END)
            fs.write_all(self.fd, content)
            self._size += len(content) if isinstance(content, bytes) else memoryview(content).nbytes
            if self._size - self._written_back >= WRITEBACK_STEP:
                fs.start_writeback(self.fd, self._written_back, self._size - self._written_back)
                self._written_back = self._size
        except OSError as error:
            raise environment_failure(error, "writing to the store") from error

    def tell(self) -> int:
        """Return how many bytes are there, also when they came through `fileno`."""
        if self._foreign:
            self._size = os.fstat(self.fd).st_size
        return self._size

    def fileno(self) -> int | None:
        """Return the descriptor."""
        self._foreign = True
        return self.fd

    def read_at(self, offset: int, length: int) -> bytes:
        """Return bytes that were written; fewer than `length` only at the end."""
        try:
            return fs.pread(self.fd, length, offset)
        except OSError as error:
            raise environment_failure(error, "reading back from the store") from error

    def discard(self) -> None:
        """Close, and remove the name in `tmp/`; may be called again."""
        name, self.name = self.name, None
        fd, self.fd = self.fd, -1
        try:
            if name is not None:
                fs.unlink(name, dir_fd=self.tmp())
        except OSError:
            pass  # litter, which the next writer sweeps
        finally:
            if fd >= 0:
                os.close(fd)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Discard."""
        self.discard()

    def place(self, name: str, dir_fd: int) -> bool:
        """Give the file, synced before, its final name unless that is taken.

        Returns:
            Whether the name was given by this call.

        Raises:
            OSError: As the system says; ENOSYS, ENOTSUP or EINVAL where the filesystem can do it
                neither by a link nor by a rename that does not replace.
        """
        if self.name is None:
            try:
                fs.link_fd(self.fd, name, dir_fd)
            except FileExistsError:
                return self._links() > 0  # a lost acknowledgement: the name is ours
            except OSError as error:
                if error.errno not in fs.CANNOT:
                    raise
            else:
                return True
            self.take_name()
            fs.fsync(self.fd)
        return self._place_named(name, dir_fd)

    def _place_named(self, name: str, dir_fd: int) -> bool:
        assert self.name is not None
        try:
            fs.link(self.name, name, src_dir_fd=self.tmp(), dst_dir_fd=dir_fd)
        except FileExistsError:
            return self._links() > 1
        except OSError as error:
            if error.errno not in fs.CANNOT:
                raise
        else:
            return True
        try:
            fs.rename_noreplace(self.name, name, src_dir_fd=self.tmp(), dst_dir_fd=dir_fd)
        except FileExistsError:
            return False
        self.name = None
        return True

    def take_name(self) -> None:
        """Give the file a name in `tmp/`, if it has none.

        Raises:
            OSError: As the system says.
        """
        if self.name is not None:
            return
        name = new_name()
        try_lock(self.fd)
        try:
            fs.link_fd(self.fd, name, self.tmp())
        except OSError as error:
            if error.errno not in fs.CANNOT:
                raise
            # Files without a name, but no links: a sandbox that forbids them.
            name = self._copy_named()
        self.name = name

    def _copy_named(self) -> str:
        """Go on with a copy that has a name; return it."""
        st = os.fstat(self.fd)
        fd, name = create_named(self.tmp(), st.st_mode & 0o7777)
        try:
            fs.copy_range(self.fd, fd, 0, st.st_size)
        except BaseException:
            os.close(fd)
            raise
        os.close(self.fd)
        self.fd = fd
        self.refused_link = True
        return name

    def _links(self) -> int:
        return os.fstat(self.fd).st_nlink


def create_named(tmp_fd: int, mode: int) -> tuple[int, str]:
    """Create a locked file in `tmp/`; return its descriptor and name."""
    while True:
        name = new_name()
        fd = fs.create_excl(name, mode, dir_fd=tmp_fd)
        try_lock(fd)
        # Another process may have swept it between these two steps.
        if os.fstat(fd).st_nlink:
            return fd, name
        os.close(fd)


def sweep(tmp_fd: int) -> None:
    """Remove what killed processes left in `tmp/`."""
    for name in os.listdir(tmp_fd):
        try:
            fd = fs.open_read(name, dir_fd=tmp_fd)
        except OSError:
            continue  # gone, or not ours
        try:
            if try_lock_fd(fd):
                fs.unlink(name, dir_fd=tmp_fd)
        except OSError:
            pass  # no locks here, or another sweeper was faster
        finally:
            os.close(fd)


def new_name() -> str:
    """Return a name that no other file has."""
    return os.urandom(16).hex()


def try_lock(fd: int) -> None:
    """Lock a file against `sweep`, which does nothing where there are no locks."""
    try:
        try_lock_fd(fd)
    except OSError:
        pass
