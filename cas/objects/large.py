"""Taking a large file into a staging file: shared blocks where that works, else one copy.

What is hashed is what is stored: the digest is that of the bytes that were written. Only of a clone
may the source be hashed instead, under a stat that stays the same and is not too young to tell.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from cas import fs
from cas.digest import Digest, Hasher, hash_fd, raw_hash
from cas.errors import SourceChangedError, environment_failure

if TYPE_CHECKING:
    from cas.backends import Reader, Staging
    from cas.objects.loose import LooseObjects

PIECE: Final = 4 << 20
"""Bytes that are copied at once."""
_SAMPLE: Final = 4096
_KNOWN_LIMIT: Final = 50_000
"""Loose objects whose sizes are kept in mind, at most."""
_COMPARED: Final = 8
"""Stored objects of one size whose samples are looked at, at most."""


class Source(NamedTuple):
    """A file that is being taken in.

    Args:
        fd: Open for reading.
        size: What its size is said to be.
        name: For messages.
        before: Its stat when it was opened.
        at_ns: The clock before that stat was taken.
    """

    fd: int
    size: int
    name: str
    before: os.stat_result
    at_ns: int

    @classmethod
    def of(cls, fd: int, size: int, name: str) -> Source:
        """Take the stat of an open file.

        Raises:
            SourceChangedError: It has another size than was said.
        """
        at_ns = time.time_ns()
        source = cls(fd, size, name, os.fstat(fd), at_ns)
        if source.before.st_size != size:
            raise source.changed()
        return source

    @property
    def steady(self) -> bool:
        """Whether its last change is old enough for its stat to show the next one."""
        return not fs.racy(self.before, self.at_ns)

    def check(self) -> None:
        """See that nobody touched the file since it was opened.

        Raises:
            SourceChangedError: Someone did.
        """
        if fs.stat_key(os.fstat(self.fd)) != fs.stat_key(self.before):
            raise self.changed()

    def changed(self) -> SourceChangedError:
        """Return the error that says that it was touched."""
        return SourceChangedError(
            f"{self.name} changed while it was read; try again when nobody writes to it",
            path=self.name,
        )

    def hash(self, *, parallel: bool = True) -> Digest:
        """Hash the file under an unchanged stat.

        Args:
            parallel: Whether to use all cores.

        Raises:
            SourceChangedError: It changed meanwhile.
            EnvironmentFailure: It cannot be read.
        """
        try:
            digest = hash_fd(self.fd, parallel=parallel)
        except OSError as error:
            raise environment_failure(error, f"reading {self.name}") from error
        self.check()
        return digest


class Clone(NamedTuple):
    """A staging that shares all blocks of a file, which is still to be hashed."""

    source: Source
    staging: Staging

    @classmethod
    def of(cls, source: Source, staging: Staging) -> Clone | None:
        """Share a file's blocks with an empty staging.

        Returns:
            None where that cannot be done, or where the file itself cannot be hashed in place of
            its clone, since its last change is so young that its stat might not show the next.
        """
        fd = staging.fileno()
        if fd is None or not source.steady or not fs.clone(source.fd, fd):
            return None
        return cls(source, staging)


def stage(source: Source, staging: Staging, *, clone_ok: bool) -> Digest:
    """Bring a file's content into an empty staging file.

    Args:
        source: The file.
        staging: Where to.
        clone_ok: Whether blocks may be shared with the source.

    Returns:
        The digest of what is staged.

    Raises:
        SourceChangedError: The file changed meanwhile.
        EnvironmentFailure: It cannot be read, or its copy not be written.
    """
    fd = staging.fileno()
    try:
        if fd is not None and clone_ok and fs.clone(source.fd, fd):
            digest = source.hash() if source.steady else hash_fd(fd)
        elif fd is not None and source.before.st_blocks * 512 < source.size:
            fs.copy_sparse(source.fd, fd, source.size)
            digest = hash_fd(fd)
        else:
            digest = _copy(source, staging)
    except OSError as error:
        raise environment_failure(error, f"copying {source.name} into the store") from error
    source.check()
    if staging.tell() != source.size:
        raise source.changed()
    return digest


def _copy(source: Source, staging: Staging) -> Digest:
    """Copy piece by piece; a thread hashes each piece while it is written and the next is read."""
    from concurrent.futures import ThreadPoolExecutor  # late: start-up time

    hasher = Hasher()
    buffers = [memoryview(bytearray(min(PIECE, max(source.size, 1)))) for _ in range(2)]
    offset = 0
    with ThreadPoolExecutor(1, thread_name_prefix="cas-hashing") as pool:
        hashing = None
        for turn in range(source.size // PIECE + 2):
            buffer = buffers[turn % 2]
            count = os.preadv(source.fd, [buffer], offset)
            if hashing is not None:
                hashing.result()
            if count == 0:
                break
            piece = buffer[:count]
            hashing = pool.submit(hasher.update, piece)
            staging.write(piece)
            offset += count
    return hasher.digest()


class Twins:
    """Tells whether a file looks like a large object that is stored already.

    Only a hint: it compares sizes and three samples. When it says yes, hashing the file first may
    save the copy; when it says no, nothing is lost but that.

    Args:
        loose: The loose objects of the store.
    """

    def __init__(self, loose: LooseObjects) -> None:
        """Look at nothing yet."""
        self._loose = loose
        self._stored: dict[int, list[Digest]] | None = None
        self._samples: dict[int, set[bytes]] = {}
        self._count = 0

    def add(self, source: Source) -> None:
        """Keep a file in mind that is being stored."""
        if self._count < _KNOWN_LIMIT:
            self._count += 1
            self._samples.setdefault(source.size, set()).add(_sample_file(source))

    def like(self, source: Source) -> bool:
        """Say whether an object like this file is stored, or being stored."""
        if self._stored is None:
            self._stored = {}
            for digest, size in self._loose.listing():
                if self._count >= _KNOWN_LIMIT:
                    break
                self._count += 1
                self._stored.setdefault(size, []).append(digest)
        for digest in self._stored.pop(source.size, ())[:_COMPARED]:
            with self._loose.open(digest) as reader:
                self._samples.setdefault(source.size, set()).add(_sample_object(reader))
        known = self._samples.get(source.size)
        return known is not None and _sample_file(source) in known


def _offsets(size: int) -> tuple[int, int, int]:
    return 0, size // 2, max(0, size - _SAMPLE)


def _sample_file(source: Source) -> bytes:
    try:
        parts = [os.pread(source.fd, _SAMPLE, offset) for offset in _offsets(source.size)]
    except OSError as error:
        raise environment_failure(error, f"reading {source.name}") from error
    return raw_hash(b"".join(parts))


def _sample_object(reader: Reader) -> bytes:
    return raw_hash(b"".join(reader.read_at(at, _SAMPLE) for at in _offsets(reader.size)))
