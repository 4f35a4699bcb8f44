"""The workspaces that a store remembers and keeps content for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cas.catalogue.context import doing
from cas.errors import CasError, NotFoundError
from cas.paths import path_json
from cas.workspace import Remembered, forget, load, remembered

if TYPE_CHECKING:
    from cas.catalogue.context import Context
    from cas.digest import Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A remembered workspace.

    `state` is `there`, `gone` (its parent directory is there, it is not), `unreachable` (not even
    that is there, or on another filesystem: its medium may not be mounted) or `other` (something
    else is there now).
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


class Workspaces:
    """The workspaces that a store remembers.

    Args:
        context: The open store.
    """

    def __init__(self, context: Context) -> None:
        """Read nothing yet."""
        self._context = context

    def forget(self, directory: str | os.PathLike[str]) -> Workspace:
        """Forget one, so that the store need not keep its content; the directory is not touched.

        Args:
            directory: Where it is or was.

        Raises:
            NotFoundError: The store remembers no workspace there.
        """
        backend = self._context.backend
        wanted = Path(os.path.realpath(directory))
        with doing(f"forgetting {directory}"):
            for found in remembered(backend):
                if found.path == wanted:
                    workspace = _workspace(found)
                    forget(backend, found.id)
                    return workspace
        raise NotFoundError(
            f"the store remembers no workspace at {wanted}; `cas workspace list` shows those it "
            "does",
            path=str(wanted),
        )

    def list(self) -> list[Workspace]:
        """Return them, sorted by path."""
        with doing("reading the remembered workspaces"):
            found = [_workspace(one) for one in remembered(self._context.backend)]
        return sorted(found, key=lambda workspace: workspace.path)


def _workspace(found: Remembered) -> Workspace:
    return Workspace(
        id=found.id,
        path=found.path,
        spec=found.spec,
        tree=found.trees[0],
        created_at=found.created_at,
        state=_state(found),
    )


def _state(found: Remembered) -> str:
    """Say what is at the place of a workspace now."""
    try:
        return "there" if load(found.path).id == found.id else "other"
    except NotFoundError:
        pass
    except CasError:
        return "other"
    if os.path.lexists(found.path):
        return "other"
    try:
        # An empty mount point is there, on another filesystem than what was mounted on it.
        there = os.stat(found.path.parent).st_dev == found.device
    except OSError:
        there = False
    return "gone" if there else "unreachable"
