"""Finding names: what there is of a name, or an error that says what there is instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.names import Spec
    from cas.refs import Refs, SeedRef, TagRef, VersionRef

SHOWN = 5
"""Names that an error lists, at most."""


def version_ref(refs: Refs, spec: Spec) -> VersionRef:
    """Find the version that a spec of that kind names.

    Raises:
        NotFoundError: There is none of that name now.
    """
    found = refs.latest(spec.name) if spec.number is None else any_version_ref(refs, spec)
    if found is None:
        raise NotFoundError(_no_version(refs, spec), spec=spec.base)
    if found.removed_at is not None:
        raise NotFoundError(
            f"version {spec.base} was removed; undelete it to bring it back while its content "
            "is there",
            spec=spec.base,
            removed_at=found.removed_at,
        )
    return found


def any_version_ref(refs: Refs, spec: Spec) -> VersionRef:
    """Find the version of a number, also a removed one.

    Raises:
        NotFoundError: There never was such a version.
    """
    found = None if spec.number is None else refs.version(spec.name, spec.number)
    if found is None:
        raise NotFoundError(_no_version(refs, spec), spec=spec.base)
    return found


def _no_version(refs: Refs, spec: Spec) -> str:
    newest = refs.latest(spec.name)
    if newest is not None:
        return f"version {spec.base} not found; the newest is {spec.name}@v{newest.number}"
    last = refs.last_number(spec.name)
    if last:
        return f"every version of {spec.name} was removed; the last one was {spec.name}@v{last}"
    return no_resource(refs, spec.name)


def no_resource(refs: Refs, resource: str) -> str:
    """Say that a resource never had a version, and which ones there are."""
    return f"resource {resource} not found; there {_are('resource', refs.resources())}"


def seed_ref(refs: Refs, name: str) -> SeedRef:
    """Find a seed by its name.

    Raises:
        NotFoundError: There is none of that name now.
    """
    found = any_seed_ref(refs, name)
    if found.removed_at is not None:
        raise NotFoundError(
            f"seed {name} was removed; undelete it to bring it back while its content is there",
            spec=f"seed:{name}",
            removed_at=found.removed_at,
        )
    return found


def any_seed_ref(refs: Refs, name: str) -> SeedRef:
    """Find a seed by its name, also a removed one.

    Raises:
        NotFoundError: There never was such a seed.
    """
    found = refs.seed(name)
    if found is None:
        there = _are("seed", (seed.name for seed in refs.seeds()))
        raise NotFoundError(f"seed {name} not found; there {there}", spec=f"seed:{name}")
    return found


def tag_ref(refs: Refs, name: str) -> TagRef:
    """Find a tag by its name.

    Raises:
        NotFoundError: There is none.
    """
    found = refs.tag(name)
    if found is None:
        there = _are("tag", (tag.name for tag in refs.tags()))
        raise NotFoundError(f"tag {name} not found; there {there}", spec=f"tag:{name}")
    return found


def _are(what: str, found: Iterable[str]) -> str:
    """End a sentence that began with "there": which ones there are, not more than a line holds."""
    shown = list(found)
    if not shown:
        return f"is no {what} yet"
    more = len(shown) - SHOWN
    listed = ", ".join(shown[:SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"is {listed}" if len(shown) == 1 else f"are {listed}"
