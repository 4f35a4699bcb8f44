"""The shape of an old layout: which folder means what."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cas import names
from cas.errors import RefusedError
from cas.layouts.told import SEED, VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS: Final = b"seeds"
BASELINE: Final = b"baseline.db"
BASELINE_SIDES: Final = (b"baseline.db-wal", b"baseline.db-shm", b"baseline.db-journal")
"""What belongs to a baseline that somebody has open."""

KNOWN: Final = frozenset(
    (
        b"videos",
        b"questions",
        b"questions/benchmarks",
        b"questions/generated",
        b"skills",
        b"prompts",
    )
)
"""The folders that an old store has."""

PLAIN: Final = frozenset(("videos", "questions/benchmarks"))
"""Resources that may be one folder of content, without versions."""

VERSION_FILE: Final = VERSION.file.encode()
SEED_FILE: Final = SEED.file.encode()
BESIDE: Final = b"." + VERSION_FILE
"""What follows the name of a plain folder in the name of the file that tells about it."""

MAX_DEPTH: Final = names.MAX_RESOURCE_DEPTH
"""Folders above the folder of a version, at most."""

_VERSION: Final = re.compile(rb"v([1-9][0-9]{0,18})")


def number_of(name: bytes) -> int | None:
    """Return the number of a folder called `v3`; None for any other name."""
    match = _VERSION.fullmatch(name)
    number = int(match[1]) if match is not None else 0
    return number if 0 < number <= names.MAX_NUMBER else None


def resource_of(path: bytes) -> str | None:
    """Return the resource whose versions lie in a folder; None if its path is no resource's.

    Args:
        path: Below the layout's directory.
    """
    try:
        return names.check_resource(path.decode())
    except (UnicodeDecodeError, RefusedError):
        return None


def has_place(resource: str) -> bool:
    """Tell whether a layout has a place for a resource that means nothing else there."""
    first, *below = resource.encode().split(b"/")
    return first != SEEDS and all(number_of(name) is None for name in below)


def free_name(wanted: bytes, is_taken: Callable[[bytes], bool]) -> bytes:
    """Return a name for content that cannot have the one that it wants."""
    name = b"own-" + wanted
    while is_taken(name):
        name = b"own-" + name
    return name
