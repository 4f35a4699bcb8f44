"""What the store has already of a layout's versions and seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.catalogue.draft import BASELINE, PROMPTS, SKILLS
from cas.catalogue.seed import seed_from_ref
from cas.catalogue.version import Version, version_from_ref
from cas.layouts.scan import FoundSeed, FoundVersion
from cas.layouts.taking import TakenSeed
from cas.manifests import TreeRef

if TYPE_CHECKING:
    from cas.catalogue.seed import Seed
    from cas.refs import Refs


def find(refs: Refs, found: FoundVersion | FoundSeed) -> Version | Seed | None:
    """Return what the store has under a name, also if it was removed; None if nothing."""
    if isinstance(found, FoundVersion):
        version = refs.version(found.resource, found.number)
        return None if version is None else version_from_ref(version)
    seed = refs.seed(found.name)
    return None if seed is None else seed_from_ref(seed)


def is_equal(there: Version | Seed, taken: TreeRef | TakenSeed) -> bool:
    """Tell whether a version or seed of the store has the content of one in a layout."""
    if isinstance(there, Version):
        return isinstance(taken, TreeRef) and there.tree == taken.digest
    if not isinstance(taken, TakenSeed):
        return False
    parts: dict[str, bytes] = {name: entry[2] for name, entry in taken.extra.items()}
    parts |= {
        SKILLS: taken.skills.digest,
        PROMPTS: taken.prompts.digest,
        BASELINE: taken.baseline[0],
    }
    return {name: part.digest for name, part in there.parts.items()} == parts


def differences(there: Version | Seed, found: FoundVersion | FoundSeed) -> list[str]:
    """Return what the store and a layout say differently of the same content."""
    told = found.told
    if not told.dated and not told.meta and isinstance(found, FoundVersion) and found.plain:
        return []  # nothing is said of a plain folder
    wanted = dict(told.fields)
    if not told.dated:
        del wanted["created_at"]
    differing = [name for name, text in wanted.items() if getattr(there, name) != text]
    return [*differing, "meta"] if dict(there.meta) != dict(told.meta) else differing
