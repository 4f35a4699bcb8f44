"""What a checkout or an update did."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas.paths import path_json, paths_json

if TYPE_CHECKING:
    import builtins
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOut:
    """What a checkout or an update did.

    Attributes:
        dest: The workspace.
        files: How many files and links it holds of what was asked for.
        bytes: Their bytes.
        mode: How content came: `reflink` if any file shares blocks with the store, `hardlink` if
            that was asked for, else `copy`.
        proof: `content` if every byte was hashed while it was written; `stat` if some files were
            cloned or linked from stored files whose stat is that of their last full hash.
        spec: What was checked out; empty where nothing was said.
        kept: Paths that a person had changed and an update left as they are, sorted.
        notices: What a person should know, one line each.
    """

    dest: Path
    files: int
    bytes: int
    mode: str
    proof: str = "content"
    spec: str = ""
    kept: tuple[builtins.bytes, ...] = ()
    notices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            **path_json(os.fsencode(self.dest), "dest"),
            "files": self.files,
            "bytes": self.bytes,
            "mode": self.mode,
            "proof": self.proof,
            "spec": self.spec,
            **paths_json(kept=self.kept),
            "notices": list(self.notices),
        }
