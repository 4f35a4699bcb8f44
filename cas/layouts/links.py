"""What came from what: links between the versions and seeds of one layout."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cas import names
from cas.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_VERSION: Final = re.compile(r"v[1-9][0-9]{0,18}")


def implied(spec: str, parent: str | None) -> tuple[str, ...]:
    """Return the specs that the `parent` of a version or seed names, if it names any.

    A bare `v3` is a version of the same resource, a bare word of a seed another seed.

    Args:
        spec: Of the version or seed.
        parent: What it says that it came from.
    """
    if parent is None:
        return ()
    resource, at, _ = spec.rpartition("@")
    try:
        found = names.parse_spec(parent)
    except RefusedError:
        if at:
            return (f"{resource}@{parent}",) if _VERSION.fullmatch(parent) else ()
        return (f"seed:{parent}",)
    if found.kind == "seed" or (found.kind == "version" and found.number is not None):
        return (found.base,)
    return ()


def in_order(links: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give every spec after those that it links to, with its links.

    Nothing can come from itself, so a link that closes a circle is left out.

    Args:
        links: Spec → specs that it came from; those that are no keys are given as they are.
    """
    done: set[str] = set()
    for start in links:
        if start in done:
            continue
        path = {start: list(links[start])}  # specs on the way down, and what is left to look at
        kept: dict[str, list[str]] = {start: []}
        while path:
            spec = next(reversed(path))
            waiting = path[spec]
            if not waiting:
                del path[spec]
                done.add(spec)
                yield spec, tuple(kept.pop(spec))
                continue
            below = waiting[0]
            if below in path:
                waiting.pop(0)
            elif below in links and below not in done:
                path[below] = list(links[below])
                kept[below] = []
            else:
                kept[spec].append(waiting.pop(0))
