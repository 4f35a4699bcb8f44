"""Workspaces: what they remember, what a person changed in them, and proving their content.

The names are loaded when first used: whoever only reads files below a directory, as a worker of an
ingest does, needs one small module of this package and should not wait for the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cas.workspace.changes import Status as Status
    from cas.workspace.changes import status as status
    from cas.workspace.memory import Intent as Intent
    from cas.workspace.memory import WorkspaceState as WorkspaceState
    from cas.workspace.memory import load as load
    from cas.workspace.registry import Remembered as Remembered
    from cas.workspace.registry import damaged_memories as damaged_memories
    from cas.workspace.registry import forget as forget
    from cas.workspace.registry import register as register
    from cas.workspace.registry import remembered as remembered
    from cas.workspace.verify import Difference as Difference
    from cas.workspace.verify import DirectoryCheck as DirectoryCheck
    from cas.workspace.verify import verify_directory as verify_directory
    from cas.workspace.verify import verify_workspace as verify_workspace

_HOME = {
    "Difference": "verify",
    "DirectoryCheck": "verify",
    "Intent": "memory",
    "Remembered": "registry",
    "Status": "changes",
    "WorkspaceState": "memory",
    "damaged_memories": "registry",
    "forget": "registry",
    "load": "memory",
    "register": "registry",
    "remembered": "registry",
    "status": "changes",
    "verify_directory": "verify",
    "verify_workspace": "verify",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found
