"""What a repair did, and what it could not do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cas.digest import Digest
    from cas.maintenance.report import VerifyReport
    from cas.progress import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class Healed:
    """Something that is right again.

    Attributes:
        location: What was wrong: a key of the store, or nowhere in it.
        digest: The object that was hit, if it was one.
        how: What was done, as the end of a sentence that begins with the location.
    """

    location: str
    digest: Digest | None
    how: str

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "location": self.location,
            "digest": None if self.digest is None else str(self.digest),
            "how": self.how,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What a repair did.

    Attributes:
        healed: What is right again.
        quarantined: Keys of what was put aside, because not all of it could be healed.
        notices: What else a person should know.
        report: The verification at the end.
    """

    healed: tuple[Healed, ...]
    quarantined: tuple[str, ...]
    notices: tuple[str, ...]
    report: VerifyReport

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "healed": [one.to_json() for one in self.healed],
            "quarantined": list(self.quarantined),
            "notices": list(self.notices),
            **self.report.to_json(),
        }


@dataclass(slots=True)
class Diary:
    """Takes note of what a repair does, while it does it.

    `meter` counts what is healed.
    """

    meter: Meter
    healed: list[Healed] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def heal(self, location: str, digest: Digest | None, how: str) -> None:
        """Note that something is right again."""
        self.healed.append(Healed(location=location, digest=digest, how=how))
        self.meter.add()
