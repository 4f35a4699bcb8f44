"""Workspaces: what they remember, what a person changed in them, and proving their content."""

from cas.workspace.changes import Status, status
from cas.workspace.memory import (
    Intent,
    WorkspaceState,
    load,
)
from cas.workspace.registry import Remembered, damaged_memories, forget, register, remembered
from cas.workspace.runs import runs
from cas.workspace.verify import (
    Difference,
    DirectoryCheck,
    verify_directory,
    verify_workspace,
)

__all__ = [
    "Difference",
    "DirectoryCheck",
    "Intent",
    "Remembered",
    "Status",
    "WorkspaceState",
    "damaged_memories",
    "forget",
    "load",
    "register",
    "remembered",
    "runs",
    "status",
    "verify_directory",
    "verify_workspace",
]
