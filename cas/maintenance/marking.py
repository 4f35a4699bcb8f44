"""Marking: which objects of a store somebody needs.

Needed is what a version or seed reaches that has its name, or had it within the grace; what a tag
points at, or did within the grace; what the learning log holds; what a workspace was checked out
from; the chunks of what is stored in chunks; and of everything that ever had a name, and of what it
came from, the manifest, so that lineage survives.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from cas.catalogue.resolve import read_manifest
from cas.errors import CasError, DamagedError, FormatError, MissingObjectError, PurgedError
from cas.learning import Learning
from cas.manifests import DIR, Leaf, SeedManifest, parse_tree
from cas.objects.chunks import chunked
from cas.spill import Spill
from cas.workspace import remembered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cas.catalogue.context import Context
    from cas.manifests import Node, VersionManifest
    from cas.objects import ObjectStore
    from cas.progress import Meter
    from cas.refs import Refs

MANIFEST: Final = "manifest"
LINEAGE: Final = "lineage"
"""A manifest, without what it names."""
TREE: Final = "tree"
BLOB: Final = "blob"
ANY: Final = "any"
"""A tag may point at any of them."""

_MEMORY: Final = 16 << 20
_BATCH: Final = 512
_PIECE: Final = 1 << 16
_PREFIX: Final = 8
_MOST: Final = 2 << 20
"""Bytes that no manifest exceeds."""


class Root(NamedTuple):
    """An object that is needed, with all that it reaches.

    Attributes:
        digest: The object.
        kind: `MANIFEST`, `LINEAGE`, `TREE`, `BLOB` or `ANY`.
        holder: Who needs it, for messages.
        sure: Whether all of it must be there. Of what only may be wanted again, such as a removed
            version, something may be gone already.
    """

    digest: bytes
    kind: str
    holder: str
    sure: bool


def roots(context: Context, since: float) -> Iterator[Root]:
    """Give what is needed by name, as the logs say after a refresh.

    Args:
        context: The store.
        since: Names that were taken away, and places that tags left, after this time count as well:
            in seconds since 1970, by the clocks of those who did.

    Raises:
        DamagedError: A log, or the memory of a workspace, is damaged.
    """
    refs = context.refs
    refs.refresh()
    for resource in refs.resources(removed=True):
        for version in refs.versions(resource, removed=True):
            kind = MANIFEST if _is_kept(version.removed_at, since) else LINEAGE
            spec = f"{resource}@v{version.number}"
            yield Root(version.digest, kind, spec, version.removed_at is None)
    for seed in refs.seeds(removed=True):
        yield from _seed_roots(refs, seed.name, since)
    for name in refs.every_tag():
        yield from _tag_roots(refs, name, since)
    for workspace in remembered(context.backend):
        for tree in workspace.trees:
            yield Root(tree, TREE, f"the workspace {workspace.path}", False)
    learning = Learning(context)
    learning.refresh()
    for digest, kind, holder in learning.kept_digests():
        yield Root(digest, TREE if kind == "tree" else BLOB, holder, True)


def _is_kept(removed_at: str | None, since: float) -> bool:
    """Say whether a name is there, or was until some time that counts; in doubt it was."""
    if not removed_at:
        return True
    try:
        when = datetime.fromisoformat(removed_at)
    except ValueError:
        return True
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() > since


def _seed_roots(refs: Refs, name: str, since: float) -> Iterator[Root]:
    """Give the seeds that have, or had, a name; that of a removed one may have been used again."""
    digest: bytes | None = None
    for event in refs.seed_history(name):
        digest = event.get("digest", digest)
        if event["type"] == "seed-removed" and digest is not None:
            kind = MANIFEST if _is_kept(event["at"], since) else LINEAGE
            yield Root(digest, kind, f"seed:{name}", False)
    seed = refs.seed(name)
    if seed is not None and seed.removed_at is None:
        yield Root(seed.digest, MANIFEST, f"seed:{name}", True)


def _tag_roots(refs: Refs, name: str, since: float) -> Iterator[Root]:
    """Give where a tag points, and where it pointed until some time that counts."""
    before: bytes | None = None
    for move in refs.tag_history(name):
        if before is not None and _is_kept(move.at, since):
            yield Root(before, ANY, f"tag:{name}", False)
        before = move.digest
    if before is not None:
        # What was pulled with its history may never have been here.
        yield Root(before, ANY, f"tag:{name}", not refs.by_digest(before, removed=True))


class Marks:
    """The objects that are needed; a context manager.

    Args:
        objects: Where they are.
        meter: Told of each tree and manifest that was looked at.
    """

    def __init__(self, objects: ObjectStore, meter: Meter) -> None:
        """Mark nothing yet."""
        self._objects = objects
        self._meter = meter
        self._roots: set[Root] = set()
        self._manifests: set[bytes] = set()
        self._digests = Spill(_MEMORY, unique=True)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Forget everything."""
        self._digests.close()

    def add(self, wanted: Iterable[Root]) -> None:
        """Mark what roots reach. Those that were given before cost nothing.

        Raises:
            DamagedError: Something that must be there cannot be read, so nobody can say what it
                needs.
        """
        trees: dict[bool, list[tuple[bytes, str]]] = {True: [], False: []}
        for root in wanted:
            if root in self._roots:
                continue
            self._roots.add(root)
            digest, kind, holder, sure = root
            if kind == MANIFEST:
                self._mark_manifest(digest, holder, trees[sure], sure=sure)
            elif kind == LINEAGE:
                self._mark_lineage([digest], holder)
            elif kind == TREE:
                trees[sure].append((digest, holder))
            else:
                self._digests.add(digest)
                if kind == ANY:
                    self._mark_any(digest, holder, trees[sure], sure=sure)
        for sure, named in trees.items():
            self._mark_trees(named, sure=sure)

    def begin_again(self) -> None:
        """Forget which roots were given; what they reach stays marked as far as it was."""
        self._roots.clear()
        self._manifests.clear()

    def seal(self) -> Marked:
        """Return what was marked so far, with the chunks that it is stored in.

        Raises:
            DamagedError: A chunk list is damaged.
        """
        marked = Marked(self._digests)
        for digest, chunks in chunked(self._objects):
            if digest in marked:
                self._digests.extend(chunks)
        return Marked(self._digests)

    # --- inside --------------------------------------------------------------------------------

    def _mark_manifest(
        self, digest: bytes, holder: str, trees: list[tuple[bytes, str]], *, sure: bool
    ) -> None:
        """Mark a manifest, those that it came from, and note its trees."""
        manifest = self._read_manifest(digest, holder, sure=sure)
        if manifest is None:
            return
        trees.append((manifest.tree, holder))
        if isinstance(manifest, SeedManifest):
            for part in manifest.parts.values():
                if part.kind == "tree":
                    trees.append((part.digest, holder))
                else:
                    self._digests.add(part.digest)
        self._mark_lineage(manifest.parents, holder)

    def _mark_lineage(self, digests: Iterable[bytes], holder: str) -> None:
        """Mark manifests, and those that they came from, as far as they are there."""
        waiting = list(digests)
        while waiting:
            digest = waiting.pop()
            if digest not in self._manifests:
                manifest = self._read_manifest(digest, holder, sure=False)
                waiting += manifest.parents if manifest is not None else ()

    def _read_manifest(
        self, digest: bytes, holder: str, *, sure: bool
    ) -> VersionManifest | SeedManifest | None:
        self._digests.add(digest)
        self._manifests.add(digest)
        self._meter.add()
        try:
            return read_manifest(self._objects.read(digest, max_bytes=_MOST))
        except CasError as error:
            if sure or not isinstance(error, MissingObjectError):
                raise _doubt(holder, error) from error
            return None

    def _mark_any(
        self, digest: bytes, holder: str, trees: list[tuple[bytes, str]], *, sure: bool
    ) -> None:
        try:
            if self._objects.info(digest).size > _MOST:
                return
            encoded = self._objects.read(digest)
        except PurgedError:
            return
        except CasError as error:
            if sure or not isinstance(error, MissingObjectError):
                raise _doubt(holder, error) from error
            return
        try:
            read_manifest(encoded)
        except FormatError:
            try:
                parse_tree(encoded)
            except FormatError:
                return
            trees.append((digest, holder))
        else:
            self._mark_manifest(digest, holder, trees, sure=sure)

    def _mark_trees(self, named: list[tuple[bytes, str]], *, sure: bool) -> None:
        """Mark trees and all below them, level by level, each page of a level once."""
        holders: dict[bytes, str] = {}
        level = Spill(_MEMORY, unique=True)
        for tree, holder in named:
            holders.setdefault(tree, holder)
            level.add(tree)
            self._digests.add(tree)
        while True:
            found = False
            below = Spill(_MEMORY, unique=True)
            try:
                for page in self._pages(level, holders, sure=sure):
                    found = True
                    self._meter.add()
                    if isinstance(page, Leaf):
                        self._digests.extend([entry[3] for entry in page.entries])
                        below.extend([entry[3] for entry in page.entries if entry[1] == DIR])
                    else:
                        children = [child[4] for child in page.children]
                        self._digests.extend(children)
                        below.extend(children)
            finally:
                level.close()
                level = below
            if not found:
                below.close()
                return

    def _pages(
        self, digests: Spill, holders: dict[bytes, str], *, sure: bool
    ) -> Iterator[Leaf | Node]:
        rest = iter(digests)
        while batch := list(islice(rest, _BATCH)):
            try:
                for _, encoded in list(self._objects.read_many(batch)):
                    yield parse_tree(encoded)
            except CasError:
                for digest in batch:
                    try:
                        page = parse_tree(self._objects.read(digest))
                    except CasError as error:
                        if sure or not isinstance(error, MissingObjectError):
                            raise _doubt(holders.get(digest, "a tree"), error) from error
                    else:
                        yield page


def _doubt(holder: str, error: CasError) -> DamagedError:
    return DamagedError(
        f"what {holder} needs cannot be told: {error}; "
        "nothing was removed: verify the store, repair it or remove that name, and try again"
    )


class Marked:
    """Digests, to be asked about, in 8 bytes each.

    Only their beginnings are kept: of 2^64 there may be, once in a while, one that looks like
    another, and is kept with it.

    Args:
        digests: In order, each once.
    """

    def __init__(self, digests: Iterable[bytes]) -> None:
        """Take them in."""
        self._prefixes: array[int] = array("Q")
        rest = iter(digests)
        while piece := list(islice(rest, _PIECE)):
            part: array[int] = array("Q", b"".join([digest[:_PREFIX] for digest in piece]))
            if sys.byteorder == "little":
                part.byteswap()
            self._prefixes += part

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._prefixes)

    def __contains__(self, digest: bytes) -> bool:
        """Say whether a digest is one of them."""
        return self.place(digest) is not None

    def place(self, digest: bytes) -> int | None:
        """Return which of them a digest is, counted from 0, or None."""
        prefix = int.from_bytes(digest[:_PREFIX])
        at = bisect_left(self._prefixes, prefix)
        if at == len(self._prefixes) or self._prefixes[at] != prefix:
            return None
        return at
