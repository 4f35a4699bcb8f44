"""The difference between two states: what was added, removed, changed and renamed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas.catalogue.resolve import TYPE_WORDS
from cas.digest import Digest
from cas.manifests import DIR, compare
from cas.paths import path_json, paths_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cas.manifests import Entry, Read


@dataclass(frozen=True, slots=True)
class State:
    """What stands at a path: `file|exec|symlink|dir`, its size and digest."""

    type: str
    size: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs: `old` is None where it was added, `new` where it was removed."""

    path: bytes
    old: State | None
    new: State | None


@dataclass(frozen=True, slots=True)
class Rename:
    """One file whose content is the same under another path."""

    old_path: bytes
    path: bytes
    old: State
    new: State

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {**path_json(self.old_path, "from"), **path_json(self.path, "to")}


@dataclass(frozen=True, slots=True)
class Diff:
    """All that differs, each list sorted by path. An empty directory counts as an entry."""

    added: tuple[Change, ...]
    removed: tuple[Change, ...]
    changed: tuple[Change, ...]
    renamed: tuple[Rename, ...]

    def __bool__(self) -> bool:
        """Whether anything differs."""
        return bool(self.added or self.removed or self.changed or self.renamed)

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows: lists of paths, and of pairs of them."""
        return paths_json(
            added=(change.path for change in self.added),
            removed=(change.path for change in self.removed),
            changed=(change.path for change in self.changed),
        ) | {"renamed": [rename.to_json() for rename in self.renamed]}


def diff_trees(read: Read, a: bytes, b: bytes) -> Diff:
    """Compare two trees by digest; equal subtrees are not read.

    A file that went from one path and is at another with the same content was renamed. Empty files
    are all the same and prove nothing, so they are never renamed.

    Args:
        read: Gives the objects of both trees.
        a: Digest of the old tree.
        b: Digest of the new tree.
    """
    added: list[Change] = []
    removed: list[Change] = []
    changed: list[Change] = []
    for path, old, new in _differences(read, a, b):
        change = Change(path, old and _state(old), new and _state(new))
        (changed if old and new else added if new else removed).append(change)
    renamed = sorted(_renames(removed, added), key=lambda rename: rename.path)
    moved_from = {rename.old_path for rename in renamed}
    moved_to = {rename.path for rename in renamed}
    return Diff(
        added=tuple(change for change in added if change.path not in moved_to),
        removed=tuple(change for change in removed if change.path not in moved_from),
        changed=tuple(changed),
        renamed=tuple(renamed),
    )


def _state(entry: Entry) -> State:
    return State(TYPE_WORDS[entry[1]], entry[2], Digest(entry[3]))


def _differences(
    read: Read, a: bytes, b: bytes
) -> Iterator[tuple[bytes, Entry | None, Entry | None]]:
    """Yield what differs, without the directories that something in them stands for."""
    held: tuple[bytes, Entry | None, Entry | None] | None = None
    for path, old, new in compare(read, a, b):
        if held is not None:
            if path.startswith(held[0] + b"/"):
                held = (held[0], _no_directory(held[1]), _no_directory(held[2]))
            if held[1] or held[2]:
                yield held
        held = (path, old, new)
    if held is not None:
        yield held


def _no_directory(entry: Entry | None) -> Entry | None:
    return None if entry is None or entry[1] == DIR else entry


def _renames(removed: Iterable[Change], added: Iterable[Change]) -> Iterator[Rename]:
    """Pair files that went with files that came, by equal content.

    Where several have the same content, one that keeps its file name is taken first, then the
    others in order of their paths.
    """
    gone = _by_content((change.path, change.old) for change in removed)
    for content, came in _by_content((change.path, change.new) for change in added).items():
        by_name: defaultdict[bytes, list[_File]] = defaultdict(list)
        for file in reversed(gone.get(content, [])):
            by_name[_name(file)].append(file)
        rest: list[_File] = []
        for file in came:
            same_name = by_name.get(_name(file))
            if same_name:
                yield _rename(same_name.pop(), file)
            else:
                rest.append(file)
        left = sorted((file for files in by_name.values() for file in files), key=_path)
        for old, new in zip(left, rest, strict=False):
            yield _rename(old, new)


_File = tuple[bytes, State]
_Content = tuple[bool, bytes]
"""Whether it is a link, and its digest."""


def _by_content(
    files: Iterable[tuple[bytes, State | None]],
) -> dict[_Content, list[_File]]:
    found: defaultdict[_Content, list[_File]] = defaultdict(list)
    for path, state in files:
        if state is not None and state.size and state.type != "dir":
            found[state.type == "symlink", state.digest].append((path, state))
    return found


def _path(file: _File) -> bytes:
    return file[0]


def _name(file: _File) -> bytes:
    return file[0].rpartition(b"/")[2]


def _rename(old: _File, new: _File) -> Rename:
    return Rename(old[0], new[0], old[1], new[1])
