"""How the object store says what is wrong."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cas.errors import (
    CorruptObjectError,
    MissingObjectError,
    OutcomeUnknownError,
    PurgedError,
    RefusedError,
    environment_failure,
)
from cas.objects.pack import pack_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.objects.entries import Location


def missing(digest: bytes) -> MissingObjectError:
    """Return the error that says that an object is nowhere."""
    return MissingObjectError(
        f"object {digest.hex()} is missing: no pack and no file holds it; "
        "restore it from another copy of the store",
        digest=digest.hex(),
    )


def purged(digest: bytes, told: str) -> PurgedError:
    """Return the error that says that an object is kept out for good.

    Args:
        digest: The object.
        told: When it was purged, by whom and why.
    """
    return PurgedError(f"object {digest.hex()} {told}", digest=digest.hex(), told=told)


def corrupt(digest: bytes, place: Location, detail: str = "") -> CorruptObjectError:
    """Return the error that says that other bytes lie where an object should."""
    location = f"{pack_key(place.pack)}:{place.offset}"
    return CorruptObjectError(
        f"object {digest.hex()} is corrupt: {detail or 'other bytes lie'} at {location}; "
        "restore it from another copy of the store",
        digest=digest.hex(),
        location=location,
    )


def too_large(digest: bytes, size: int, limit: int) -> RefusedError:
    """Return the error that says that an object is larger than its reader takes."""
    return RefusedError(
        f"object {digest.hex()} has {size} bytes, at most {limit} are taken here",
        digest=digest.hex(),
    )


@contextmanager
def unnamed() -> Iterator[None]:
    """Say of something that nothing names yet that it failed, not that its outcome is unknown.

    Whether its file is there or not makes no difference: trying again is safe either way.
    """
    try:
        yield
    except OutcomeUnknownError as error:
        if error.errno is None:
            raise
        cause = OSError(error.errno, os.strerror(error.errno), error.facts.get("key"))
        raise environment_failure(cause, "writing to the store") from error
