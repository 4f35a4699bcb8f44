"""What a transfer between two stores did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from cas.sync.plan import Renumbered


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """What names and content went from one store to another.

    Attributes:
        source: The store that it came from.
        destination: The store that it went to.
        new: Specs of the names that the destination has now, as it names them.
        present: Specs of those that it had already.
        conflicts: Specs that mean something else there; they stayed as they were.
        renumbered: Versions that landed under another number.
        notices: What else a person should know.
        objects: How many objects were copied.
        bytes: Their bytes.
        stored_bytes: What those take.
    """

    source: Path
    destination: Path
    new: tuple[str, ...]
    present: tuple[str, ...]
    conflicts: tuple[str, ...]
    renumbered: tuple[Renumbered, ...]
    notices: tuple[str, ...]
    objects: int
    bytes: int
    stored_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "source": str(self.source),
            "destination": str(self.destination),
            "new": list(self.new),
            "present": list(self.present),
            "conflicts": list(self.conflicts),
            "renumbered": [{"spec": one.spec, "landed": one.landed} for one in self.renumbered],
            "notices": list(self.notices),
            "objects": self.objects,
            "bytes": self.bytes,
            "stored_bytes": self.stored_bytes,
        }
