"""Putting aside what could not be healed: never deleted, and no part of the store any more."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from cas.errors import UnsupportedError

if TYPE_CHECKING:
    from cas.backends import Backend, LocalFiles

FOLDER: Final = "quarantine"


def local_files(backend: Backend) -> LocalFiles:
    """Return what a backend can do because it lies on a disk.

    Raises:
        UnsupportedError: It does not.
    """
    local = backend.local
    if local is None:
        raise UnsupportedError("only a store in a directory can be repaired; clone it to one")
    return local


def free_key(backend: Backend, key: str) -> str:
    """Return a key in the quarantine for what lies under a key; nothing has it yet."""
    local = local_files(backend)
    for number in count(1):
        free = f"{FOLDER}/{key}-{number}"
        if not local.path(free).exists():
            return free
    raise AssertionError("counting has no end")


def put_aside(backend: Backend, key: str) -> str:
    """Move a file of the store to the quarantine, durably, and return its key there."""
    target = free_key(backend, key)
    local_files(backend).move(key, target)
    return target
