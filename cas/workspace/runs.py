"""What a tree holds, as runs in walk order: what a checkout writes and a verification expects."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from cas.errors import RefusedError
from cas.manifests import DIR, walk
from cas.names import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cas.manifests import Entry, Read

MAX_RUN: Final = 1024
"""Most entries of one run: what the stat index takes."""

Run = tuple[bytes, list["Entry"]]
"""A folder's path and neighbouring entries of it; a directory's entry is the last of its run, and
the next run is what is in it, if anything is."""


def runs(read: Read, tree: bytes, only: Sequence[str] = ()) -> Iterator[Run]:
    """Yield everything below a tree, each directory before what is in it.

    Args:
        read: Gives objects.
        tree: Digest of the tree.
        only: Globs (gitignore grammar); what matches none is left out, and so is a directory
            with nothing left in it. Empty for everything.

    Raises:
        RefusedError: An entry has the name of a workspace's memory, the tree is too deep, a glob
            cannot be understood, or globs match nothing.
        FormatError: A malformed tree.
    """
    steps = walk(read, tree)
    if only:
        steps = _matching(steps, only)
    folder = b""
    run: list[Entry] = []
    for path, entry in steps:
        name = entry[0]
        here = path[: -len(name) - 1]
        if here != folder or len(run) >= MAX_RUN:
            if run:
                yield folder, run
                run = []
            folder = here
        if name == MEMORY:
            raise RefusedError(
                f"{os.fsdecode(path)!r} cannot be checked out: {os.fsdecode(MEMORY)} is the name "
                "of a workspace's own memory; make a version without it (cas edit --rm)",
                path=os.fsdecode(path),
            )
        run.append(entry)
        if entry[1] == DIR:
            yield folder, run
            run = []
    if run:
        yield folder, run


def without(
    found: Iterable[Run], purged: Mapping[bytes, str], left_out: dict[bytes, str]
) -> Iterator[Run]:
    """Leave out what was purged.

    Args:
        found: What a tree holds.
        purged: What was purged, and how a sentence goes on that says so.
        left_out: Takes the paths of what is left out, with that.
    """
    if not purged:
        yield from found
        return
    for folder, run in found:
        kept = []
        for entry in run:
            told = None if entry[1] == DIR else purged.get(entry[3])
            if told is None:
                kept.append(entry)
            else:
                left_out[folder + b"/" + entry[0] if folder else entry[0]] = told
        if kept:
            yield folder, kept


def matcher(only: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a path matches one of some globs.

    Raises:
        RefusedError: A glob cannot be understood.
    """
    import pathspec  # late: start-up time, and few checkouts need it

    try:
        return pathspec.GitIgnoreSpec.from_lines(only).match_file
    except ValueError as error:
        raise RefusedError(f"--only {' '.join(only)!r}: {error}") from None


def _matching(
    steps: Iterable[tuple[bytes, Entry]], only: Sequence[str]
) -> Iterator[tuple[bytes, Entry]]:
    """Pass on what matches, each with the directories above it that were not passed on yet."""
    match = matcher(only)
    waiting: list[tuple[bytes, Entry]] = []
    found = False
    for path, entry in steps:
        while waiting and not path.startswith(waiting[-1][0] + b"/"):
            waiting.pop()
        text = os.fsdecode(path)
        if match(text + "/" if entry[1] == DIR else text):
            found = True
            yield from waiting
            waiting.clear()
            yield path, entry
        elif entry[1] == DIR:
            waiting.append((path, entry))
    if not found:
        raise RefusedError(
            f"--only {' '.join(only)!r} matches nothing; 'cas ls -R' shows the paths"
        )
