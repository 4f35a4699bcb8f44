"""The head hint: how far the log was known to reach when something was last acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cas.errors import CasError
from cas.eventlog.sealed import seal, unseal

if TYPE_CHECKING:
    from cas.backends import Backend
    from cas.eventlog.keys import Keys

_MAX_HINT = 4096


class Head(NamedTuple):
    """A position that was acknowledged.

    Attributes:
        position: A log that ends before it has lost records.
        digest: The digest of the record there.
        snapshot: The number of the newest snapshot then, 0 for none.
    """

    position: int
    digest: bytes
    snapshot: int


def write_head(backend: Backend, keys: Keys, head: Head) -> None:
    """Write the hint without waiting for the medium.

    It may lag behind or be lost, so failing to write it is no failure.
    """
    sealed = seal(
        "head", head.position.to_bytes(8, "big"), head.digest, head.snapshot.to_bytes(8, "big")
    )
    local = backend.local
    try:
        if local is not None and local.overwrite(keys.head, sealed):
            return
    except (CasError, OSError):
        pass  # another's file, where only the folder is shared
    try:
        backend.put(keys.head, sealed, durable=False)
    except (CasError, OSError):
        pass


def read_head(backend: Backend, keys: Keys) -> Head | None:
    """Return the hint; None where it is missing, cut or garbled, which is no damage."""
    try:
        sealed = backend.get(keys.head, max_bytes=_MAX_HINT)
        position, digest, snapshot = unseal(sealed, "head", 3)
    except (CasError, OSError):
        return None
    if not type(position) is type(digest) is type(snapshot) is bytes:
        return None
    return Head(int.from_bytes(position, "big"), digest, int.from_bytes(snapshot, "big"))
