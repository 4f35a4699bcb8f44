"""What a store needs of the place where its bytes lie.

The protocol is what object storage with conditional writes can do: whole immutable values under
keys, one atomic step (`Backend.put_if_absent`), and listings. There is no rename, append,
directory or lock in it. What only a local disk can do hangs on the optional `Backend.local` and on
the descriptors of `Reader` and `Staging`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from cas.errors import NameRefusedError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from cas.fs import Buffer

MAX_KEY: Final = 400
"""Longest key, in characters."""

_KEY: Final = re.compile(
    r"(?!tmp(?:/|\Z))[A-Za-z0-9][A-Za-z0-9._-]{0,199}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,199})*"
)


class Missing(NotFoundError):  # noqa: N818 - named for what it says
    """Nothing is stored under a key."""


def is_key(text: str) -> bool:
    """Say whether a text is a key.

    A key is one or more segments of ASCII letters, digits, ".", "_" and "-" that begin with a
    letter or digit, joined by "/". What begins with "tmp" as a segment is private to backends. No
    key is the beginning of another, up to a "/".
    """
    return len(text) <= MAX_KEY and _KEY.fullmatch(text) is not None


def check_key(key: str) -> str:
    """Return a key that is in the grammar.

    Raises:
        NameRefusedError: It is not.
    """
    if not is_key(key):
        raise NameRefusedError(f"key {key!r} is not in the grammar of keys", key=key)
    return key


def check_prefix(prefix: str) -> str:
    """Return a prefix for listing: a key and a "/", or nothing for everything.

    Raises:
        NameRefusedError: It is neither.
    """
    if prefix and (not prefix.endswith("/") or not is_key(prefix[:-1])):
        raise NameRefusedError(f"prefix {prefix!r} is not a key and a slash", key=prefix)
    return prefix


class Entry(NamedTuple):
    """One line of a listing."""

    key: str
    size: int
    modified_ns: int
    """By the backend's own clock, as `Backend.now_ns`."""


class Staging(Protocol):
    """Bytes on their way in: private, without a name, and gone with their process.

    A context manager; leaving it frees what was not put in place. After `Backend.put_if_absent`
    took it, it can still be read and its descriptor used until it is left.
    """

    def write(self, content: Buffer) -> None:
        """Append."""

    def tell(self) -> int:
        """Return how many bytes are there, also when they came through `fileno`."""

    def fileno(self) -> int | None:
        """Return a descriptor for reading and writing, local only.

        Whoever writes through it does so before any `write`, or at explicit offsets below
        `tell`; further `write` calls append after whatever is there.
        """

    def read_at(self, offset: int, length: int) -> bytes:
        """Return bytes that were written; fewer than `length` only at the end."""

    def discard(self) -> None:
        """Close, and free what was not put in place; may be called again."""

    def __enter__(self) -> Self:
        """Return itself."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Discard."""


class Reader(Protocol):
    """One stored value held open; a context manager.

    It stays readable while the key is deleted.
    """

    @property
    def size(self) -> int:
        """How many bytes it has."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Return bytes; fewer than `length` only at the end.

        Raises:
            EnvironmentFailure: The medium failed.
        """

    def fileno(self) -> int | None:
        """Return a descriptor for reading, local only."""

    def close(self) -> None:
        """Let go; may be called again."""

    def __enter__(self) -> Self:
        """Return itself."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""


class LocalFiles(Protocol):
    """What a backend on a local disk can do besides."""

    shared_gid: int | None
    """The group that its files are given to, if any: what another process opens it with."""

    @property
    def root(self) -> Path:
        """The folder that holds the keys as files."""

    @property
    def writable(self) -> bool:
        """Whether this process may write there."""

    def path(self, key: str) -> Path:
        """Return where the value of a key lies."""

    def names(self, directory: str) -> Iterable[str]:
        """Return the names in a directory, in no order; none if it does not exist.

        What `Backend.list` gives of it without looking at each file.
        """

    def overwrite(self, key: str, content: bytes) -> bool:
        """Write over the beginning of an existing value in place; False where there is none.

        The quick way for a hint, at a fraction of what `Backend.put` costs: neither whole for who
        reads meanwhile nor durable, so the value must always have the same length and carry its
        own check.
        """

    def move(self, key: str, target: str) -> None:
        """Give a value another key, which nothing has, durably and without reading it."""

    def replace_folder(self, new: str, old: str, aside: str) -> None:
        """Put one folder in the place of another, durably, in one step where there is such a step.

        Args:
            new: Key of the folder.
            old: Key that it gets.
            aside: Key for the folder that was there, if there was one.
        """

    def make_directories(self, keys: Iterable[str]) -> None:
        """Make directories, durably, for keys to lie in; existing ones are fine."""

    def sweep(self) -> None:
        """Delete the temporary files of processes that were killed."""

    def create_reserve(self) -> None:
        """Set space aside that `release_reserve` gives back when the disk is full."""

    def release_reserve(self, steps: int = 1) -> int:
        """Free `steps` pieces of the reserve and return how many bytes that gave."""

    def refill_reserve(self) -> bool:
        """Take the reserve's space again; False if there is not enough."""

    def check_reserve(self) -> str:
        """Say what is wrong with the reserve, or nothing."""


class Backend(Protocol):
    """Values under keys.

    System errors come out as EnvironmentFailure (a full disk as DiskFullError), naming the place.
    """

    @property
    def local(self) -> LocalFiles | None:
        """What can be done besides because the values are files here."""

    def stage(self) -> Staging:
        """Begin a value."""

    def put_if_absent(self, key: str, source: bytes | Staging) -> bool:
        """Create a key, whole and durably, unless it exists.

        Args:
            key: Its name.
            source: Its value. A staging comes from this backend's `stage`.

        Returns:
            True: created by this call; value and name survive a power cut.
            False: it existed and is untouched; nothing is said about whether it is durable.

        Raises:
            OutcomeUnknownError: The key may be there, and may be lost by a power cut.
        """

    def put(self, key: str, content: bytes, *, durable: bool = True) -> None:
        """Create or replace a key. Readers see the old value or the new one, whole.

        Args:
            key: Its name.
            content: Its value.
            durable: False returns early. A power cut may then leave the old value, the new one,
                none, or one that is cut short, so that it must carry its own check.
        """

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the value of a key.

        Raises:
            Missing: There is none.
            FormatError: It is longer than `max_bytes`.
        """

    def open(self, key: str) -> Reader:
        """Open the value of a key.

        Raises:
            Missing: There is none.
        """

    def list(self, prefix: str) -> Iterator[Entry]:
        """Give the keys below a prefix (ends with "/", or is empty), sorted.

        What is created or deleted meanwhile may or may not be seen; the rest is seen once.
        """

    def delete(self, key: str) -> None:
        """Remove a key, if it is there. A power cut may bring it back."""

    def now_ns(self) -> int:
        """Return the time of the place where the values lie, in ns since 1970."""

    def settle(self, keys: Iterable[str]) -> None:
        """Return when keys that were seen to exist, whoever made them, are durable."""

    def close(self) -> None:
        """Let go of what is held open; may be called again."""
