"""One version of a resource, as the library hands it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas.codec import decode_sealed
from cas.digest import Digest, known_digest
from cas.errors import FormatError

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping

    from cas.manifests import VersionManifest
    from cas.refs import VersionRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a resource.

    `files` counts everything in it that is not a directory, recursively, and `bytes` is the sum of
    their sizes. `parents` are the digests of the manifests that it came from, `parent` how the one
    who added it named that state. `removed_at` is None unless its name was taken away.
    """

    resource: str
    number: int
    digest: Digest
    tree: Digest
    parents: tuple[Digest, ...]
    parent: str | None
    source: str
    description: str
    created_at: str
    trigger_run: str | None
    trigger_workspace: str | None
    meta: Mapping[str, str]
    files: int
    bytes: int
    removed_at: str | None = None

    @property
    def version(self) -> str:
        """The number as people write it, such as v3."""
        return f"v{self.number}"

    @property
    def spec(self) -> str:
        """The spec that names this version, such as skills@v3."""
        return f"{self.resource}@v{self.number}"

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "spec": self.spec,
            "resource": self.resource,
            "version": self.version,
            "number": self.number,
            "digest": str(self.digest),
            "tree": str(self.tree),
            "parents": [str(parent) for parent in self.parents],
            "parent": self.parent,
            "source": self.source,
            "created_at": self.created_at,
            "description": self.description,
            "trigger_run": self.trigger_run,
            "trigger_workspace": self.trigger_workspace,
            "meta": dict(self.meta),
            "files": self.files,
            "bytes": self.bytes,
            "removed_at": self.removed_at,
        }


def version_of(manifest: VersionManifest, digest: bytes, removed_at: str | None = None) -> Version:
    """Return the version that a manifest describes."""
    return Version(
        resource=manifest.resource,
        number=manifest.number,
        digest=Digest(digest),
        tree=manifest.tree,
        parents=manifest.parents,
        parent=manifest.parent,
        source=manifest.source,
        description=manifest.description,
        created_at=manifest.created_at,
        trigger_run=manifest.trigger_run,
        trigger_workspace=manifest.trigger_workspace,
        meta=manifest.meta,
        files=manifest.files,
        bytes=manifest.bytes,
        removed_at=removed_at,
    )


def version_from_ref(ref: VersionRef) -> Version:
    """Return the version that a ref names.

    The manifest was checked when its name was given, and the log's checksums were since, so that
    it is not checked again: of thousands of versions that would take most of the time.

    Raises:
        FormatError: The manifest is not one of a version.
        NewerFormatError: It has a format that this release does not know.
    """
    try:
        kind, number, body = decode_sealed(ref.manifest_bytes)
        if kind == "version" and number == 1:
            return Version(
                resource=ref.resource,
                number=ref.number,
                digest=ref.digest,
                tree=known_digest(body["tree"]),
                parents=tuple(map(known_digest, body["parents"])),
                parent=body["parent"],
                source=body["source"],
                description=body["description"],
                created_at=body["created_at"],
                trigger_run=body["trigger_run"],
                trigger_workspace=body["trigger_workspace"],
                meta=body["meta"],
                files=body["files"],
                bytes=body["bytes"],
                removed_at=ref.removed_at,
            )
    except (KeyError, TypeError, ValueError, FormatError):
        pass
    return version_of(_manifest(ref.manifest_bytes), ref.digest, ref.removed_at)


def _manifest(encoded: builtins.bytes) -> VersionManifest:
    from cas.manifests import VersionManifest  # late: start-up time

    return VersionManifest.from_bytes(encoded)
