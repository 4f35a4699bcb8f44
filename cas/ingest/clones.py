"""Taking in large files by sharing their blocks, several at once.

What is left to do then is hashing, which as many threads do as there are cores.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Self

from cas.errors import SourceChangedError

if TYPE_CHECKING:
    from types import TracebackType

    from cas.digest import Digest
    from cas.ingest.files import Begun, Files
    from cas.ingest.walk import Chunk


class Clones:
    """The large files that were begun; a context manager that lets go of those not finished.

    Args:
        files: What takes one file.
        cores: How many are hashed at once.
    """

    def __init__(self, files: Files, cores: int) -> None:
        """Hold nothing yet."""
        self._files = files
        self._cores = cores
        self._begun: list[Begun] = []

    def take(self, chunk: Chunk, i: int) -> None:
        """Take a large file; its digest comes in now, or with one of the next, or by `finish`.

        Raises:
            CasError: As `Files.take`, for this file or one before.
        """
        begun = self._files.begin(chunk, i)
        if begun is None:
            self._files.take(chunk, i)
            return
        chunk.waiting += 1
        self._begun.append(begun)
        if len(self._begun) >= self._cores:
            self.finish()

    def finish(self) -> bool:
        """Hash and store what was begun; False if there was nothing.

        Raises:
            CasError: As `take`.
        """
        if not self._begun:
            return False
        for digest in self._hash():
            begun = self._begun[0]
            try:
                if digest is None:
                    raise begun.clone.source.changed()
                self._files.end(begun, digest)
            except SourceChangedError:
                begun.clone.staging.discard()
                self._files.take(begun.chunk, begun.i)
            begun.chunk.waiting -= 1
            self._begun.pop(0)
            os.close(begun.fd)
        return True

    def _hash(self) -> list[Digest | None]:
        if len(self._begun) == 1:
            return [_digest(self._begun[0])]
        from concurrent.futures import ThreadPoolExecutor  # late: start-up time

        with ThreadPoolExecutor(len(self._begun)) as threads:
            return list(threads.map(partial(_digest, parallel=False), self._begun))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of what is not wanted any more."""
        while self._begun:
            begun = self._begun.pop()
            begun.clone.staging.discard()
            os.close(begun.fd)


def _digest(begun: Begun, *, parallel: bool = True) -> Digest | None:
    """Hash a file; None if it changed."""
    try:
        return begun.clone.source.hash(parallel=parallel)
    except SourceChangedError:
        return None
