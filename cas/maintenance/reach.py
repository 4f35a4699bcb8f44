"""What the names of a store reach: whether all of it is there, and which names damage hits."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from cas.digest import DIGEST_SIZE, Digest, raw_hash
from cas.errors import CasError, CorruptObjectError, EnvironmentFailure, FormatError
from cas.maintenance.report import Problem
from cas.manifests import DIR, Leaf, SeedManifest, VersionManifest, parse_tree
from cas.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cas.manifests import Node
    from cas.objects import ObjectStore
    from cas.refs import Refs

_MEMORY: Final = 16 << 20
"""Bytes that each list of digests may take before it goes to a temporary file."""
_BATCH: Final = 512
_ANY: Final = b"\xff" * 8
"""In the place of a size: nothing is said of it."""
_STEP: Final = 4096
"""Entries of trees that are looked at in one step."""

Hit = tuple[bytes, bytes]
"""Path and digest of something that is damaged."""


class Root(NamedTuple):
    """A name, and what it stands for."""

    spec: str
    own: bytes
    """Digest of the version or seed manifest; of a bare tree or file its own."""
    tree: bytes | None
    """Digest of the tree; None for a file."""


def split(item: bytes) -> tuple[bytes, int]:
    """Return digest and size of what `Reach.check` reached."""
    return item[:DIGEST_SIZE], int.from_bytes(item[DIGEST_SIZE:])


class Reach:
    """The closure of the names of a store.

    Args:
        objects: Where the objects are.
    """

    def __init__(self, objects: ObjectStore) -> None:
        """Look at nothing yet."""
        self._objects = objects
        self.problems: list[Problem] = []
        self.purged: set[bytes] = set()
        """What is not there because it was purged."""

    # --- names -----------------------------------------------------------------------------------

    def roots(self, refs: Refs) -> Iterator[Root]:
        """Give what versions and seeds stand for; what is wrong with a name becomes a problem.

        A tag that points at something without a name of its own is a root too.
        """
        for resource in refs.resources():
            for version in refs.versions(resource):
                spec = f"{resource}@v{version.number}"
                named = {"resource": resource, "number": version.number}
                yield from self._root(spec, version.digest, version.manifest_bytes, named)
        for seed in refs.seeds():
            spec = f"seed:{seed.name}"
            yield from self._root(spec, seed.digest, seed.manifest_bytes, {"name": seed.name})
        for tag in refs.tags():
            if not refs.by_digest(tag.digest):
                yield from self._tagged(f"tag:{tag.name}", tag.digest)

    def _root(
        self, spec: str, digest: Digest, encoded: bytes, named: dict[str, object]
    ) -> Iterator[Root]:
        where = f"the catalogue's record of {spec}"
        if raw_hash(encoded) != digest:
            self._find("bad_ref", digest, where, "it holds another manifest than it names", spec)
            return
        kind = SeedManifest if "name" in named else VersionManifest
        try:
            manifest = kind.from_bytes(encoded)
        except CasError as error:
            self._find("bad_manifest", digest, where, str(error), spec)
            return
        if any(getattr(manifest, field) != value for field, value in named.items()):
            self._find("bad_ref", digest, where, "the manifest is of another name", spec)
        yield Root(spec, digest, manifest.tree)

    def _tagged(self, spec: str, digest: Digest) -> Iterator[Root]:
        try:
            encoded = self._objects.read(digest)
        except CasError as error:
            self._find(_kind_of(error), digest, f"the target of {spec}", str(error), spec)
            return
        for kind in (VersionManifest, SeedManifest):
            try:
                yield Root(spec, digest, kind.from_bytes(encoded).tree)
            except FormatError:
                continue
            return
        try:
            parse_tree(encoded)
        except FormatError:
            return  # a file: it was just read, and nothing lies below it
        yield Root(spec, digest, digest)

    # --- what they reach -------------------------------------------------------------------------

    def check(self, roots: Iterable[Root], reached: Spill | None = None) -> Iterator[None]:
        """See step by step that all below the roots is there, with the sizes that trees give it.

        Trees are read and checked, files are looked up. Memory is bounded.

        Args:
            roots: Where to begin.
            reached: Takes digest and size, 8 bytes, of each object that is there.
        """
        with (
            Spill(_MEMORY, unique=True) as trees,
            Spill(_MEMORY, unique=True) as manifests,
            Spill(_MEMORY, unique=True) as files,
        ):
            for root in roots:
                if root.tree is not None:
                    trees.add(root.tree + _ANY)
                if root.own != root.tree:
                    manifests.add(root.own)
            for batch in _batches(manifests):
                self._check_there([(digest, None) for digest in batch], reached)
                yield
            seen = 0
            for digest, size, page in self._pages(trees):
                if reached is not None:
                    reached.add(digest + size.to_bytes(8))
                if isinstance(page, Leaf):
                    files.extend(
                        digest + size.to_bytes(8)
                        for _, kind, size, digest in page.entries
                        if kind != DIR
                    )
                    seen += len(page.entries)
                if seen >= _STEP:
                    seen = 0
                    yield
            for batch in _batches(files):
                odd = self._objects.unlike(batch)
                if odd:
                    self._check_there(list(map(split, odd)), reached)
                if reached is not None:
                    reached.extend(set(batch).difference(odd))
                yield

    def _pages(self, level: Spill) -> Iterator[tuple[bytes, int, Leaf | Node]]:
        """Give the pages of trees and of those below them, each level's pages once."""
        while True:
            found = False
            below = Spill(_MEMORY, unique=True)
            try:
                for digest, size, page in self._read_pages(level):
                    found = True
                    yield digest, size, page
                    below.extend(_claims(page))
            finally:
                level.close()
                level = below
            if not found:
                below.close()
                return

    def _read_pages(self, claims: Iterable[bytes]) -> Iterator[tuple[bytes, int, Leaf | Node]]:
        """Read and parse tree pages; what is wrong with one becomes a problem.

        Args:
            claims: Digests, each with the bytes that what lies in it is said to have.
        """
        for batch in _batches(claims):
            digests = [claim[:DIGEST_SIZE] for claim in batch]
            try:
                encoded = list(self._objects.read_many(digests))
            except CasError:
                encoded = list(self._read_singly(digests))
            claimed: dict[bytes, list[bytes]] = {}
            for claim in batch:
                claimed.setdefault(claim[:DIGEST_SIZE], []).append(claim[DIGEST_SIZE:])
            for digest, data in dict(encoded).items():
                try:
                    page = parse_tree(data)
                    if any(said not in (_ANY, page.bytes.to_bytes(8)) for said in claimed[digest]):
                        raise FormatError(
                            f"tree is malformed: it has {page.bytes} bytes, and where it is "
                            "named another size is said"
                        )
                except CasError as error:
                    self._find("bad_manifest", Digest(digest), self._location(digest), str(error))
                else:
                    yield digest, len(data), page

    def _read_singly(self, digests: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for digest in digests:
            try:
                yield digest, self._objects.read(digest)
            except CasError as error:
                where = self._location(digest)
                self._find(_kind_of(error), Digest(digest), where, str(error))

    def _check_there(
        self, wanted: Sequence[tuple[bytes, int | None]], reached: Spill | None
    ) -> None:
        digests = [digest for digest, _ in wanted]
        sizes = self._objects.sizes(digests)
        if None in sizes:
            # What was added or merged since the last look is not missing.
            self._objects.reload()
            sizes = self._objects.sizes(digests)
        for (digest, size), there in zip(wanted, sizes, strict=True):
            told = self._objects.purged.get(digest)
            if there is None and told is not None:
                self.purged.add(digest)
            elif there is None:
                self._find("missing", Digest(digest), "nowhere in the store", "")
            elif size is not None and there != size:
                detail = f"it has {there} bytes where a tree says {size}"
                kind = "truncated" if there < size else "corrupt"
                self._find(kind, Digest(digest), self._location(digest), detail)
            elif reached is not None:
                reached.add(digest + there.to_bytes(8))

    def _location(self, digest: bytes) -> str:
        try:
            return self._objects.info(digest).location
        except CasError:
            return "nowhere in the store"

    def check_purged(self) -> None:
        """See that nothing that was purged is there."""
        purged = list(self._objects.purged)
        for digest, there in zip(purged, self._objects.has_many(purged), strict=True):
            if there:
                told = self._objects.purged[digest]
                detail = f"it {told}, and is there still: purge it again"
                self._find("extra", Digest(digest), self._location(digest), detail)

    def _find(self, kind: str, digest: Digest, location: str, detail: str, *affects: str) -> None:
        self.problems.append(
            Problem(kind=kind, digest=digest, location=location, detail=detail, affects=affects)
        )


def _batches(items: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = iter(items)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def affected(
    objects: ObjectStore, roots: Iterable[Root], bad: frozenset[bytes]
) -> Iterator[tuple[bytes, str]]:
    """Give each damaged digest with every `spec:path` that it is part of.

    A tree that cannot be read is damaged itself; what lay below it cannot be known.

    Args:
        objects: Where the objects are.
        roots: The names.
        bad: What is damaged.
    """
    known: dict[bytes, tuple[Hit, ...]] = {}
    for root in roots:
        if root.own in bad:
            yield root.own, root.spec
        if root.tree is None:
            continue
        for path, digest in _hits(objects, root.tree, bad, known):
            yield digest, f"{root.spec}:{os.fsdecode(path)}"


def _hits(
    objects: ObjectStore, tree: bytes, bad: frozenset[bytes], known: dict[bytes, tuple[Hit, ...]]
) -> tuple[Hit, ...]:
    """Return what is damaged in a tree, remembering the answer for each tree in it."""
    stack = [tree]
    pages: dict[bytes, Leaf | Node] = {}
    while stack:
        digest = stack[-1]
        if digest in known:
            stack.pop()
            continue
        if digest not in pages:
            try:
                pages[digest] = parse_tree(objects.read(digest))
            except (CasError, EnvironmentFailure):
                known[digest] = ((b"", digest),)
                continue
            stack += [child for child in _children(pages[digest]) if child not in known]
            continue
        stack.pop()
        page = pages.pop(digest)
        own = ((b"", digest),) if digest in bad else ()
        known[digest] = own + tuple(_page_hits(page, bad, known))
    return known[tree]


def _page_hits(
    page: Leaf | Node, bad: frozenset[bytes], known: dict[bytes, tuple[Hit, ...]]
) -> Iterator[Hit]:
    if not isinstance(page, Leaf):
        for child in page.children:
            yield from known[child[4]]
        return
    for name, kind, _, digest in page.entries:
        if kind == DIR:
            for path, hit in known[digest]:
                yield (name + b"/" + path if path else name), hit
        elif digest in bad:
            yield name, digest


def _claims(page: Leaf | Node) -> list[bytes]:
    """Return the digests of the pages right below a page, each with the bytes said of it."""
    if isinstance(page, Leaf):
        return [entry[3] + entry[2].to_bytes(8) for entry in page.entries if entry[1] == DIR]
    return [child[4] + child[3].to_bytes(8) for child in page.children]


def _children(page: Leaf | Node) -> Iterator[bytes]:
    """Give the digests of the pages right below a page."""
    if isinstance(page, Leaf):
        return (entry[3] for entry in page.entries if entry[1] == DIR)
    return (child[4] for child in page.children)


def _kind_of(error: CasError) -> str:
    if isinstance(error, CorruptObjectError):
        return "corrupt"
    if isinstance(error, EnvironmentFailure):
        return "unreadable"
    if isinstance(error, FormatError):
        return "bad_manifest"
    return "missing"
