"""Taking in what an old layout holds: content first, names later."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from cas import fs, harness
from cas.catalogue.context import doing
from cas.catalogue.draft import DATABASE, PROMPTS, SKILLS
from cas.catalogue.freeze import labels_of
from cas.catalogue.scratch import scratch
from cas.errors import DiskFullError, EnvironmentFailure, NotFoundError, RefusedError
from cas.ingest import ingest, ingest_blob
from cas.ingest.cache import KEPT
from cas.layouts import shape
from cas.layouts.results import Skipped
from cas.manifests import DIR, TreeRef, edit_tree, entries, lookup, parse_tree
from cas.objects import TREE
from cas.workspace.handles import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from cas.catalogue.context import Context
    from cas.layouts.scan import FoundSeed, FoundVersion
    from cas.manifests import NewEntry
    from cas.objects import ObjectWriter
    from cas.progress import Progress
    from cas.workspace.handles import Handles

T = TypeVar("T")

_PATIENCE_S: Final = 5.0


class TakenSeed(NamedTuple):
    """The parts of a seed, stored.

    Attributes:
        skills: Its skills.
        prompts: Its prompts.
        labels: The labels of both.
        baseline: Digest and size of its baseline.
        extra: Its other parts.
    """

    skills: TreeRef
    prompts: TreeRef
    labels: Mapping[str, str]
    baseline: tuple[bytes, int]
    extra: Mapping[str, NewEntry]


class Taking:
    """Stores the content of versions and seeds.

    Args:
        context: The store.
        writer: What to write with.
        handles: The folders below the layout's directory.
        root: The path of that directory.
        count: How many folders there are to take in, about.
        progress: Called with what was done so far.

    Attributes:
        skipped: What could not be taken in.
        notices: Sentences about what was left out or taken in a special way.
    """

    def __init__(
        self,
        context: Context,
        writer: ObjectWriter,
        handles: Handles,
        root: Path,
        *,
        count: int,
        progress: Progress | None,
    ) -> None:
        """Store nothing yet."""
        self._context = context
        self._writer = writer
        self._handles = handles
        self._root = os.fsencode(root)
        # Many folders would push out of the cache what it knows of other sources.
        self._cache_all = count <= KEPT // 2
        self._progress = None if progress is None else _Sum(progress)
        self.skipped: list[Skipped] = []
        self.notices: list[str] = []

    def version(self, found: FoundVersion) -> TreeRef | None:
        """Store the content of a version; None if it had to be skipped."""
        return self._or_skip(found.path, lambda: self._version(found))

    def seed(self, found: FoundSeed) -> TakenSeed | None:
        """Store the parts of a seed; None if it had to be skipped."""
        return self._or_skip(found.path, lambda: self._seed(found))

    def _or_skip(self, path: bytes, take: Callable[[], T]) -> T | None:
        """Skip what cannot be taken in for a reason of its own; what the store lacks is raised."""
        try:
            with doing(f"reading {os.fsdecode(self._where(path))}"):
                return take()
        except DiskFullError:
            raise
        except (RefusedError, NotFoundError) as error:
            reason = str(error)
        except EnvironmentFailure as error:
            at = os.fsencode(str(error.facts.get("path", "")))
            if not at.startswith(self._where(path)):
                raise
            reason = str(error)
        self.skipped.append(Skipped(path, f"cannot be taken in: {reason}"))
        return None

    def _version(self, found: FoundVersion) -> TreeRef:
        if found.plain:
            return self._folder(found.path)
        tree = self._folder(found.path, leave_out=[shape.VERSION_FILE])
        for name, lies in found.told.moved.items():
            tree = self._moved_back(tree, os.fsencode(lies), os.fsencode(name))
        return tree

    def _seed(self, found: FoundSeed) -> TakenSeed:
        baseline, labels = self._baseline(found)
        return TakenSeed(
            skills=self._folder(found.path + b"/" + SKILLS.encode()),
            prompts=self._folder(found.path + b"/" + PROMPTS.encode()),
            labels=labels,
            baseline=baseline,
            extra=self._extra(found),
        )

    def _where(self, path: bytes) -> bytes:
        return os.path.join(self._root, path)

    def _folder(self, path: bytes, leave_out: Collection[bytes] = ()) -> TreeRef:
        plain = shape.resource_of(path) in shape.PLAIN
        done = ingest(
            self._context.objects,
            self._writer,
            self._where(path),
            folder=self._handles.get(path),
            leave_out=leave_out,
            cache=self._context.stat_cache if plain or self._cache_all else None,
            ignore=False,
            progress=self._progress,
        )
        if self._progress is not None:
            self._progress.next()
        self.notices.extend(done.notices)
        return done.tree

    def _moved_back(self, tree: TreeRef, lies: bytes, name: bytes) -> TreeRef:
        """Give an entry of a stored tree the name that it had as content."""
        self._writer.flush()  # its pages are to be read
        read = self._context.objects.read
        found = lookup(read, tree.digest, lies)
        if found is None:
            raise RefusedError(f"has no {os.fsdecode(lies)} any more")
        return edit_tree(
            read,
            lambda page: self._writer.put(page, TREE),
            tree.digest,
            {name: self._entry(found[1], found[2], found[3])},
            [lies],
        )

    def _entry(self, kind: str, size: int, digest: bytes) -> NewEntry:
        files = parse_tree(self._context.objects.read(digest)).files if kind == DIR else 1
        return kind, size, digest, files

    def _extra(self, found: FoundSeed) -> dict[str, NewEntry]:
        """Store the parts that not every seed has."""
        if not found.extra:
            return {}
        with scan(self._handles.get(found.path)) as listing:
            there = {os.fsencode(entry.name) for entry in listing}
        tree = self._folder(found.path, leave_out=there - found.extra.keys())
        self._writer.flush()
        return {
            found.extra[name]: self._entry(kind, size, digest)
            for name, kind, size, digest in entries(self._context.objects.read, tree.digest)
        }

    # --- baselines -------------------------------------------------------------------------------

    def _baseline(self, found: FoundSeed) -> tuple[tuple[bytes, int], dict[str, str]]:
        """Store a baseline that holds its run, and return what the run says it used."""
        run = found.told.fields["baseline_run_id"] or ""
        with scratch(self._context) as folder:
            copy = folder / DATABASE
            path = os.path.join(self._where(found.path), shape.BASELINE)
            _copy_database(self._handles.get(found.path), path, copy)
            try:
                labels = labels_of(harness.run_row(copy, run))
            except (RefusedError, NotFoundError) as error:
                why = str(error).replace(repr(str(copy)), "it").replace(str(copy), "it")
                raise RefusedError(f"its baseline.db cannot be used: {why}") from None
            threshold = self._context.objects.loose_threshold
            return ingest_blob(self._writer, copy, threshold=threshold), labels


def _copy_database(folder: int, path: bytes, copy: Path) -> None:
    """Copy a database: byte for byte where nobody has it open, else through SQLite.

    What nobody has open is one file, and its bytes are its content. SQLite's own copy of it would
    differ in the counters of its header, from one release of SQLite to the next.
    """
    before = _quiet(folder)
    if before is not None:
        source = fs.open_read(shape.BASELINE, folder)
        try:
            target = fs.create_excl(copy, 0o600)
            try:
                if not fs.clone(source, target):
                    fs.copy_range(source, target, 0, os.fstat(source).st_size)
            finally:
                os.close(target)
        finally:
            os.close(source)
        if _quiet(folder) == before:
            return
        fs.unlink(copy)
    harness.snapshot(os.fsdecode(path), copy)


def _quiet(folder: int) -> fs.StatKey | None:
    """Return the stat of a baseline that nobody has open; None if somebody may write to it."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        for side in shape.BASELINE_SIDES:
            try:
                os.lstat(side, dir_fd=folder)
            except FileNotFoundError:
                continue
            return None
        at = time.time_ns()
        found = os.lstat(shape.BASELINE, dir_fd=folder)
        if not fs.racy(found, at):
            return fs.stat_key(found)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)


class _Sum:
    """Progress of several ingests as one."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done = (0, 0)
        self._now = (0, 0)

    def __call__(
        self,
        phase: str,
        files: int,
        bytes_: int,
        total_files: int | None,  # noqa: ARG002 - of one ingest, not of all
        total_bytes: int | None,  # noqa: ARG002
    ) -> None:
        self._now = (files, bytes_)
        self._progress(phase, self._done[0] + files, self._done[1] + bytes_, None, None)

    def next(self) -> None:
        """Begin another ingest."""
        self._done = (self._done[0] + self._now[0], self._done[1] + self._now[1])
        self._now = (0, 0)
