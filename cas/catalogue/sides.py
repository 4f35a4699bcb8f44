"""The two sides of a comparison: each a spec of the store, or a directory of the caller."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from cas import fs, names
from cas.backends import MemoryBackend
from cas.catalogue.resolve import resolve_spec, tree_of
from cas.catalogue.sources import as_path
from cas.catalogue.textdiff import MAX_BYTES, unified
from cas.digest import Digest, hash_bytes, hash_fd
from cas.errors import NotFoundError, RefusedError
from cas.ingest import ingest
from cas.manifests import DIR, resolve
from cas.objects import BLOB, TREE, ObjectStore, ObjectWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cas.catalogue.context import Context
    from cas.catalogue.publication import Content
    from cas.catalogue.sources import Source


class _TreesOnly(ObjectWriter):
    """Hashes blobs without keeping them; keeps trees in memory."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        super().__init__(ObjectStore(MemoryBackend()), relied=False)
        self.trees: dict[bytes, bytes] = {}

    def known(self, digest: bytes) -> bool:
        """Say whether a tree is kept already."""
        return digest in self.trees

    def put(self, data: bytes, kind: int = BLOB, digest: bytes | None = None) -> Digest:
        """Keep a tree; of a blob return the digest."""
        name = hash_bytes(data) if digest is None else Digest(digest)
        if kind == TREE:
            self.trees[name] = data
        return name

    def put_large(
        self,
        src_fd: int,
        size: int,
        *,
        source: str = "the source",  # noqa: ARG002 - the writer's signature
        clone_ok: bool = True,  # noqa: ARG002
    ) -> Digest:
        """Return the digest of a large file."""
        return hash_fd(src_fd, length=size)


class Sides:
    """Finds and reads what is compared. The store is not written to.

    A directory is walked and hashed as an add would do it, so that what an add leaves out is no
    difference.

    Args:
        context: The store.
    """

    def __init__(self, context: Context) -> None:
        """Hold nothing yet."""
        self._context = context
        self._writer = _TreesOnly()

    def tree(self, side: Source) -> Digest:
        """Return the tree of one side; that of a directory can be read with `read`.

        Raises:
            NotFoundError: There is no such state, or it is a file.
        """
        path = as_path(side)
        if path is None:
            return tree_of(resolve_spec(self._context, os.fspath(side)))
        done = ingest(ObjectStore(MemoryBackend()), self._writer, path, cache=None)
        return done.tree.digest

    def read(self, digest: bytes) -> bytes:
        """Return an object of either side."""
        tree = self._writer.trees.get(digest)
        return self._context.objects.read(digest) if tree is None else tree

    def diff_text(self, a: Source, b: Source, path: str) -> Iterator[str]:
        """Yield a unified diff of one file; see `Store.diff_text`."""
        inside = names.check_path(os.fsencode(path).strip(b"/"))
        old, new = self._content(a, inside), self._content(b, inside)
        if old is None and new is None:
            raise NotFoundError(f"neither {a} nor {b} has the file {path}", path=path)
        shown = os.fsdecode(inside)
        yield from unified(
            old,
            new,
            f"a/{shown}" if shown else os.fspath(a),
            f"b/{shown}" if shown else os.fspath(b),
        )

    def _content(self, side: Source, inside: bytes) -> bytes | None:
        path = as_path(side)
        if path is not None:
            return _read_file(path, inside)
        spec = names.parse_spec(os.fspath(side))
        whole = b"/".join(part for part in (spec.path or b"", inside) if part)
        text = f"{spec.base}:{os.fsdecode(whole)}"
        try:
            found = resolve_spec(self._context, text)
        except NotFoundError:
            if not inside:
                raise
            tree_of(resolve_spec(self._context, os.fspath(side)))
            return None
        if found.tree is not None:
            raise RefusedError(f"{text} is a directory; name a file in it", spec=text)
        _check_size(found.size, text)
        return self._context.objects.read(found.digest)


def stored_content(objects: ObjectStore, content: Content, inside: bytes) -> bytes | None:
    """Return a file to be compared as text; None if there is none.

    Args:
        objects: Where it is.
        content: Entry type, size and digest of a file or directory.
        inside: The file's path in the directory; empty for the file itself.

    Raises:
        RefusedError: It is a directory, or too large.
    """
    kind, size, digest = content
    shown = os.fsdecode(inside) or Digest(digest).hex()
    if inside:
        if kind != DIR:
            return None
        try:
            _, kind, size, digest = resolve(objects.read, digest, inside)
        except NotFoundError:
            return None
    if kind == DIR:
        raise RefusedError(f"{shown} is a directory; name a file in it", path=shown)
    _check_size(size, shown)
    return objects.read(digest)


def _read_file(path: Path, inside: bytes) -> bytes | None:
    """Return the content of a file of the caller, or what a link holds; None if there is none."""
    whole = os.path.join(os.fsencode(path), inside) if inside else os.fsencode(path)
    shown = os.fsdecode(whole)
    try:
        mode = os.lstat(whole).st_mode
        if inside and stat.S_ISLNK(mode):
            return fs.readlink(whole)
        if stat.S_ISDIR(os.stat(whole).st_mode):
            raise RefusedError(f"{shown} is a directory; name a file in it", path=shown)
        fd = fs.open_read(whole, nofollow=False)
    except (FileNotFoundError, NotADirectoryError):
        if not inside:
            raise NotFoundError(f"{shown} not found", path=shown) from None
        os.stat(path)
        return None
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            raise RefusedError(f"{shown} is no file", path=shown)
        _check_size(state.st_size, shown)
        return fs.pread(fd, MAX_BYTES, 0)
    finally:
        os.close(fd)


def _check_size(size: int, what: str) -> None:
    if size > MAX_BYTES:
        raise RefusedError(
            f"{what} has {size} bytes; at most {MAX_BYTES} are compared as text", size=size
        )
