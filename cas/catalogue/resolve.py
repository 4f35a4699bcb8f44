"""What a spec names: a version, a seed, or a place inside one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas.catalogue.paths import path_json

if TYPE_CHECKING:
    from cas.digest import Digest

#: Entry types of tree manifests → the words that people see.
TYPE_WORDS = {"f": "file", "x": "exec", "l": "symlink", "d": "dir"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What a spec names.

    `kind` is `version` or `seed` for a whole one, else `tree` or `blob`. `manifest` is the digest
    of the version or seed that the spec starts from, `name` its spec (`skills@v3`, also where the
    spec was a tag or a digest). `type`, `size` and `digest` describe the content at `path`: the
    tree or blob; `tree` is the same digest where it is a directory, else None.
    """

    spec: str
    kind: str
    name: str | None
    manifest: Digest | None
    tree: Digest | None
    type: str
    size: int
    digest: Digest
    path: bytes

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "spec": self.spec,
            "kind": self.kind,
            "name": self.name,
            "manifest": None if self.manifest is None else str(self.manifest),
            "tree": None if self.tree is None else str(self.tree),
            "type": self.type,
            "size": self.size,
            "digest": str(self.digest),
            **path_json(self.path),
        }


@dataclass(frozen=True, slots=True)
class WalkEntry:
    """One entry of a tree: its path below the start, `file|exec|symlink|dir`, size and digest.

    The size of a directory is that of all files in it.
    """

    path: bytes
    type: str
    size: int
    digest: Digest

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            **path_json(self.path),
            "type": self.type,
            "size": self.size,
            "digest": str(self.digest),
        }
