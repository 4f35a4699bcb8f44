"""How much a store holds, and what dedup and compression saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
