"""What a verification found, and how much it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

    from cas.digest import Digest
    from cas.errors import DamagedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding.

    `kind` is one of `corrupt, missing, truncated, unreadable, bad_ref, bad_manifest, extra,
    changed`; `location` says where in the store or directory, `affects` which `spec:path` it hits.
    """

    kind: str
    digest: Digest | None
    location: str
    detail: str = ""
    affects: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "kind": self.kind,
            "digest": None if self.digest is None else str(self.digest),
            "location": self.location,
            "detail": self.detail,
            "affects": list(self.affects),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The outcome of a verification.

    `checked_bytes` of all `bytes` were really read and hashed; `coverage` is that share, from 0.0
    to 1.0. `ok` is True only if nothing that was looked at is wrong. `purged` says, a sentence
    each, what names reach that was taken out of the store on purpose; that is not wrong.
    """

    ok: bool
    objects: int
    bytes: int
    checked_bytes: int
    coverage: float
    problems: tuple[Problem, ...]
    quick: bool = False
    purged: tuple[str, ...] = ()

    @classmethod
    def of_unopenable(cls, error: DamagedError) -> Self:
        """Return the report on a store that is too damaged to be opened: nothing was read."""
        location = str(error.facts.get("path", "store.json"))
        problem = Problem(kind="corrupt", digest=None, location=location, detail=str(error))
        return cls(ok=False, objects=0, bytes=0, checked_bytes=0, coverage=0.0, problems=(problem,))

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "ok": self.ok,
            "objects": self.objects,
            "bytes": self.bytes,
            "checked_bytes": self.checked_bytes,
            "coverage": self.coverage,
            "problems": [problem.to_json() for problem in self.problems],
            "quick": self.quick,
            "purged": list(self.purged),
        }
