"""Tags: names that move, every move kept with who made it and why."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas import names
from cas.catalogue.closure import check_closure, check_object
from cas.catalogue.context import doing
from cas.catalogue.lookup import tag_ref
from cas.catalogue.publish import change_event, change_refs
from cas.catalogue.resolve import resolve_spec
from cas.errors import NotFoundError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cas.catalogue.context import Context
    from cas.digest import Digest
    from cas.refs import Event, Refs, TagRef


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
    """The tags of a store.

    Args:
        context: The open store.
    """

    def __init__(self, context: Context) -> None:
        """Read nothing yet."""
        self._context = context

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
        context = self._context
        names.check_tag(name)
        if names.parse_spec(spec).path:
            raise RefusedError(f"{spec} is a place inside; a tag names a whole state", spec=spec)
        with doing(f"setting tag {name}"):
            found = resolve_spec(context, spec)
            digest = found.manifest or found.digest
            named = bool(context.refs.by_digest(digest))
            target = {"name": name, "digest": bytes(digest), "spec": found.name or found.spec}
            event = change_event("tag", target, by=by, reason=reason)

            def decide(refs: Refs) -> Sequence[Event]:
                if named and not refs.by_digest(digest):
                    raise NotFoundError(f"{spec} was removed a moment ago", spec=spec)
                return [event]

            # What has a name keeps its content until the tag does; gc must not be at the rest.
            with nullcontext() if named else context.publishing():
                if not named:
                    check_object(context.objects, digest, spec)
                    if found.tree is not None:
                        check_closure(context.objects, found.tree, spec)
                change_refs(context, decide)
        return Tag(
            name=name,
            digest=digest,
            target=event["spec"],
            by=event["by"],
            reason=event["reason"],
            at=event["at"],
        )

    def get(self, name: str) -> Tag:
        """Return one tag.

        Raises:
            NotFoundError: There is no such tag.
        """
        with doing("reading the catalogue"):
            self._context.refs.refresh()
            return _tag(tag_ref(self._context.refs, names.check_tag(name)))

    def remove(self, name: str, *, reason: str = "", by: str | None = None) -> Tag:
        """Remove a tag and return where it pointed; its history stays.

        Args:
            name: The tag.
            reason: Why, for the history.
            by: Who; by default the user that runs this.

        Raises:
            NotFoundError: There is no such tag.
        """
        names.check_tag(name)
        removed: list[Tag] = []

        def decide(refs: Refs) -> Sequence[Event]:
            removed[:] = [_tag(tag_ref(refs, name))]
            return [change_event("tag-removed", {"name": name}, by=by, reason=reason)]

        with doing(f"removing tag {name}"):
            change_refs(self._context, decide)
        return removed[0]

    def history(self, name: str) -> list[TagMove]:
        """Return every move of a tag, oldest first, also of a removed one.

        Raises:
            NotFoundError: There never was such a tag.
        """
        refs = self._context.refs
        with doing("reading the catalogue"):
            refs.refresh()
            moves = refs.tag_history(names.check_tag(name))
            if not moves:
                tag_ref(refs, name)
        return [
            TagMove(
                name=name,
                digest=move.digest,
                target=move.spec,
                by=move.by,
                reason=move.reason,
                at=move.at,
                removed=move.removed,
            )
            for move in moves
        ]

    def list(self) -> list[Tag]:
        """Return all tags, sorted by name."""
        with doing("reading the catalogue"):
            self._context.refs.refresh()
            return [_tag(ref) for ref in self._context.refs.tags()]


def _tag(ref: TagRef) -> Tag:
    return Tag(
        name=ref.name,
        digest=ref.digest,
        target=ref.spec,
        by=ref.by,
        reason=ref.reason,
        at=ref.at,
    )
