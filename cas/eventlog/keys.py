"""Where the parts of a log lie: the keys of one log in a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cas.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.backends import Backend

DIGITS = 20


class Keys(NamedTuple):
    """The keys of the log of this name."""

    name: str

    @property
    def records(self) -> str:
        """Prefix of the records."""
        return f"log/{self.name}/records/"

    @property
    def snapshots(self) -> str:
        """Prefix of the snapshots."""
        return f"log/{self.name}/snapshots/"

    @property
    def segments(self) -> str:
        """Prefix of the segments."""
        return f"log/{self.name}/segments/"

    @property
    def head(self) -> str:
        """Key of the head hint."""
        return f"log/{self.name}/head"

    def record(self, number: int) -> str:
        """Key of one record."""
        return f"log/{self.name}/records/{number:020d}"

    def snapshot(self, sequence: int) -> str:
        """Key of one snapshot."""
        return f"log/{self.name}/snapshots/{sequence:020d}"

    def segment(self, name: str) -> str:
        """Key of one segment."""
        return f"log/{self.name}/segments/{name}"


def numbers(backend: Backend, prefix: str) -> list[int]:
    """Return the numbers of the records or snapshots below a prefix, ascending.

    What has no such name was not made by a log and is passed over.
    """
    return sorted(
        int(name)
        for name in names(backend, prefix)
        if len(name) == DIGITS and name.isascii() and name.isdigit()
    )


def names(backend: Backend, prefix: str) -> Iterable[str]:
    """Return what is below a prefix, without it and in no order."""
    local = backend.local
    if local is not None:
        return local.names(prefix[:-1])
    return [entry.key[len(prefix) :] for entry in backend.list(prefix)]


def exists(backend: Backend, key: str) -> bool:
    """Say whether there is something under a key."""
    try:
        backend.open(key).close()
    except NotFoundError:
        return False
    return True
