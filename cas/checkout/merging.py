"""What a workspace's index says beside what other trees say, path by path in walk order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cas.digest import DIGEST_SIZE
from cas.manifests import DIR
from cas.statindex import FIELDS, position, trusted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    """One path, and what the index and each tree have there.

    Attributes:
        key: The path's components.
        folder: The path of the directory that it lies in.
        old: What the index has.
        new: What the tree to go to has.
        via: What each tree has that an update was on its way to when it was cut short, so that
            the disk may have it; empty where there was no such update.
    """

    key: Key
    folder: bytes
    old: Known | None
    new: Entry | None
    via: tuple[Entry | None, ...] = ()

    @property
    def path(self) -> bytes:
        """The path, names joined by "/"."""
        return b"/".join(self.key)

    @property
    def name(self) -> bytes:
        """The last name."""
        return self.key[-1]

    def without_directories(self) -> Pair:
        """Return the same without what is a directory on the side of the old."""
        old = self.old
        return Pair(
            self.key,
            self.folder,
            None if old is None or old.entry[1] == DIR else old,
            self.new,
            tuple(None if one is None or one[1] == DIR else one for one in self.via),
        )


def pairs(
    index: Iterable[IndexRun], tree: Iterable[Run], via: Sequence[Iterable[Run]] = ()
) -> Iterator[Pair]:
    """Yield every path that any side has, once, in walk order.

    Args:
        index: The runs of the workspace's index.
        tree: The runs of the tree to go to.
        via: The runs of the trees that updates were on their way to when they were cut short.
    """
    olds = _old_entries(index)
    others = [_entries(one) for one in (tree, *via)]
    old = next(olds, None)
    heads = [next(one, None) for one in others]
    while True:
        places = [(head[0], head[1]) for head in (old, *heads) if head is not None]
        if not places:
            return
        key, folder = min(places)
        known = None
        if old is not None and old[0] == key:
            known = old[2]
            old = next(olds, None)
        entries: list[Entry | None] = []
        for i, head in enumerate(heads):
            if head is not None and head[0] == key:
                entries.append(head[2])
                heads[i] = next(others[i], None)
            else:
                entries.append(None)
        yield Pair(key, folder, known, entries[0], tuple(entries[1:]))


def _old_entries(index: Iterable[IndexRun]) -> Iterator[tuple[Key, bytes, Known]]:
    for run in index:
        stats, digests = run.stats, run.digests
        for i, name in enumerate(run.names):
            stat = stats[FIELDS * i : FIELDS * i + FIELDS]
            digest = digests[DIGEST_SIZE * i : DIGEST_SIZE * i + DIGEST_SIZE]
            proof = stat if stat[4] and trusted(stat[1], stat[2], run.at_ns) else None
            entry = (name, run.types[i], stat[0], digest)
            yield position(run.folder, name), run.folder, Known(entry, proof)


def _entries(tree: Iterable[Run]) -> Iterator[tuple[Key, bytes, Entry]]:
    for folder, run in tree:
        for entry in run:
            yield position(folder, entry[0]), folder, entry
