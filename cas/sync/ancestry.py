"""Manifests that go along with names: their own, and those of everything that they came from.

Of what a version or seed came from only the manifests are kept, so that lineage survives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.catalogue.resolve import read_manifest
from cas.errors import CasError, FormatError, MissingObjectError
from cas.manifests import SeedManifest, VersionManifest, parse_tree
from cas.objects import SEED, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.digest import Digest
    from cas.objects import ObjectStore, ObjectWriter
    from cas.refs import Refs, SeedRef, TagRef, VersionRef
    from cas.sync.content import Lacking

_MOST: Final = 2 << 20
"""Bytes that no manifest exceeds."""


def bring_manifests(
    source: ObjectStore,
    named: Iterable[VersionRef | SeedRef],
    known: Refs | None,
    writer: ObjectWriter,
) -> list[Digest]:
    """Store the manifests of versions and seeds, and those of their ancestors.

    An ancestor whose manifest the source does not hold is left out: there, too, nothing but its
    digest is known.

    Args:
        source: Where the ancestors are.
        named: The versions and seeds.
        known: Names that the destination has had; what has one is not looked behind.
        writer: Of the destination.

    Returns:
        The trees of the versions and seeds, not those of ancestors.

    Raises:
        FormatError: A manifest cannot be read.
    """
    trees = []
    waiting: list[Digest] = []
    for ref in named:
        manifest = read_manifest(ref.manifest_bytes)
        _put(writer, ref.manifest_bytes, manifest)
        trees.append(manifest.tree)
        waiting += manifest.parents
    seen: set[bytes] = set()
    while waiting:
        digest = waiting.pop()
        if digest in seen:
            continue
        seen.add(digest)
        if known is not None and known.by_digest(digest):
            continue
        try:
            encoded = source.read(digest, max_bytes=_MOST)
        except MissingObjectError:
            continue
        manifest = read_manifest(encoded)
        _put(writer, encoded, manifest)
        waiting += manifest.parents
    return trees


def find_targets(lacking: Lacking, source: ObjectStore, tags: Iterable[TagRef]) -> None:
    """Find what tags need that point at something without a name of its own.

    Args:
        lacking: Takes what the destination does not have.
        source: Where the objects are.
        tags: The tags.

    Raises:
        CasError: A target cannot be read.
    """
    for tag in tags:
        trees: list[bytes] = []
        if source.info(tag.digest).size <= _MOST:
            encoded = source.read(tag.digest)
            try:
                trees = [read_manifest(encoded).tree]
            except FormatError:
                if _is_tree(encoded):
                    trees = [tag.digest]
        lacking.find(trees=trees, objects=[tag.digest])


def _is_tree(encoded: bytes) -> bool:
    try:
        parse_tree(encoded)
    except CasError:
        return False
    return True


def _put(writer: ObjectWriter, encoded: bytes, manifest: VersionManifest | SeedManifest) -> None:
    writer.put(encoded, VERSION if isinstance(manifest, VersionManifest) else SEED)
