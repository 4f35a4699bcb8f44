"""A store: opens one, and hands out what works on it."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, BinaryIO, Self, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from cas.catalogue.diff import Diff
    from cas.catalogue.lineage import LineageEntry
    from cas.catalogue.resolve import Resolved, WalkEntry
    from cas.catalogue.seeds import Seeds
    from cas.catalogue.stats import Stats
    from cas.catalogue.tags import Tags
    from cas.catalogue.versions import Versions
    from cas.catalogue.workspaces import CheckedOut, Workspaces
    from cas.digest import Digest
    from cas.maintenance.report import VerifyReport
    from cas.progress import Progress
    from cas.workspace import Status

AnyPath = str | PathLike[str]


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

    Attributes:
        root: The store's directory.
        id: Its identity, 32 hexadecimal digits, the same for all its copies.
        versions: Versions of resources.
        seeds: Seeds.
        tags: Tags.
        workspaces: The workspaces that it remembers.
    """

    root: Path
    id: str
    versions: Versions
    seeds: Seeds
    tags: Tags
    workspaces: Workspaces

    open = _Open()

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
        raise NotImplementedError

    @classmethod
    def open_store(cls, path: AnyPath) -> Store:
        """Open the store at a directory, or the one in the directory's `.cas`.

        Raises:
            NotFoundError: There is none.
            NewerFormatError: It was made by a newer version of this program.
            DamagedError: It cannot be understood.
        """
        raise NotImplementedError

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
        raise NotImplementedError

    def close(self) -> None:
        """Let go of open files. Closing twice is fine."""

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
        raise NotImplementedError

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
        raise NotImplementedError

    def walk(self, spec: str) -> Iterator[WalkEntry]:
        """Yield everything in a tree, a directory before what is in it, names in byte order.

        Raises:
            NotFoundError: The spec names nothing, or no directory.
        """
        raise NotImplementedError

    def list_dir(self, spec: str, *, recursive: bool = False) -> Iterator[WalkEntry]:
        """Yield the entries of one directory, or all below it; of a file, the file itself."""
        raise NotImplementedError

    def open_file(self, spec: str) -> BinaryIO:
        """Open the content of a file as a seekable binary file of checked bytes.

        Raises:
            NotFoundError: The spec names nothing.
            RefusedError: It names a directory.
        """
        raise NotImplementedError

    def read_range(self, spec: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of a file from `start` up to, not including, `end`, in pieces."""
        raise NotImplementedError

    def diff(self, a: AnyPath, b: AnyPath) -> Diff:
        """Compare two states, each a spec or a directory of the caller."""
        raise NotImplementedError

    def diff_text(self, a: AnyPath, b: AnyPath, path: str = "") -> Iterator[str]:
        """Yield a unified diff, line by line, of one file in two states.

        Args:
            a: The old state: a spec or a directory or file of the caller.
            b: The new state.
            path: The file inside both; empty where `a` and `b` name the files themselves.

        Raises:
            NotFoundError: Neither state has the file.
            RefusedError: It is no file, or too large to compare as text.
        """
        raise NotImplementedError

    def log(self, spec: str, *, limit: int | None = None) -> list[LineageEntry]:
        """Return the lineage of a version or seed, itself first, back to the first ones."""
        raise NotImplementedError

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
        raise NotImplementedError

    def status(self, workspace: AnyPath) -> Status:
        """Say what was added, changed and deleted in a workspace since its checkout."""
        raise NotImplementedError

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
            target: A spec; by default the whole store.
            quick: Structure and sizes only.
            sample: Read only this percentage of the objects.
            budget: Stop reading after this many seconds; the next run goes on from there.
            workers: How many processes read and hash; by default all cores.
            progress: Called with what was done so far.
        """
        raise NotImplementedError

    def verify_directory(
        self,
        directory: AnyPath,
        *,
        against: str,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Prove that a directory, made by any tool, holds exactly what a spec names."""
        raise NotImplementedError

    def stats(self) -> Stats:
        """Count objects and bytes, and what dedup and compression saved."""
        raise NotImplementedError
