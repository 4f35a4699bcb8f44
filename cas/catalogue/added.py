"""What an add or an edit made, as the library hands it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cas.catalogue.version import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Added(Version):
    """The version that an add or an edit made, or found unchanged.

    `new_bytes` is the size of the content that the store did not hold before, `stored_bytes` what
    it takes there. `unchanged` says that no version was made, because the newest one is equal.
    `notices` are sentences about what was skipped or taken in a special way.
    """

    new_bytes: int
    stored_bytes: int
    unchanged: bool
    notices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return Version.to_json(self) | {
            "new_bytes": self.new_bytes,
            "stored_bytes": self.stored_bytes,
            "unchanged": self.unchanged,
            "notices": list(self.notices),
        }
