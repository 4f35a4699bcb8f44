"""Where the bytes of a store lie: the protocol and its implementations."""

from cas.backends.local import LocalBackend
from cas.backends.memory import MemoryBackend
from cas.backends.protocol import (
    Backend,
    Entry,
    LocalFiles,
    Missing,
    Reader,
    Staging,
    check_key,
    check_prefix,
)

__all__ = [
    "Backend",
    "Entry",
    "LocalBackend",
    "LocalFiles",
    "MemoryBackend",
    "Missing",
    "Reader",
    "Staging",
    "check_key",
    "check_prefix",
]
