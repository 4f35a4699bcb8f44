"""Where names lie in the state of the catalogue's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cas.eventlog import State

LIVE: Final = b"\x00"
"""First byte of the value of a version or seed that has its name."""
REMOVED: Final = b"\x01"
"""First byte of one whose name was taken away."""
PUBLICATION_SIZE: Final = 16
"""Bytes of the random identity of a publication."""


def version_prefix(resource: str) -> bytes:
    """Return what the keys of all versions of a resource begin with."""
    return b"version\x00" + resource.encode() + b"\x00"


def version_key(resource: str, number: int) -> bytes:
    """Return the key of a version."""
    return version_prefix(resource) + number.to_bytes(8, "big")


def seed_key(name: str) -> bytes:
    """Return the key of a seed."""
    return b"seed\x00" + name.encode()


def tag_key(name: str) -> bytes:
    """Return the key of a tag."""
    return b"tag\x00" + name.encode()


def purge_key(digest: bytes) -> bytes:
    """Return the key of what says that content was purged."""
    return b"purged\x00" + digest


def publication_key(publication: bytes) -> bytes:
    """Return the key of what decided a publication."""
    return b"publication\x00" + publication


def history_prefix(key: bytes) -> bytes:
    """Return what the keys of the events about a key begin with."""
    return b"history\x00" + key + b"\x00"


def counts(state: State, resource: str) -> tuple[int, int]:
    """Return the last number of a resource and how many of its versions are not removed."""
    value = state.get(b"resource\x00" + resource.encode())
    if value is None:
        return 0, 0
    return int.from_bytes(value[:8], "big"), int.from_bytes(value[8:], "big")
