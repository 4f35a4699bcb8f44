"""Where content comes from: a path of the caller's filesystem, or a spec of this store."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cas import names
from cas.catalogue.closure import check_closure
from cas.catalogue.resolve import ENTRY_TYPES, resolve_spec
from cas.digest import Digest
from cas.errors import NotFoundError, RefusedError
from cas.manifests import DIR, EXEC, FILE, TreeBuilder, TreeRef, parse_tree
from cas.objects import TREE

if TYPE_CHECKING:
    from cas.catalogue.context import Context
    from cas.catalogue.resolve import Resolved
    from cas.manifests import NewEntry
    from cas.objects import ObjectWriter
    from cas.progress import Progress

#: A path of the caller's filesystem, or a spec.
Source = str | os.PathLike[str]


def as_path(source: Source) -> Path | None:
    """Tell a path from a spec: return the path, or None for a spec.

    A text is a path if something exists there, or if it begins like one (`./x`, `../x`, `/x`).
    Anything that is no `str` is a path.

    Raises:
        NotFoundError: It is neither a spec nor does anything exist there.
    """
    if not isinstance(source, str):
        return Path(source)
    if source.startswith(("./", "../", "/")) or os.path.lexists(source):
        return Path(source)
    try:
        names.parse_spec(source)
    except RefusedError as error:
        if "\0" in source or not source:
            raise
        raise NotFoundError(
            f"{source} not found: no such file or directory, and no spec ({error})", path=source
        ) from None
    return None


def check_source(context: Context, source: Source, what: str, *, folder: bool) -> None:
    """Check, before any work is done, that there is something at a source.

    Args:
        context: The store.
        source: A path or spec.
        what: What it is for, for the error.
        folder: Whether it must be a directory.

    Raises:
        NotFoundError: There is nothing.
        RefusedError: It must be a directory and is none.
    """
    path = as_path(source)
    if path is None:
        is_folder = resolve_spec(context, os.fspath(source)).tree is not None
    else:
        try:
            is_folder = stat.S_ISDIR(os.stat(path).st_mode)
        except FileNotFoundError:
            raise NotFoundError(f"{what}: {path} not found", path=str(path)) from None
    if folder and not is_folder:
        raise RefusedError(f"{what}: {source} is no directory", path=os.fspath(source))


class Taken(NamedTuple):
    """Content that is stored now.

    Attributes:
        type: Its entry type.
        size: Its bytes; of a directory the recursive sum.
        digest: Its digest.
        files: Recursive count of what is not a directory.
        manifest: The version or seed that it was taken from, if it was.
    """

    type: str
    size: int
    digest: Digest
    files: int
    manifest: Digest | None = None

    @property
    def tree(self) -> TreeRef:
        """The same as a tree, which it must be."""
        assert self.type == DIR
        return TreeRef(self.digest, self.files, self.size)

    @property
    def entry(self) -> NewEntry:
        """What a tree says of it."""
        return self.type, self.size, self.digest, self.files


class Taker:
    """Stores content from paths and specs.

    Args:
        context: The store.
        writer: What to write with.
        ignore: Honour `.casignore` files.
        workers: How many processes read and hash; None for as many as pay.
        progress: Called with what was done so far.

    Attributes:
        notices: Sentences about what was skipped or taken in a special way.
    """

    def __init__(
        self,
        context: Context,
        writer: ObjectWriter,
        *,
        ignore: bool = True,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Store nothing yet."""
        self._context = context
        self._writer = writer
        self._ignore = ignore
        self._workers = workers
        self._progress = progress
        self.notices: list[str] = []

    def take(self, source: Source) -> Taken:
        """Store a directory as a tree or a file as a blob, or find what a spec names.

        A link that is named itself is followed; those inside a directory are kept.

        Raises:
            NotFoundError: There is nothing.
            RefusedError: It is something that a store does not take.
        """
        from cas.ingest import ingest_blob  # late: reading a store needs none of it

        path = as_path(source)
        if path is None:
            return self._find(os.fspath(source))[1]
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            raise NotFoundError(f"{path} not found", path=str(path)) from None
        if stat.S_ISDIR(mode):
            return self._ingest(path)
        digest, size = ingest_blob(self._writer, path)
        return Taken(
            type=EXEC if mode & stat.S_IXUSR else FILE, size=size, digest=Digest(digest), files=1
        )

    def take_tree(self, source: Source) -> Taken:
        """Store a directory or find a tree; of a file, make a tree that holds just it.

        Raises:
            NotFoundError: There is nothing.
            RefusedError: It is something that a store does not take, or a blob without a name.
        """
        path = as_path(source)
        if path is not None:
            return self._ingest(path)
        resolved, taken = self._find(os.fspath(source))
        if taken.type == DIR:
            return taken
        name = resolved.path.rpartition(b"/")[2]
        if not name:
            raise RefusedError(
                f"{source} is a file without a name; name the directory that holds it",
                spec=resolved.spec,
            )
        builder = TreeBuilder(lambda page: self._writer.put(page, TREE))
        builder.add(name, taken.type, taken.size, taken.digest)
        return _of_tree(builder.finish(), taken.manifest)

    def _ingest(self, path: Path) -> Taken:
        from cas.ingest import ingest  # late: reading a store needs none of it

        done = ingest(
            self._context.objects,
            self._writer,
            path,
            cache=self._context.stat_cache,
            ignore=self._ignore,
            workers=self._workers,
            progress=self._progress,
        )
        self.notices.extend(done.notices)
        return _of_tree(done.tree)

    def _find(self, text: str) -> tuple[Resolved, Taken]:
        resolved = resolve_spec(self._context, text)
        manifest = resolved.manifest
        named = manifest is not None and bool(self._context.refs.by_digest(manifest))
        if not named and resolved.tree is not None:
            # No name keeps it: part of it may be gone already.
            check_closure(self._context.objects, resolved.tree, text)
        self._writer.known(resolved.digest)
        files = 1
        if resolved.tree is not None:
            files = parse_tree(self._context.objects.read(resolved.tree)).files
        return resolved, Taken(
            type=ENTRY_TYPES[resolved.type],
            size=resolved.size,
            digest=resolved.digest,
            files=files,
            manifest=resolved.manifest,
        )


def _of_tree(tree: TreeRef, manifest: Digest | None = None) -> Taken:
    return Taken(type=DIR, size=tree.bytes, digest=tree.digest, files=tree.files, manifest=manifest)
