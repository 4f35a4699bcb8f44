"""How the object store says that an object is missing, corrupt or too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.errors import CorruptObjectError, MissingObjectError, RefusedError
from cas.objects.pack import pack_key

if TYPE_CHECKING:
    from cas.objects.entries import Location


def missing(digest: bytes) -> MissingObjectError:
    """Return the error that says that an object is nowhere."""
    return MissingObjectError(
        f"object {digest.hex()} is missing: no pack and no file holds it; "
        "restore it from another copy of the store",
        digest=digest.hex(),
    )


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
