"""Loose objects: large objects as byte-identical files of their own, and the proofs of them.

A proof remembers the stat that a loose file had when all of it was last hashed. While the stat is
the same, a clone, a link or a ranged read may hand out bytes without reading them all again.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from typing import TYPE_CHECKING, Final

from cas import fs
from cas.backends import Missing
from cas.digest import Digest, Hasher, hash_fd, raw_hash
from cas.errors import (
    CasError,
    CorruptObjectError,
    EnvironmentFailure,
    FormatError,
    RefusedError,
    environment_failure,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.backends import Backend, Reader

PREFIX: Final = "loose/"
PROOFS: Final = "cache/proofs/"

_MAGIC: Final = b"CASPROF\x01"
_PROOF: Final = struct.Struct(">8sQQQqq")
"""Magic, device, inode, size, mtime and ctime in ns; the checksum of these follows."""
_PIECE: Final = 1 << 20


def loose_key(digest: bytes) -> str:
    """Return the key of the loose object with that digest."""
    text = digest.hex()
    return f"{PREFIX}{text[:2]}/{text}"


def loose_digest(key: str) -> Digest | None:
    """Return the digest in a loose object's key, or None if the key is not one."""
    name = key.rpartition("/")[2]
    try:
        digest = Digest.parse(name)
    except RefusedError:
        return None
    return digest if key == loose_key(digest) else None


def _proof_key(digest: bytes) -> str:
    text = digest.hex()
    return f"{PROOFS}{text[:2]}/{text}"


class LooseObjects:
    """The loose objects of a store.

    Args:
        backend: Where they lie.
    """

    def __init__(self, backend: Backend) -> None:
        """Look which fan-out directories there are."""
        self._backend = backend
        local = backend.local
        self._root = None if local is None else os.fsencode(local.root) + b"/loose/"
        self._fans: frozenset[str] = frozenset()
        self.reload()

    def reload(self) -> None:
        """Look again which fan-out directories there are."""
        if self._root is None:
            return
        try:
            self._fans = frozenset(map(os.fsdecode, os.listdir(self._root)))
        except FileNotFoundError:
            self._fans = frozenset()
        except OSError as error:
            raise environment_failure(error, "listing the loose objects") from error

    def note(self, digest: bytes) -> None:
        """Take note that an object was just put, maybe into a new fan-out directory."""
        fan = digest[:1].hex()
        if fan not in self._fans:
            self._fans |= {fan}

    def size(self, digest: bytes) -> int | None:
        """Return how many bytes a loose object has, or None if there is none."""
        found = self.look(digest)
        return None if found is None else found[0]

    def look(self, digest: bytes) -> tuple[int, int] | None:
        """Return size and time of the last change of a loose object, or None if there is none.

        The time is in ns since 1970, and 0 where nothing is ever waiting to become durable.
        """
        text = digest.hex()
        if self._root is None:
            try:
                with self._backend.open(loose_key(digest)) as reader:
                    return reader.size, 0
            except Missing:
                return None
        fan = text[:2]
        if fan not in self._fans:
            return None
        try:
            st = os.lstat(b"%b%b/%b" % (self._root, fan.encode(), text.encode()))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise environment_failure(error, f"looking at {loose_key(digest)}") from error
        return (st.st_size, st.st_ctime_ns) if stat.S_ISREG(st.st_mode) else None

    def open(self, digest: bytes) -> Reader:
        """Open a loose object.

        Raises:
            Missing: There is none.
        """
        return self._backend.open(loose_key(digest))

    def pieces(self, digest: bytes) -> Iterator[bytes]:
        """Give the bytes of a loose object, which are checked when the last came.

        Raises:
            Missing: There is none.
            CorruptObjectError: What was given is not the object.
        """
        with self.open(digest) as reader:
            hasher = Hasher()
            offset = 0
            while data := reader.read_at(offset, _PIECE):
                hasher.update(data)
                offset += len(data)
                yield data
            if hasher.digest() != digest:
                raise _corrupt(digest)

    def listing(self, fan: str = "") -> Iterator[tuple[Digest, int]]:
        """Give digest and size of every loose object, sorted; of one fan-out directory only."""
        for entry in self._backend.list(f"{PREFIX}{fan}/" if fan else PREFIX):
            digest = loose_digest(entry.key)
            if digest is not None:
                yield digest, entry.size

    # --- proofs --------------------------------------------------------------------------------

    def proven(self, digest: bytes, reader: Reader) -> bool:
        """Say whether an open loose object has the stat that it had when it was last hashed."""
        fd = reader.fileno()
        if fd is None:
            return False
        try:
            proof = self._backend.get(_proof_key(digest), max_bytes=_PROOF.size + 32)
        except (Missing, FormatError, EnvironmentFailure):
            return False
        return proof == _proof(digest, fs.stat_key(os.fstat(fd)))

    def prove(self, digest: bytes, reader: Reader, *, parallel: bool = True) -> None:
        """Hash an open loose object whole and remember its stat.

        Args:
            digest: Its digest.
            reader: The open object.
            parallel: Whether to hash on all cores.

        Raises:
            CorruptObjectError: It does not have its digest.
            EnvironmentFailure: It cannot be read.
        """
        fd = reader.fileno()
        if fd is None:
            hasher = Hasher()
            for offset in range(0, reader.size, _PIECE):
                hasher.update(reader.read_at(offset, _PIECE))
            if hasher.digest() != digest:
                raise _corrupt(digest)
            return
        try:
            at = time.time_ns()
            before = os.fstat(fd)
            actual = hash_fd(fd, parallel=parallel)
            after = os.fstat(fd)
        except OSError as error:
            raise environment_failure(error, f"reading {loose_key(digest)}") from error
        if actual != digest:
            raise _corrupt(digest)
        if fs.stat_key(before) == fs.stat_key(after) and not fs.racy(before, at):
            self.remember(digest, after)

    def remember(self, digest: bytes, st: os.stat_result) -> None:
        """Record the stat of a loose object all of whose bytes are known to be right.

        Losing a proof costs only time, so one that cannot be written is left out.
        """
        local = self._backend.local
        if local is None or not local.writable:
            return
        try:
            self._backend.put(_proof_key(digest), _proof(digest, fs.stat_key(st)), durable=False)
        except CasError:
            return

    def forget(self, digest: bytes) -> None:
        """Delete the proof of a loose object, if there is one."""
        self._backend.delete(_proof_key(digest))


def _proof(digest: bytes, key: fs.StatKey) -> bytes:
    fields = _PROOF.pack(_MAGIC, *key)
    return fields + raw_hash(digest + fields)


def _corrupt(digest: bytes) -> CorruptObjectError:
    key = loose_key(digest)
    return CorruptObjectError(
        f"object {digest.hex()} is corrupt: {key} holds other bytes; "
        "restore it from another copy of the store",
        digest=digest.hex(),
        location=key,
    )
