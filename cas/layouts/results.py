"""What an import or an export did."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from cas.paths import path_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cas.catalogue.seed import Seed
    from cas.catalogue.version import Version
    from cas.learning import TakenIn


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in an old layout that was not taken in.

    Attributes:
        path: Where it is, below the layout's directory.
        reason: Why, as the end of a sentence that begins with the path.
    """

    path: bytes
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {**path_json(self.path), "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import brought in.

    Attributes:
        directory: The layout.
        versions: The new versions, sorted by resource and number.
        seeds: The new seeds, sorted by name.
        present: Specs of what the store had already, with equal content.
        skipped: What was not taken in, and why.
        notices: What else a person should know.
        files: How many files and links the new versions and seeds hold.
        bytes: Their bytes.
        new_bytes: Bytes of content that the store did not hold before.
        stored_bytes: What those take there.
        learning: What came of a learning folder; None where there was none.
    """

    directory: Path
    versions: tuple[Version, ...]
    seeds: tuple[Seed, ...]
    present: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    notices: tuple[str, ...]
    files: int
    bytes: int
    new_bytes: int
    stored_bytes: int
    learning: TakenIn | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            **path_json(os.fsencode(self.directory), "directory"),
            "versions": [version.to_json() for version in self.versions],
            "seeds": [seed.to_json() for seed in self.seeds],
            "present": list(self.present),
            "skipped": [skipped.to_json() for skipped in self.skipped],
            "notices": list(self.notices),
            "files": self.files,
            "bytes": self.bytes,
            "new_bytes": self.new_bytes,
            "stored_bytes": self.stored_bytes,
            "learning": None if self.learning is None else asdict(self.learning),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote.

    Attributes:
        directory: The new layout.
        versions: Specs of the versions in it.
        seeds: Specs of the seeds in it.
        left_out: Specs of what an old layout has no place for.
        files: How many files and links of versions and seeds it holds.
        bytes: Their bytes.
        mode: How content came: `reflink` if any file shares blocks with the store, else `copy`.
        notices: What else a person should know.
        learning: How many candidates, audit events, snapshots and reports it holds.
    """

    directory: Path
    versions: tuple[str, ...]
    seeds: tuple[str, ...]
    left_out: tuple[str, ...]
    files: int
    bytes: int
    mode: str
    notices: tuple[str, ...] = ()
    learning: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            **path_json(os.fsencode(self.directory), "directory"),
            "versions": list(self.versions),
            "seeds": list(self.seeds),
            "left_out": list(self.left_out),
            "files": self.files,
            "bytes": self.bytes,
            "mode": self.mode,
            "notices": list(self.notices),
            "learning": dict(self.learning),
        }
