"""Where good copies come from: another store, or any directory that holds files which fit."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from cas import fs
from cas.backends.reader import LocalReader
from cas.catalogue.identity import is_store
from cas.catalogue.opening import opened, store_root
from cas.catalogue.sides import Sides
from cas.digest import Digest, hash_bytes
from cas.errors import CasError, DamagedError, DiskFullError, NotFoundError, RefusedError
from cas.manifests import DIR, LINK, Leaf, parse_tree
from cas.names import parse_spec
from cas.objects import BLOB, SEED, TREE, VERSION, copy_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cas.backends import Reader
    from cas.catalogue.context import Context
    from cas.objects import ObjectWriter
    from cas.refs import Refs

SMALL: Final = 64 << 20
"""Bytes of an object that is read whole, at most."""


class Source(Protocol):
    """Gives the right bytes of objects."""

    name: str
    """For people."""
    store: Context | None
    """The store, where it is one."""

    def read(self, digest: bytes) -> bytes | None:
        """Return an object of at most `SMALL` bytes, checked, or None."""

    def copy(self, digest: bytes, writer: ObjectWriter) -> bool:
        """Put an object of any size into another store; False where there is no good copy."""


class StoreSource:
    """Another store.

    Args:
        store: The store; it is only read.
    """

    def __init__(self, store: Context) -> None:
        """Read nothing yet."""
        self.name = str(store.root)
        self.store: Context | None = store
        self._objects = store.objects

    def read(self, digest: bytes) -> bytes | None:
        """Return an object of at most `SMALL` bytes, checked, or None."""
        try:
            return self._objects.read(digest, max_bytes=SMALL)
        except CasError:
            return None

    def copy(self, digest: bytes, writer: ObjectWriter) -> bool:
        """Put an object of any size into another store; False where there is no good copy."""
        try:
            kind = self._objects.info(digest).kind
        except CasError:
            return False
        content = self.read(digest)
        if content is not None:
            writer.put(content, kind, digest)
            return True
        reader = self._objects.open_loose(digest)
        return reader is not None and _copy_large(reader, writer, digest, self.name)


class FolderSource:
    """A directory: a workspace, an old copy, or anything else.

    Everything in it is hashed when something is first asked for, and what could be of use is kept
    in mind.

    Args:
        path: The directory.
        wanted: Says whether an object is one that may be asked for.
    """

    store: Context | None = None

    def __init__(self, path: Path, context: Context, wanted: Callable[[bytes], bool]) -> None:
        """Read nothing yet."""
        self.name = str(path)
        self._root = os.fsencode(path)
        self._context = context
        self._wanted = wanted
        self._sides: Sides | None = None
        self._trees: set[bytes] = set()
        self._files: dict[bytes, tuple[bytes, str]] = {}

    def read(self, digest: bytes) -> bytes | None:
        """Return an object of at most `SMALL` bytes, checked, or None."""
        sides = self._look()
        if digest in self._trees:
            return sides.read(digest)
        found = self._files.get(digest)
        if found is None:
            return None
        path, kind = found
        try:
            if kind == LINK:
                content = fs.readlink(path)
            else:
                with _opened(path) as reader:
                    if reader.size > SMALL:
                        return None
                    content = reader.read_at(0, reader.size)
        except OSError:
            return None
        return content if hash_bytes(content) == digest else None

    def copy(self, digest: bytes, writer: ObjectWriter) -> bool:
        """Put an object of any size into another store; False where there is no good copy."""
        content = self.read(digest)
        if content is not None:
            writer.put(content, TREE if digest in self._trees else BLOB, digest)
            return True
        found = self._files.get(digest)
        if found is None or found[1] == LINK:
            return False
        try:
            with _opened(found[0]) as reader:
                return _copy_large(reader, writer, digest, os.fsdecode(found[0]))
        except OSError:
            return False

    def _look(self) -> Sides:
        if self._sides is None:
            self._sides = Sides(self._context)
            root = self._sides.tree(Path(os.fsdecode(self._root)))
            for path, digest in self._pages(self._sides, root):
                if self._wanted(digest):
                    self._trees.add(digest)
                page = parse_tree(self._sides.read(digest))
                if isinstance(page, Leaf):
                    for name, kind, _, blob in page.entries:
                        if kind != DIR and self._wanted(blob):
                            self._files[blob] = (os.path.join(path, name), kind)
        return self._sides

    def _pages(self, sides: Sides, root: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Give the pages of all trees in the directory, with the paths of their folders."""
        stack = [(self._root, root)]
        while stack:
            path, digest = stack.pop()
            yield path, digest
            page = parse_tree(sides.read(digest))
            if isinstance(page, Leaf):
                stack += [
                    (os.path.join(path, name), tree)
                    for name, kind, _, tree in page.entries
                    if kind == DIR
                ]
            else:
                stack += [(path, child[4]) for child in page.children]


class NamesSource:
    """The catalogue of the store itself, which holds the manifests of all versions and seeds.

    Args:
        refs: Its names.
    """

    name = "the catalogue"
    store: Context | None = None

    def __init__(self, refs: Refs) -> None:
        """Read nothing yet."""
        self._refs = refs

    def read(self, digest: bytes) -> bytes | None:
        """Return a manifest, checked, or None."""
        try:
            for text in self._refs.by_digest(digest, removed=True):
                spec = parse_spec(text)
                ref = (
                    self._refs.seed(spec.name)
                    if spec.kind == "seed"
                    else self._refs.version(spec.name, spec.number or 0)
                )
                if ref is not None and hash_bytes(ref.manifest_bytes) == digest:
                    return ref.manifest_bytes
        except CasError:
            return None
        return None

    def copy(self, digest: bytes, writer: ObjectWriter) -> bool:
        """Put a manifest into the store; False where it is none."""
        content = self.read(digest)
        if content is None:
            return False
        named = self._refs.by_digest(digest, removed=True)
        writer.put(content, SEED if named[0].startswith("seed:") else VERSION, digest)
        return True


class Sources:
    """Several sources, asked in turn.

    Args:
        sources: The sources.
    """

    def __init__(self, *sources: Source) -> None:
        """Ask nothing yet."""
        self._sources = sources
        self.store = next((one.store for one in sources if one.store is not None), None)
        self.used: dict[bytes, str] = {}
        """Digest → name of the source that had it."""

    def read(self, digest: bytes) -> bytes | None:
        """Return an object of at most `SMALL` bytes, checked, or None."""
        for source in self._sources:
            content = source.read(digest)
            if content is not None:
                self.used[bytes(digest)] = source.name
                return content
        return None

    def copy(self, digest: bytes, writer: ObjectWriter) -> bool:
        """Put an object of any size into the store; False where there is no good copy."""
        for source in self._sources:
            if source.copy(digest, writer):
                self.used[bytes(digest)] = source.name
                return True
        return False


@contextmanager
def open_source(
    path: str | os.PathLike[str], context: Context, wanted: Callable[[bytes], bool]
) -> Iterator[Source]:
    """Open what good copies are to come from.

    Args:
        path: A store, or any directory.
        context: The store that is repaired.
        wanted: Says whether an object is one that may be asked for.

    Raises:
        NotFoundError: There is nothing.
        RefusedError: It is the store itself, or no directory.
    """
    root = store_root(path)
    if not os.path.lexists(root):
        raise NotFoundError(f"{root} not found; name a store or a directory", path=str(root))
    if not root.is_dir():
        raise RefusedError(f"{root} is no directory", path=str(root))
    if os.path.samefile(root, context.root):
        raise RefusedError(f"{root} is this store itself; name another one", path=str(root))
    with ExitStack() as stack:
        store = None
        if is_store(root):
            try:
                store = stack.enter_context(opened(root))
            except DamagedError:
                # Its large objects are files that may fit all the same.
                if not (root / "loose").is_dir():
                    raise
                root /= "loose"
        yield FolderSource(root, context, wanted) if store is None else StoreSource(store)


def _opened(path: bytes) -> Reader:
    """Open a file that lies anywhere.

    Raises:
        OSError: It cannot be opened.
    """
    fd = fs.open_read(path)
    return LocalReader(fd, os.fstat(fd).st_size, os.fsdecode(path))


def _copy_large(reader: Reader, writer: ObjectWriter, digest: bytes, name: str) -> bool:
    with reader:
        try:
            copy_file(reader, writer, Digest(digest), name)
        except DiskFullError:
            raise
        except CasError:
            return False
        return True
