"""A content-addressed artifact store: every file kept once, under the BLAKE3 of its bytes.

The public names, and nothing else. They are loaded when first used, so that `import cas` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cas import harness as harness
    from cas.catalogue.added import Added as Added
    from cas.catalogue.diff import Change as Change
    from cas.catalogue.diff import Diff as Diff
    from cas.catalogue.diff import Rename as Rename
    from cas.catalogue.lineage import LineageEntry as LineageEntry
    from cas.catalogue.resolve import Resolved as Resolved
    from cas.catalogue.resolve import WalkEntry as WalkEntry
    from cas.catalogue.seed import Seed as Seed
    from cas.catalogue.stats import ResourceStats as ResourceStats
    from cas.catalogue.stats import Stats as Stats
    from cas.catalogue.tags import Tag as Tag
    from cas.catalogue.tags import TagMove as TagMove
    from cas.catalogue.version import Version as Version
    from cas.catalogue.workspaces import Workspace as Workspace
    from cas.checkout import CheckedOut as CheckedOut
    from cas.digest import Digest as Digest
    from cas.errors import AlreadyDraftedError as AlreadyDraftedError
    from cas.errors import BeingPublishedError as BeingPublishedError
    from cas.errors import BeingSynthesizedError as BeingSynthesizedError
    from cas.errors import BusyError as BusyError
    from cas.errors import CasError as CasError
    from cas.errors import ConflictError as ConflictError
    from cas.errors import CorruptObjectError as CorruptObjectError
    from cas.errors import DamagedError as DamagedError
    from cas.errors import DamagedLogError as DamagedLogError
    from cas.errors import DiskFullError as DiskFullError
    from cas.errors import EnvironmentFailure as EnvironmentFailure
    from cas.errors import FormatError as FormatError
    from cas.errors import LeaseLostError as LeaseLostError
    from cas.errors import MissingObjectError as MissingObjectError
    from cas.errors import NameRefusedError as NameRefusedError
    from cas.errors import NewerFormatError as NewerFormatError
    from cas.errors import NotFoundError as NotFoundError
    from cas.errors import OutcomeUnknownError as OutcomeUnknownError
    from cas.errors import PurgedError as PurgedError
    from cas.errors import RefusedError as RefusedError
    from cas.errors import SourceChangedError as SourceChangedError
    from cas.errors import TransitionRefusedError as TransitionRefusedError
    from cas.errors import UnknownCandidateError as UnknownCandidateError
    from cas.errors import UnsupportedError as UnsupportedError
    from cas.layouts import Exported as Exported
    from cas.layouts import Imported as Imported
    from cas.layouts import Skipped as Skipped
    from cas.learning import AuditEvent as AuditEvent
    from cas.learning import Candidate as Candidate
    from cas.learning import Claim as Claim
    from cas.learning import Drafted as Drafted
    from cas.learning import EvalReport as EvalReport
    from cas.learning import Learning as Learning
    from cas.learning import Lease as Lease
    from cas.learning import PerformanceSnapshot as PerformanceSnapshot
    from cas.learning import Published as Published
    from cas.learning import SafetyReport as SafetyReport
    from cas.learning import TakenIn as TakenIn
    from cas.learning import TransitionsChange as TransitionsChange
    from cas.maintenance.gc import Collected as Collected
    from cas.maintenance.purge import Purged as Purged
    from cas.maintenance.repack import Repacked as Repacked
    from cas.maintenance.report import Problem as Problem
    from cas.maintenance.report import VerifyReport as VerifyReport
    from cas.maintenance.verify import verify_workspace as verify_workspace
    from cas.manifests import SeedPart as SeedPart
    from cas.progress import Progress as Progress
    from cas.repair import Healed as Healed
    from cas.repair import Repaired as Repaired
    from cas.store import Store as Store
    from cas.sync import Renumbered as Renumbered
    from cas.sync import Synced as Synced
    from cas.workspace import Status as Status
    from cas.workspace.changes import status as status

__version__ = "0.1.0"

_HOME = {
    name: home
    for home, names in {
        "cas.catalogue.diff": "Change Diff Rename",
        "cas.catalogue.lineage": "LineageEntry",
        "cas.catalogue.resolve": "Resolved WalkEntry",
        "cas.catalogue.seed": "Seed",
        "cas.catalogue.stats": "ResourceStats Stats",
        "cas.catalogue.tags": "Tag TagMove",
        "cas.catalogue.added": "Added",
        "cas.catalogue.version": "Version",
        "cas.catalogue.workspaces": "Workspace",
        "cas.checkout": "CheckedOut",
        "cas.digest": "Digest",
        "cas.errors": "AlreadyDraftedError BeingPublishedError BeingSynthesizedError BusyError "
        "CasError ConflictError CorruptObjectError DamagedError DamagedLogError DiskFullError "
        "EnvironmentFailure FormatError LeaseLostError MissingObjectError NameRefusedError "
        "NewerFormatError NotFoundError OutcomeUnknownError PurgedError RefusedError "
        "SourceChangedError TransitionRefusedError UnknownCandidateError UnsupportedError",
        "cas.layouts": "Exported Imported Skipped",
        "cas.learning": "AuditEvent Candidate Claim Drafted EvalReport Learning Lease "
        "PerformanceSnapshot Published SafetyReport TakenIn TransitionsChange",
        "cas.maintenance.gc": "Collected",
        "cas.maintenance.purge": "Purged",
        "cas.maintenance.repack": "Repacked",
        "cas.maintenance.report": "Problem VerifyReport",
        "cas.maintenance.verify": "verify_workspace",
        "cas.manifests": "SeedPart",
        "cas.progress": "Progress",
        "cas.repair": "Healed Repaired",
        "cas.store": "Store",
        "cas.sync": "Renumbered Synced",
        "cas.workspace": "Status status",
    }.items()
    for name in names.split()
}

__all__ = sorted([*_HOME, "__version__", "harness"])


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name == "harness":
        return importlib.import_module("cas.harness")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'cas' has no attribute {name!r}")
    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
