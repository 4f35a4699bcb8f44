"""What a workspace's index says beside what another tree says, path by path in walk order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cas.digest import DIGEST_SIZE
from cas.statindex import FIELDS, position, trusted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cas.manifests import Entry
    from cas.statindex import Run as IndexRun
    from cas.workspace.runs import Run

Key = tuple[bytes, ...]
"""The components of a path: tuples sort in walk order."""


@dataclass(slots=True)
class Known:
    """An entry of the index.

    Attributes:
        entry: Name, type, size, digest.
        stat: Size, mtime_ns, ctime_ns, device, inode; None where they prove nothing.
    """

    entry: Entry
    stat: list[int] | None


@dataclass(slots=True)
class Pair:
    """One path: what the index has there and what the tree has, at least one of them."""

    key: Key
    folder: bytes
    old: Known | None
    new: Entry | None

    @property
    def path(self) -> bytes:
        """The path, names joined by "/"."""
        return b"/".join(self.key)

    @property
    def name(self) -> bytes:
        """The last name."""
        return self.key[-1]


def pairs(index: Iterable[IndexRun], tree: Iterable[Run]) -> Iterator[Pair]:
    """Yield every path of either side once, in walk order."""
    olds = _old_entries(index)
    news = _new_entries(tree)
    old = next(olds, None)
    new = next(news, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old[0] < new[0]):
            assert old is not None
            yield Pair(old[0], old[1], old[2], None)
            old = next(olds, None)
        elif old is None or new[0] < old[0]:
            yield Pair(new[0], new[1], None, new[2])
            new = next(news, None)
        else:
            yield Pair(old[0], old[1], old[2], new[2])
            old = next(olds, None)
            new = next(news, None)


def _old_entries(index: Iterable[IndexRun]) -> Iterator[tuple[Key, bytes, Known]]:
    for run in index:
        stats, digests = run.stats, run.digests
        for i, name in enumerate(run.names):
            stat = stats[FIELDS * i : FIELDS * i + FIELDS]
            digest = digests[DIGEST_SIZE * i : DIGEST_SIZE * i + DIGEST_SIZE]
            proof = stat if stat[4] and trusted(stat[1], stat[2], run.at_ns) else None
            entry = (name, run.types[i], stat[0], digest)
            yield position(run.folder, name), run.folder, Known(entry, proof)


def _new_entries(tree: Iterable[Run]) -> Iterator[tuple[Key, bytes, Entry]]:
    for folder, run in tree:
        for entry in run:
            yield position(folder, entry[0]), folder, entry
