"""Tags: names that move, every move kept with who made it and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cas.digest import Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """Where a tag points now: `digest` of the manifest or tree, `target` how it was named."""

    name: str
    digest: Digest
    target: str
    by: str
    reason: str
    at: str

    @property
    def spec(self) -> str:
        """The spec that names what the tag points to."""
        return f"tag:{self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "name": self.name,
            "spec": self.spec,
            "digest": str(self.digest),
            "target": self.target,
            "by": self.by,
            "reason": self.reason,
            "at": self.at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TagMove:
    """One move of a tag; `digest` and `target` are None where it was removed."""

    name: str
    digest: Digest | None
    target: str | None
    by: str
    reason: str
    at: str
    removed: bool

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "name": self.name,
            "digest": None if self.digest is None else str(self.digest),
            "target": self.target,
            "by": self.by,
            "reason": self.reason,
            "at": self.at,
            "removed": self.removed,
        }


class Tags:
    """The tags of a store."""

    def set(self, name: str, spec: str, *, reason: str = "", by: str | None = None) -> Tag:
        """Point a tag at what a spec names now.

        Args:
            name: The tag.
            spec: A version, a seed, another tag or a digest prefix, without a path inside.
            reason: Why, for the history.
            by: Who; by default the user that runs this.

        Raises:
            NotFoundError: The spec names nothing.
            NameRefusedError: The name is not one that a tag can have.
        """
        raise NotImplementedError

    def get(self, name: str) -> Tag:
        """Return one tag.

        Raises:
            NotFoundError: There is no such tag.
        """
        raise NotImplementedError

    def remove(self, name: str, *, reason: str = "", by: str | None = None) -> Tag:
        """Remove a tag and return where it pointed; its history stays.

        Raises:
            NotFoundError: There is no such tag.
        """
        raise NotImplementedError

    def history(self, name: str) -> list[TagMove]:
        """Return every move of a tag, oldest first, also of a removed one.

        Raises:
            NotFoundError: There never was such a tag.
        """
        raise NotImplementedError

    def list(self) -> list[Tag]:
        """Return all tags, sorted by name."""
        raise NotImplementedError
