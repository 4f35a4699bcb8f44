"""Lineage: where a version or seed came from, back to the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cas.digest import Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEntry:
    """One step of a lineage.

    `spec` is the name that the manifest carries; `removed` says that it has that name no more.
    `parents` are digests of other entries of the same lineage, `parent` the text recorded.
    `known` is False for a parent whose manifest the store does not hold: then only its digest is
    known.
    """

    digest: Digest
    spec: str | None
    kind: str
    parents: tuple[Digest, ...]
    parent: str | None
    created_at: str | None
    source: str | None
    description: str
    trigger_run: str | None
    trigger_workspace: str | None
    baseline_run_id: str | None
    removed: bool
    known: bool

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "digest": str(self.digest),
            "spec": self.spec,
            "kind": self.kind,
            "parents": [str(parent) for parent in self.parents],
            "parent": self.parent,
            "created_at": self.created_at,
            "source": self.source,
            "description": self.description,
            "trigger_run": self.trigger_run,
            "trigger_workspace": self.trigger_workspace,
            "baseline_run_id": self.baseline_run_id,
            "removed": self.removed,
            "known": self.known,
        }
