"""Which names of a store are to go to another one, as its catalogue has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cas import names
from cas.catalogue.lookup import seed_ref, tag_ref, version_ref
from cas.errors import NotFoundError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.catalogue.context import Context
    from cas.names import Spec
    from cas.refs import SeedRef, TagRef, VersionRef


@dataclass(slots=True)
class Selection:
    """Names of a store.

    Attributes:
        asked: Whether they were asked for one by one; otherwise they are all that there are.
        versions: By resource and number.
        seeds: By name.
        tags: By name.
    """

    asked: bool
    versions: dict[tuple[str, int], VersionRef] = field(default_factory=dict)
    seeds: dict[str, SeedRef] = field(default_factory=dict)
    tags: dict[str, TagRef] = field(default_factory=dict)

    def specs(self) -> list[str]:
        """Return them as specs."""
        return [
            *(f"{resource}@v{number}" for resource, number in self.versions),
            *(f"seed:{name}" for name in self.seeds),
            *(f"tag:{name}" for name in self.tags),
        ]


def select(context: Context, specs: Iterable[str]) -> Selection:
    """Look names up; all that the store has, where none is given.

    A tag brings the name of the version or seed that it points at.

    Args:
        context: The store that has them, whose catalogue was just read.
        specs: What was asked for.

    Raises:
        NotFoundError: There is none of that name.
        RefusedError: It is no name of a whole version, seed or tag.
    """
    asked = list(specs)
    selection = Selection(bool(asked))
    refs = context.refs
    for text in asked:
        spec = names.parse_spec(text)
        if spec.path:
            raise RefusedError(
                f"{text} is a place inside; name the whole version, seed or tag", spec=text
            )
        if spec.kind == "digest":
            _add_digest(context, selection, spec)
        else:
            _add(context, selection, spec)
    if not asked:
        for resource in refs.resources():
            for version in refs.versions(resource):
                selection.versions[resource, version.number] = version
        selection.seeds = {seed.name: seed for seed in refs.seeds()}
        selection.tags = {tag.name: tag for tag in refs.tags()}
    selection.versions = dict(sorted(selection.versions.items()))
    return selection


def _add(context: Context, selection: Selection, spec: Spec) -> None:
    refs = context.refs
    if spec.kind == "version":
        version = version_ref(refs, spec)
        selection.versions[version.resource, version.number] = version
    elif spec.kind == "seed":
        selection.seeds[spec.name] = seed_ref(refs, spec.name)
    else:
        tag = tag_ref(refs, spec.name)
        selection.tags[tag.name] = tag
        for name in refs.by_digest(tag.digest):
            _add(context, selection, names.parse_spec(name))


def _add_digest(context: Context, selection: Selection, spec: Spec) -> None:
    found = context.objects.find(spec.prefix)
    named = [name for digest in found for name in context.refs.by_digest(digest)]
    if not named:
        if not found:
            raise NotFoundError(
                f"no object has a digest that begins with {spec.prefix}", spec=spec.prefix
            )
        raise RefusedError(
            f"what {spec.prefix} stands for has no name, and only names go to another store; "
            "give it one, such as a tag",
            spec=spec.prefix,
        )
    for name in named:
        _add(context, selection, names.parse_spec(name))
