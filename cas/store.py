"""A store: opens one, and hands out what works on it."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self, overload

from cas.catalogue.context import doing
from cas.catalogue.identity import FOLDER, is_store
from cas.catalogue.opening import open_context, opened, store_root
from cas.catalogue.versions import Versions
from cas.errors import NotFoundError, RefusedError
from cas.names import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from cas.catalogue.diff import Diff
    from cas.catalogue.lineage import LineageEntry
    from cas.catalogue.resolve import Resolved, WalkEntry
    from cas.catalogue.seeds import Seeds
    from cas.catalogue.stats import Stats
    from cas.catalogue.tags import Tags
    from cas.catalogue.workspaces import Workspaces
    from cas.checkout import CheckedOut
    from cas.digest import Digest
    from cas.layouts import Exported, Imported
    from cas.learning import Learning
    from cas.maintenance.gc import Collected
    from cas.maintenance.purge import Purged
    from cas.maintenance.repack import Repacked
    from cas.maintenance.report import VerifyReport
    from cas.progress import Progress
    from cas.repair import Repaired
    from cas.sync import Synced
    from cas.workspace import Status

AnyPath = str | PathLike[str]

_PIECE = 1 << 20
"""Bytes of a file that are handed out at a time."""

# Imports inside the methods below are late for start-up time: most commands need few of them.


class _Open:
    """`Store.open(path)` opens a store, `store.open(spec)` a file in it."""

    @overload
    def __get__(self, store: None, owner: type[Store]) -> Callable[[AnyPath], Store]: ...
    @overload
    def __get__(self, store: Store, owner: type[Store]) -> Callable[[str], BinaryIO]: ...
    def __get__(
        self, store: Store | None, owner: type[Store]
    ) -> Callable[[AnyPath], Store] | Callable[[str], BinaryIO]:
        """Return the one that fits what `open` was looked up on."""
        return owner.open_store if store is None else store.open_file


class Store:
    """An open store.

    Args:
        root: The store's directory itself; `open` also finds one inside a folder.

    Attributes:
        root: The store's directory.
        id: Its identity, 32 hexadecimal digits, the same for all its copies.
        versions: Versions of resources.
    """

    open = _Open()

    def __init__(self, root: Path) -> None:
        """Read what the store says of itself; its log and objects are looked at when needed."""
        self._context = open_context(root)
        self._learning: Learning | None = None
        self.root = root
        self.id = self._context.id
        self.versions = Versions(self._context)

    @property
    def seeds(self) -> Seeds:
        """Seeds: frozen states of skills, prompts and a baseline."""
        from cas.catalogue.seeds import Seeds

        return Seeds(self._context)

    @property
    def tags(self) -> Tags:
        """Tags: names that move."""
        from cas.catalogue.tags import Tags

        return Tags(self._context)

    @property
    def learning(self) -> Learning:
        """Learning candidates, with their claims, audit and reports."""
        if self._learning is None:
            from cas.learning import Learning

            self._learning = Learning(self._context)
        return self._learning

    @property
    def workspaces(self) -> Workspaces:
        """The workspaces that it remembers and keeps content for."""
        from cas.catalogue.workspaces import Workspaces

        return Workspaces(self._context)

    @classmethod
    def init(
        cls,
        path: AnyPath,
        *,
        shared: bool | str | None = None,
        videos: AnyPath | None = None,
        skills: AnyPath | None = None,
        prompts: AnyPath | None = None,
        progress: Progress | None = None,
    ) -> Store:
        """Make a directory a store and open it; all or nothing.

        Args:
            path: The directory, which must not exist or be empty.
            shared: Make the store's files usable by a group whatever the umask: True for the group
                of the parent directory, a text for that group.
            videos: A directory to take in as `videos@v1`.
            skills: A directory to take in as `skills@v1`.
            prompts: A directory to take in as `prompts@v1`.
            progress: Called with what was done so far.

        Raises:
            ConflictError: There is a store, or something else, at `path`.
        """
        from cas.catalogue.founding import found
        from cas.learning import LEARNING, create_learning

        root = Path(os.path.abspath(path))
        first = {"videos": videos, "skills": skills, "prompts": prompts}
        found(
            root,
            shared=shared,
            first={name: source for name, source in first.items() if source is not None},
            logs={LEARNING: create_learning},
            progress=progress,
        )
        return cls(root)

    @classmethod
    def clone(
        cls, source: AnyPath | Store, path: AnyPath, *, progress: Progress | None = None
    ) -> Store:
        """Make a directory a copy of a store, with all its names and their history, and open it.

        It has the identity of the source. Only what names reach is copied. If it is cut short, the
        next clone to the same directory goes on.

        Args:
            source: The store, or its directory; it is only read.
            path: The directory, which must not exist or be empty.
            progress: Called with what was done so far.

        Raises:
            NotFoundError: There is no store at `source`.
            ConflictError: Something is at `path`.
            DamagedError: The source is damaged.
        """
        from cas.sync import clone

        root = Path(os.path.abspath(path))
        with opened(_directory(source)) as there:
            clone(there, root, progress=progress)
        return cls(root)

    @classmethod
    def open_store(cls, path: AnyPath) -> Store:
        """Open the store at a directory, or the one in the directory's `.cas`.

        Raises:
            NotFoundError: There is none.
            NewerFormatError: It was made by a newer version of this program.
            DamagedError: It cannot be understood.
        """
        return cls(store_root(path))

    @classmethod
    def discover(cls, start: AnyPath | None = None) -> Store:
        """Open the nearest store from a directory upward.

        Each directory may be a store, hold one in `.cas`, or be a workspace, which remembers its
        store.

        Args:
            start: Where to begin; by default the current directory.

        Raises:
            NotFoundError: There is none up to the root.
        """
        first = Path(os.path.abspath(os.curdir if start is None else start))
        for directory in (first, *first.parents):
            for candidate in (directory, directory / FOLDER):
                if is_store(candidate):
                    return cls(candidate)
            if os.path.isdir(directory / os.fsdecode(MEMORY)):
                return cls._of_workspace(directory)
        raise NotFoundError(
            f"no store at or above {first}; make one with `cas init`, or name one", path=str(first)
        )

    @classmethod
    def _of_workspace(cls, directory: Path) -> Store:
        """Open the store that a workspace remembers, if it is still where it was."""
        from cas.workspace import load

        state = load(directory)
        where = f"the workspace {directory} was checked out from the store {state.store_path}"
        if not is_store(state.store_path):
            raise NotFoundError(
                f"{where}, which is not there; name the store", path=str(state.store_path)
            )
        store = cls(state.store_path)
        if store.id != state.store_id:
            store.close()
            raise NotFoundError(
                f"{where}, and another one is there now; name the store",
                path=str(state.store_path),
            )
        return store

    def close(self) -> None:
        """Let go of open files. Closing twice is fine."""
        if self._learning is not None:
            self._learning.close()
        self._context.close()
        self._context.backend.close()

    def __enter__(self) -> Self:
        """Return the store; leaving the block closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store."""
        self.close()

    def resolve(self, spec: str) -> Resolved:
        """Find what a spec names.

        Raises:
            NotFoundError: It names nothing; the message says what there is.
            RefusedError: It is no spec, or a digest prefix that fits several objects.
        """
        from cas.catalogue.resolve import resolve_spec

        with doing(f"looking up {spec}"):
            return resolve_spec(self._context, spec)

    def ingest(
        self,
        path: AnyPath,
        *,
        ignore: bool = True,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> Digest:
        """Take in a directory without giving it a name, and return its tree's digest.

        What no name reaches is kept for the grace time of gc.
        """
        from cas.catalogue.publish import publishing
        from cas.catalogue.sources import Taker

        with doing(f"taking in {path}"), publishing(self._context) as writer:
            taker = Taker(self._context, writer, ignore=ignore, workers=workers, progress=progress)
            tree = taker.take_tree(Path(path)).tree
            writer.flush()
            return tree.digest

    def walk(self, spec: str) -> Iterator[WalkEntry]:
        """Yield everything in a tree, a directory before what is in it, names in byte order.

        Raises:
            NotFoundError: The spec names nothing, or no directory.
        """
        from cas.catalogue.resolve import resolve_spec, tree_of, walk_tree

        with doing(f"reading {spec}"):
            yield from walk_tree(self._context, tree_of(resolve_spec(self._context, spec)))

    def list_dir(self, spec: str, *, recursive: bool = False) -> Iterator[WalkEntry]:
        """Yield the entries of one directory, or all below it; of a file, the file itself."""
        from cas.catalogue.resolve import list_entries, resolve_spec, walk_tree

        with doing(f"reading {spec}"):
            resolved = resolve_spec(self._context, spec)
            if recursive and resolved.tree is not None:
                yield from walk_tree(self._context, resolved.tree)
            else:
                yield from list_entries(self._context, resolved)

    def open_file(self, spec: str) -> BinaryIO:
        """Open the content of a file as a seekable binary file of checked bytes.

        Raises:
            NotFoundError: The spec names nothing.
            RefusedError: It names a directory.
        """
        with doing(f"opening {spec}"):
            return self._context.objects.open(self._file(spec).digest)

    def read_range(self, spec: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of a file from `start` up to, not including, `end`, in pieces.

        Of a whole file all bytes are checked; if an error ends it, what came before is to be
        thrown away. Of a part, see `open_file`.
        """
        with doing(f"reading {spec}"):
            resolved = self._file(spec)
            objects = self._context.objects
            stop = resolved.size if end is None else min(end, resolved.size)
            if start == 0 and stop == resolved.size:
                yield from objects.stream(resolved.digest)
                return
            with objects.open(resolved.digest) as file:
                file.seek(start)
                while start < stop and (piece := file.read(min(stop - start, _PIECE))):
                    start += len(piece)
                    yield piece

    def _file(self, spec: str) -> Resolved:
        from cas.catalogue.resolve import resolve_spec

        resolved = resolve_spec(self._context, spec)
        if resolved.tree is not None:
            raise RefusedError(f"{spec} is a directory; name a file in it", spec=spec)
        return resolved

    def diff(self, a: AnyPath, b: AnyPath) -> Diff:
        """Compare two states, each a spec or a directory of the caller."""
        from cas.catalogue.diff import diff_trees
        from cas.catalogue.sides import Sides

        with doing(f"comparing {a} with {b}"):
            sides = Sides(self._context)
            return diff_trees(sides.read, sides.tree(a), sides.tree(b))

    def diff_text(self, a: AnyPath, b: AnyPath, path: str = "") -> Iterator[str]:
        """Yield a unified diff, line by line and without line ends, of one file in two states.

        Args:
            a: The old state: a spec or a directory or file of the caller.
            b: The new state.
            path: The file inside both; empty where `a` and `b` name the files themselves.

        Raises:
            NotFoundError: Neither state has the file.
            RefusedError: It is no file, or too large to compare as text.
        """
        from cas.catalogue.sides import Sides

        with doing(f"comparing {a} with {b}"):
            yield from Sides(self._context).diff_text(a, b, path)

    def log(self, spec: str, *, limit: int | None = None) -> list[LineageEntry]:
        """Return the lineage of a version or seed, itself first, back to the first ones."""
        from cas.catalogue.lineage import lineage

        with doing(f"reading the lineage of {spec}"):
            return lineage(self._context, spec, limit=limit)

    def checkout(
        self,
        spec: str,
        dest: AnyPath,
        *,
        mode: str = "auto",
        only: Sequence[str] = (),
        update: bool = False,
        force: bool = False,
        verify: bool = False,
        sync: bool = True,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> CheckedOut:
        """Write what a spec names into a directory, whole or not at all.

        Args:
            spec: What to check out.
            dest: A directory that does not exist, is empty, or, with `update` or `force`, was made
                by a checkout.
            mode: `auto` (reflink, else copy), `reflink`, `copy` or `hardlink`.
            only: Globs; only paths that match one are written.
            update: Move an existing workspace to `spec`, leaving what a person changed.
            force: Replace an existing workspace that nobody changed.
            verify: Read back and hash every file that was written.
            sync: Make all durable before it has its name.
            workers: How many processes write; by default as many as pay.
            progress: Called with what was done so far.

        Raises:
            ConflictError: Something that no checkout made is at `dest`.
            UnsupportedError: The filesystem cannot hold a name or type, or cannot do the mode.
        """
        from cas.catalogue.checkouts import check_out

        with doing(f"checking out {spec}"):
            return check_out(
                self._context,
                spec,
                dest,
                mode=mode,
                only=only,
                update=update,
                force=force,
                verify=verify,
                sync=sync,
                workers=workers,
                progress=progress,
            )

    def status(self, workspace: AnyPath) -> Status:
        """Say what was added, changed and deleted in a workspace since its checkout."""
        from cas.workspace import status

        return status(workspace)

    def verify(
        self,
        target: AnyPath | None = None,
        *,
        quick: bool = False,
        sample: float | None = None,
        budget: float | None = None,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Prove the store, or what one spec reaches.

        Args:
            target: A spec; by default the whole store. Of a spec `sample` and `budget` are not
                taken.
            quick: Structure and sizes only.
            sample: Read only about this percentage of the bytes.
            budget: Stop reading after this many seconds; the next run goes on from there.
            workers: How many processes read and hash; by default all cores.
            progress: Called with what was done so far.
        """
        from cas.maintenance.verify import verify_spec, verify_store

        with doing("verifying"):
            if target is None:
                return verify_store(
                    self._context,
                    quick=quick,
                    sample=sample,
                    budget=budget,
                    workers=workers,
                    progress=progress,
                )
            return verify_spec(
                self._context,
                self.resolve(os.fspath(target)),
                quick=quick,
                workers=workers,
                progress=progress,
            )

    def verify_directory(
        self,
        directory: AnyPath,
        *,
        against: str,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Prove that a directory, made by any tool, holds exactly what a spec names.

        Raises:
            NotFoundError: There is no such directory, or the spec names nothing or no directory.
        """
        from cas.catalogue.resolve import tree_of
        from cas.maintenance.verify import directory_report
        from cas.workspace import verify_directory
        from cas.workspace.runs import runs, without

        with doing(f"verifying {os.fspath(directory)}"):
            tree = tree_of(self.resolve(against))
            objects = self._context.objects
            path = Path(directory)
            expected = without(runs(objects.read, tree), objects.purged, {})
            check = verify_directory(path, expected, workers=workers, progress=progress)
            return directory_report(check, path)

    def gc(
        self,
        *,
        grace: float | None = None,
        dry_run: bool = False,
        budget: float | None = None,
        progress: Progress | None = None,
    ) -> Collected:
        """Remove objects that nothing needs any more, and second copies of others.

        Needed is what versions and seeds reach, where tags point, what the learning log and the
        workspaces on record hold, and all of it that lost its name less than `grace` ago. What
        never had a name stays as long after it was placed. Others may read and write meanwhile;
        who publishes waits while it sweeps.

        Args:
            grace: Seconds; by default 14 days.
            dry_run: Only say what would go.
            budget: Begin to remove nothing more after so many seconds.
            progress: Called with what was done so far.

        Raises:
            DamagedError: Something is damaged or lost, so nobody can say what it needs.
            BusyError: Someone publishes and does not end.
        """
        from cas.maintenance.gc import GRACE, collect

        with doing("collecting garbage"):
            return collect(
                self._context,
                grace=GRACE if grace is None else grace,
                dry_run=dry_run,
                budget=budget,
                progress=progress,
            )

    def purge(self, spec: str, *, reason: str, by: str | None = None) -> Purged:
        """Take the content of a file out of every version and every copy in the store, for good.

        Its digest is remembered with who, when and why: nobody can store it again, and a checkout
        of what held it leaves it out and says so. Doing it again finishes a purge that was cut
        short. Copies outside the store are not reached: workspaces, other stores, backups.

        Args:
            spec: The file, such as `videos@v3:bird/clip.mp4`, or its digest.
            reason: Why.
            by: Who; by default the user that runs this.

        Raises:
            NotFoundError: The spec names nothing.
            RefusedError: It names more than a file.
            BusyError: Someone publishes and does not end.
            DamagedError: A damaged file of the store may hold a copy.
        """
        from cas.maintenance.purge import purge

        with doing(f"purging {spec}"):
            return purge(self._context, spec, reason=reason, by=by)

    def repack(
        self,
        *,
        level: int | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Repacked:
        """Write small packs anew as fewer and fuller ones; no object changes.

        Others may read and add meanwhile. It may be interrupted at any point.

        Args:
            level: Write all packs anew, compressed at this level of zstd, from 1 to 19; higher ones
                take longer and save more.
            dry_run: Only say what it would write and how much space that takes.
            progress: Called with what was done so far.

        Raises:
            RefusedError: There is no such level.
            DiskFullError: There is too little space; nothing is lost.
        """
        from cas.maintenance.repack import repack_store

        with doing("repacking"):
            return repack_store(self._context, level=level, dry_run=dry_run, progress=progress)

    def repair(
        self,
        source: AnyPath | Store,
        *,
        budget: float | None = None,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> Repaired:
        """Verify, heal what is damaged or lost with good copies from elsewhere, verify again.

        A good copy takes the place of a bad one, whatever "exists". A catalogue that is damaged is
        made anew from what can be read of it, from that of a copy of this store, and from the
        manifests among the objects. What cannot be healed is put into the store's `quarantine/`.

        Args:
            source: Another store, a workspace, or any directory whose files may fit.
            budget: Begin to read nothing more after this many seconds, and heal what was found by
                then; the next one, and the next verification with a budget, goes on from there.
            workers: How many processes read and hash; by default all cores.
            progress: Called with what was done so far.

        Raises:
            NotFoundError: There is nothing at `source`.
            BusyError: Someone publishes to the store and does not end.
        """
        from cas.repair import repair

        with doing(f"repairing {self.root}"):
            self._learning = None  # it may have read what is made anew
            return repair(
                self._context,
                _directory(source),
                budget=budget,
                workers=workers,
                progress=progress,
            )

    @classmethod
    def mend(cls, path: AnyPath, source: AnyPath | Store) -> Store:
        """Open a store whose `store.json` may be damaged or lost, after writing it anew.

        Args:
            path: The store's directory, or the one that holds its `.cas`.
            source: What it is going to be repaired from.

        Raises:
            NotFoundError: There is no store.
        """
        from cas.repair import mend_identity

        root = store_root(path)
        if not is_store(root):
            raise NotFoundError(f"{root} is no store", path=str(root))
        with doing(f"repairing {root}"):
            mend_identity(root, _directory(source))
        return cls(root)

    def import_layout(self, directory: AnyPath, *, progress: Progress | None = None) -> Imported:
        """Take in an old version store, without changing it.

        Numbers, gaps between them, metadata and times stay as they are. All names come in with one
        record, or none. What is damaged or no part of such a store is skipped and said, and so is
        what this store has already, with equal content.

        Args:
            directory: The old store; see `docs/old-layouts.md` for what it may hold.
            progress: Called with what was done so far.

        Raises:
            NotFoundError: There is no such directory.
            RefusedError: It is no old store.
            ConflictError: A name stands for something else here; nothing was imported.
        """
        from cas.layouts import import_layout

        with doing(f"importing {os.fspath(directory)}"):
            return import_layout(self._context, directory, progress=progress)

    def export_layout(self, directory: AnyPath, *, progress: Progress | None = None) -> Exported:
        """Write all versions and seeds as an old version store, whole or not at all.

        An import of it into a new store gives the same versions and seeds.

        Args:
            directory: Where to; must not exist or be empty.
            progress: Called with what was done so far.

        Raises:
            ConflictError: Something is at `directory`.
            RefusedError: There is nothing to export.
            UnsupportedError: The filesystem cannot hold a name or type.
        """
        from cas.layouts import export_layout

        with doing(f"exporting to {os.fspath(directory)}"):
            return export_layout(self._context, directory, progress=progress)

    def push(
        self, other: AnyPath | Store, specs: Iterable[str] = (), *, progress: Progress | None = None
    ) -> Synced:
        """Bring names of this store, and what they reach, to another one.

        Only missing objects travel. A name that means something else at the other store is a
        conflict: it is said, and never overwritten.

        Args:
            other: The other store, or its directory.
            specs: Versions, seeds and tags, all or none of which come; by default everything,
                except for what conflicts.
            progress: Called with what was done so far.

        Raises:
            NotFoundError: There is no such name, or no such store.
            ConflictError: A name that was asked for means something else at the other store.
            MissingObjectError: This store lacks something of what was asked for.
        """
        from cas.sync import transfer

        with opened(_directory(other)) as there, doing(f"pushing to {there.root}"):
            return transfer(self._context, there, specs, progress=progress)

    def pull(
        self,
        other: AnyPath | Store,
        specs: Iterable[str] = (),
        *,
        renumber: bool = False,
        progress: Progress | None = None,
    ) -> Synced:
        """Bring names of another store, and what they reach, to this one.

        Args:
            other: The other store, or its directory; it is only read.
            specs: As for `push`.
            renumber: Give versions whose number means something else here the next free one; what
                was said of them stays, and their parent is the version that they were.
            progress: Called with what was done so far.

        Raises:
            CasError: As for `push`, with the stores exchanged.
        """
        from cas.sync import transfer

        with opened(_directory(other)) as there, doing(f"pulling from {there.root}"):
            return transfer(there, self._context, specs, renumber=renumber, progress=progress)

    def stats(self) -> Stats:
        """Count objects and bytes, and what dedup and compression saved."""
        from cas.catalogue.stats import measure

        with doing("counting what the store holds"):
            return measure(self._context)


def _directory(store: AnyPath | Store) -> AnyPath:
    return store.root if isinstance(store, Store) else store
