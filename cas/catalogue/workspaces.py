"""The workspaces that a store remembers and keeps content for."""

from __future__ import annotations

import builtins
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas.catalogue.paths import path_json

if TYPE_CHECKING:
    from pathlib import Path

    from cas.digest import Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A remembered workspace.

    `state` is `there`, `gone` (its parent directory is there, it is not), `unreachable` (not even
    that is there, so it may be on a medium that is not mounted) or `other` (something else is
    there now).
    """

    id: str
    path: Path
    spec: str
    tree: Digest
    created_at: str
    state: str

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "id": self.id,
            **path_json(os.fsencode(self.path)),
            "spec": self.spec,
            "tree": str(self.tree),
            "created_at": self.created_at,
            "state": self.state,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOut:
    """What a checkout or an update did.

    `files` and `bytes` count what is at `dest` now, `mode` is the one used (`reflink`, `copy`,
    `hardlink`), `kept` are the paths that a person had changed and an update left as they are.
    """

    dest: Path
    files: int
    bytes: int
    mode: str
    spec: str
    kept: tuple[builtins.bytes, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            **path_json(os.fsencode(self.dest), "dest"),
            "files": self.files,
            "bytes": self.bytes,
            "mode": self.mode,
            "spec": self.spec,
            "kept": [path_json(path) for path in self.kept],
        }


class Workspaces:
    """The workspaces that a store remembers."""

    def list(self) -> list[Workspace]:
        """Return them, sorted by path."""
        raise NotImplementedError

    def forget(self, directory: str | os.PathLike[str]) -> Workspace:
        """Forget one, so that the store need not keep its content; the directory is not touched.

        Raises:
            NotFoundError: The store remembers no workspace there.
        """
        raise NotImplementedError
