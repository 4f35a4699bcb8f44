"""One seed, as the library hands it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas.digest import Digest
from cas.manifests import SeedManifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cas.manifests import SeedPart
    from cas.refs import SeedRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A frozen state: named parts, the baseline run that earned it, and what it came from.

    `tree` is the workspace that a checkout of the seed gives. `files` and `bytes` count that tree.
    """

    name: str
    digest: Digest
    tree: Digest
    parts: Mapping[str, SeedPart]
    baseline_run_id: str
    parent: str | None
    parents: tuple[Digest, ...]
    created_at: str
    description: str
    meta: Mapping[str, str]
    files: int
    bytes: int
    removed_at: str | None = None
    notices: tuple[str, ...] = ()

    @property
    def spec(self) -> str:
        """The spec that names this seed."""
        return f"seed:{self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "name": self.name,
            "spec": self.spec,
            "digest": str(self.digest),
            "tree": str(self.tree),
            "parts": {
                name: {
                    "kind": part.kind,
                    "digest": str(part.digest),
                    "files": part.files,
                    "bytes": part.bytes,
                    "label": part.label,
                }
                for name, part in self.parts.items()
            },
            "baseline_run_id": self.baseline_run_id,
            "parent": self.parent,
            "parents": [str(parent) for parent in self.parents],
            "created_at": self.created_at,
            "description": self.description,
            "meta": dict(self.meta),
            "files": self.files,
            "bytes": self.bytes,
            "removed_at": self.removed_at,
            "notices": list(self.notices),
        }


def seed_of(
    manifest: SeedManifest,
    digest: bytes,
    *,
    removed_at: str | None = None,
    notices: tuple[str, ...] = (),
) -> Seed:
    """Return the seed that a manifest describes."""
    return Seed(
        name=manifest.name,
        digest=Digest(digest),
        tree=manifest.tree,
        parts=manifest.parts,
        baseline_run_id=manifest.baseline_run_id,
        parent=manifest.parent,
        parents=manifest.parents,
        created_at=manifest.created_at,
        description=manifest.description,
        meta=manifest.meta,
        files=manifest.files,
        bytes=manifest.bytes,
        removed_at=removed_at,
        notices=notices,
    )


def seed_from_ref(ref: SeedRef) -> Seed:
    """Return the seed that a ref names."""
    manifest = SeedManifest.from_bytes(ref.manifest_bytes)
    return seed_of(manifest, ref.digest, removed_at=ref.removed_at)
