"""The state that a log folds into: an ordered map of keys to values, in layers."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Protocol

from cas.errors import RefusedError
from cas.eventlog.runs import after, live, merge
from cas.eventlog.segment import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.eventlog.runs import Run
    from cas.eventlog.segment import Segment

MAX_KEY: Final = 1024
"""Bytes of a key of the state, at most; it has at least one."""
MAX_VALUE: Final = 8 << 20
"""Bytes of a value of the state, at most."""


class State(Protocol):
    """What a log has folded into, to look at."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None.

        Raises:
            DamagedLogError: What had to be read is damaged.
        """

    def scan(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Give the pairs whose keys begin with `prefix`, in order of their keys.

        Only what is given is read. The pairs are those of the moment of the call, whatever is
        changed while they are taken.

        Args:
            prefix: May be empty.
            start: Begin with this key, or where it would be.
            reverse: In descending order; from `start` downwards, then.

        Raises:
            DamagedLogError: What had to be read is damaged.
        """


class MutableState(State, Protocol):
    """What a fold changes."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key.

        Raises:
            RefusedError: The key has not 1 to 1024 bytes, or the value more than 8 MiB.
        """

    def delete(self, key: bytes) -> None:
        """Take a key away, if it is there."""


class Layers(Protocol):
    """One or more layers of state, read from the newest down."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""

    def runs(self, low: bytes, high: bytes | None, *, reverse: bool) -> list[Iterator[Run]]:
        """Return what each layer has in a range, the newest first."""


class Changes:
    """The newest layer, in memory: values by key, None where a key was deleted."""

    __slots__ = ("_fresh", "_sorted", "table")

    def __init__(self) -> None:
        """Begin empty."""
        self.table: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] = []
        self._fresh: list[bytes] = []

    def set(self, key: bytes, value: bytes | None) -> None:
        """Set or, with None, delete a key."""
        if key not in self.table:
            self._fresh.append(key)
        self.table[key] = value

    def absorb(self, newer: Changes) -> None:
        """Take over the changes of the layer above."""
        for key, value in newer.table.items():
            self.set(key, value)

    def run(self, low: bytes, high: bytes | None) -> Run:
        """Return what lies from `low` up to, not including, `high`."""
        keys = self._sorted
        if self._fresh:
            keys = self._sorted = sorted(keys + self._fresh)
            self._fresh = []
        start = bisect_left(keys, low)
        stop = len(keys) if high is None else bisect_left(keys, high)
        inside = keys[start:stop]
        return inside, [self.table[key] for key in inside]


class Layered:
    """Changes over segments, oldest segment first: what a log has read."""

    __slots__ = ("changes", "segments")

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        """Begin without changes."""
        self.changes = Changes()
        self.segments = segments

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        table = self.changes.table
        if key in table:
            return table[key]
        for segment in reversed(self.segments):
            found = segment.get(key)
            if found is not ABSENT:
                return found  # type: ignore[return-value]  # ABSENT is the only one of its class
        return None

    def runs(self, low: bytes, high: bytes | None, *, reverse: bool) -> list[Iterator[Run]]:
        """Return what each layer has in a range, the newest first."""
        layers = [iter([self.changes.run(low, high)])]
        layers += [segment.runs(low, high, reverse=reverse) for segment in reversed(self.segments)]
        return layers


class Draft:
    """A layer above others that a fold changes, to be taken over whole or dropped."""

    __slots__ = ("_below", "changes")

    def __init__(self, below: Layers) -> None:
        """Begin without changes."""
        self._below = below
        self.changes = Changes()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        table = self.changes.table
        return table[key] if key in table else self._below.get(key)

    def scan(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Give the pairs whose keys begin with `prefix`, in order of their keys."""
        return scan(self, prefix, start=start, reverse=reverse)

    def runs(self, low: bytes, high: bytes | None, *, reverse: bool) -> list[Iterator[Run]]:
        """Return what each layer has in a range, the newest first."""
        own = iter([self.changes.run(low, high)])
        return [own, *self._below.runs(low, high, reverse=reverse)]

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        if not 0 < len(key) <= MAX_KEY:
            raise RefusedError(f"a key of {len(key)} bytes: one has 1 to {MAX_KEY}")
        if len(value) > MAX_VALUE:
            raise RefusedError(f"a value of {len(value)} bytes: one has at most {MAX_VALUE}")
        self.changes.set(key, value)

    def delete(self, key: bytes) -> None:
        """Take a key away, if it is there."""
        self.changes.set(key, None)


def bounds(prefix: bytes, start: bytes | None, *, reverse: bool) -> tuple[bytes, bytes | None]:
    """Return the least key of a scan and the least above it."""
    low, high = prefix, after(prefix)
    if start is not None:
        if not reverse:
            low = max(low, start)
        elif high is None or start < high:
            high = start + b"\x00"
    return low, high


def scan(
    layers: Layers, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Give the pairs of layers whose keys begin with `prefix`; see `State.scan`."""
    low, high = bounds(prefix, start, reverse=reverse)
    return live(merge(layers.runs(low, high, reverse=reverse), reverse=reverse), reverse=reverse)
