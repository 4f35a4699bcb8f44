"""A stored value of a local directory, held open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from cas import fs
from cas.errors import environment_failure

if TYPE_CHECKING:
    from types import TracebackType


class LocalReader:
    """A file held open."""

    def __init__(self, fd: int, size: int, path: str) -> None:
        """Take over the descriptor."""
        self._fd = fd
        self._path = path
        self.size = size

    def read_at(self, offset: int, length: int) -> bytes:
        """Return bytes; fewer than `length` only at the end."""
        try:
            return fs.pread(self._fd, length, offset)
        except OSError as error:
            error.filename = self._path
            raise environment_failure(error, "reading from the store") from error

    def fileno(self) -> int | None:
        """Return the descriptor."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor; may be called again."""
        fd, self._fd = self._fd, -1
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
        """Close."""
        self.close()
