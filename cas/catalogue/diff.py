"""The difference between two states: what was added, removed, changed and renamed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas.catalogue.paths import path_json

if TYPE_CHECKING:
    from cas.digest import Digest


@dataclass(frozen=True, slots=True)
class State:
    """What stands at a path: `file|exec|symlink|dir`, its size and digest."""

    type: str
    size: int
    digest: Digest

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {"type": self.type, "size": self.size, "digest": str(self.digest)}


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs: `old` is None where it was added, `new` where it was removed."""

    path: bytes
    old: State | None
    new: State | None

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows: the state that is there, for a change also the old one."""
        shown: dict[str, Any] = path_json(self.path)
        state = self.new or self.old
        if state is not None:
            shown |= state.to_json()
        if self.old is not None and self.new is not None:
            shown["old"] = self.old.to_json()
        return shown


@dataclass(frozen=True, slots=True)
class Rename:
    """One file whose content is the same under another path."""

    old_path: bytes
    path: bytes
    old: State
    new: State

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            **path_json(self.old_path, "old_path"),
            **path_json(self.path),
            **self.new.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Diff:
    """All that differs, each list sorted by path. An empty directory counts as an entry."""

    added: tuple[Change, ...]
    removed: tuple[Change, ...]
    changed: tuple[Change, ...]
    renamed: tuple[Rename, ...]

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.added or self.removed or self.changed or self.renamed)

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "added": [change.to_json() for change in self.added],
            "removed": [change.to_json() for change in self.removed],
            "changed": [change.to_json() for change in self.changed],
            "renamed": [rename.to_json() for rename in self.renamed],
        }
