"""How much a store holds, and what dedup and compression saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas.catalogue.closure import tree_pages
from cas.manifests import DIR, Leaf, SeedManifest, VersionManifest
from cas.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.catalogue.context import Context

_MEMORY = 32 << 20
"""Bytes that the digests of one resource may take before they go to a temporary file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceStats:
    """One resource, or all seeds under the name `seed:`.

    `logical_bytes` is what its names would take as plain copies, `unique_bytes` the content of
    those names with equal files counted once.
    """

    name: str
    versions: int
    files: int
    logical_bytes: int
    unique_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "name": self.name,
            "versions": self.versions,
            "files": self.files,
            "logical_bytes": self.logical_bytes,
            "unique_bytes": self.unique_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """A store in numbers, sizes in bytes.

    `objects` and `stored_bytes` count all that is stored, `logical_bytes` what all names would
    take as plain copies, `unique_bytes` the same with equal files counted once; `dedup_ratio` is
    logical / unique, `compression_ratio` the size of all objects / stored.
    """

    objects: int
    logical_bytes: int
    unique_bytes: int
    stored_bytes: int
    dedup_ratio: float
    compression_ratio: float
    files_on_disk: int
    resources: tuple[ResourceStats, ...]

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "objects": self.objects,
            "logical_bytes": self.logical_bytes,
            "unique_bytes": self.unique_bytes,
            "stored_bytes": self.stored_bytes,
            "dedup_ratio": self.dedup_ratio,
            "compression_ratio": self.compression_ratio,
            "files_on_disk": self.files_on_disk,
            "resources": [resource.to_json() for resource in self.resources],
        }


def measure(context: Context) -> Stats:
    """Count a whole store; reads the manifests and trees that names reach, and no content."""
    refs = context.refs
    refs.refresh()
    groups: list[ResourceStats] = []
    with Spill(_MEMORY, unique=True) as everything:
        for resource in refs.resources():
            manifests = [
                VersionManifest.from_bytes(ref.manifest_bytes) for ref in refs.versions(resource)
            ]
            groups.append(_measure_group(context, resource, manifests, everything))
        seeds = [SeedManifest.from_bytes(ref.manifest_bytes) for ref in refs.seeds()]
        if seeds:
            groups.append(_measure_group(context, "seed:", seeds, everything))
        unique = sum(int.from_bytes(item[32:], "big") for item in everything)
    totals = context.objects.totals()
    logical = sum(group.logical_bytes for group in groups)
    return Stats(
        objects=totals.objects,
        logical_bytes=logical,
        unique_bytes=unique,
        stored_bytes=totals.stored,
        dedup_ratio=logical / unique if unique else 1.0,
        compression_ratio=totals.bytes / totals.stored if totals.stored else 1.0,
        files_on_disk=sum(1 for _ in context.backend.list("")),
        resources=tuple(group for group in groups if group.versions),
    )


def _measure_group(
    context: Context,
    name: str,
    manifests: Iterable[VersionManifest | SeedManifest],
    everything: Spill,
) -> ResourceStats:
    """Count the names of one resource; its files go into `everything` too, as digest and size."""
    manifests = list(manifests)
    with Spill(_MEMORY, unique=True) as files:
        for page in tree_pages(context.objects, (manifest.tree for manifest in manifests)):
            if isinstance(page, Leaf):
                for _, kind, size, digest in page.entries:
                    if kind != DIR:
                        files.add(digest + size.to_bytes(8, "big"))
        unique = 0
        for item in files:
            unique += int.from_bytes(item[32:], "big")
            everything.add(item)
    return ResourceStats(
        name=name,
        versions=len(manifests),
        files=sum(manifest.files for manifest in manifests),
        logical_bytes=sum(manifest.bytes for manifest in manifests),
        unique_bytes=unique,
    )
