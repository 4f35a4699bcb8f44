"""The walk over a source: sorted, in bounded memory, never through a symlink.

Folders are reached one name at a time from the root's descriptor, so whoever swaps a folder for a
link meanwhile leads the walk nowhere. The order is that of the stat index: entries by the bytes of
their names, and what is in a folder right after the folder.
"""

from __future__ import annotations

import os
import stat
import time
from bisect import bisect_left, bisect_right
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from cas import fs
from cas.digest import DIGEST_SIZE
from cas.errors import RefusedError, SourceChangedError, UnsupportedError
from cas.ingest.databases import side_files
from cas.ingest.listing import Listing, Restless
from cas.ingest.source import failed, join, shown
from cas.manifests import EXEC, FILE, LINK, MAX_DEPTH
from cas.names import MEMORY
from cas.statindex import FIELDS, MAX_RUN, trusted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.ingest.ignore import Rules
    from cas.ingest.listing import Keep
    from cas.statindex import End, Run, StatIndexReader
    from cas.workspace.handles import Handles

_IGNORE_FILE: Final = b".casignore"
_RULES_BYTES: Final = 1 << 20
# Of a store, and of one that is being made.
_STORE_FILES: Final = (b"store.json", b"store.json.new")
_STORE_FOLDERS: Final = (b"log", b"packs")
_KEY: Final = attrgetter("st_size", "st_mtime_ns", "st_ctime_ns", "st_dev", "st_ino")
"""The `FIELDS` numbers of a stat."""
_MARKS: Final = frozenset((_IGNORE_FILE, *_STORE_FILES, *_STORE_FOLDERS))

_SPECIAL: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


class Enter(NamedTuple):
    """The walk goes into a folder; the root has no name."""

    name: bytes


class Leave(NamedTuple):
    """The walk is done with the folder entered last."""

    path: bytes
    name: bytes
    end: End | None = None
    """What the index says of it as a whole, if nothing in it has changed."""
    number: int = 0
    """Where the index says so, counted from 1."""


class Same(NamedTuple):
    """Neighbouring entries of one folder that are no folders and that are what they were."""

    run: Run
    number: int
    """Where the run is in the index, counted from 1."""


class Chunk:
    """Neighbouring entries of one folder that are no folders, as columns.

    Attributes:
        folder: Path of the folder below the root.
        names: In order, at most `MAX_RUN`.
        kinds: Their type letters, as in a tree.
        sizes: Bytes of content; of a link, of what it holds.
        stats: As in `cas.statindex.Run`.
        digests: Of the contents; None until known.
        at_ns: As in `cas.statindex.Run`.
        databases: Indexes of databases that are taken through SQLite.
        vouched: For each entry, its digest if it is the index's, or nothing.
        waiting: How many digests are on their way.
    """

    __slots__ = (
        "at_ns",
        "databases",
        "digests",
        "folder",
        "kinds",
        "names",
        "sizes",
        "stats",
        "vouched",
        "waiting",
    )

    def __init__(
        self,
        folder: bytes,
        names: list[bytes],
        kinds: list[str],
        stats: list[int],
        digests: list[bytes | None],
        at_ns: int,
    ) -> None:
        """Take sizes from the stats."""
        self.folder = folder
        self.names = names
        self.kinds = kinds
        self.sizes = stats[::FIELDS]
        self.stats = stats
        self.digests = digests
        self.at_ns = at_ns
        self.databases: list[int] = []
        self.vouched: list[bytes] = []
        self.waiting = 0


Event = Enter | Leave | Same | Chunk


class _Frame:
    """A folder that the walk is in."""

    __slots__ = (
        "at",
        "clean",
        "covered",
        "files",
        "folders",
        "live",
        "name",
        "old",
        "passed",
        "path",
        "rules",
        "side_files",
        "windows",
    )

    def __init__(self, path: bytes, name: bytes, rules: Rules | None) -> None:
        self.path = path
        self.name = name
        self.rules = rules
        self.windows: Iterator[tuple[list[bytes], list[bytes]]] = iter(())
        self.files: list[bytes] = []
        self.folders: list[bytes] = []
        self.at = 0  # where in files the walk is
        self.clean = True  # so far everything is as the index has it
        self.passed = 0  # what the walk and the index did not agree on before this folder
        self.covered = b""  # up to this name, old has what the index knows
        self.live: set[bytes] = set()
        self.side_files: set[bytes] = set()  # what belongs to a database and is not content
        self.old: dict[bytes, tuple[list[int], bytes]] = {}  # trusted stats and their digests


class Walk:
    """One walk.

    Args:
        handles: The folders below the root.
        where: The source as messages name it.
        index: What is known from last time.
        ignore: Honour `.casignore` files.
        leave_out: Names in the root folder that are no content.

    Attributes:
        notices: What was left out, or taken in a special way.
    """

    def __init__(
        self,
        handles: Handles,
        where: bytes,
        *,
        index: StatIndexReader | None,
        ignore: bool,
        leave_out: frozenset[bytes] = frozenset(),
    ) -> None:
        """Look at nothing yet."""
        self._handles = handles
        self._where = where
        self._index = index
        self._ignore = ignore
        self._leave_out = leave_out
        self.notices: list[str] = []

    def events(self) -> Iterator[Event]:
        """Walk.

        Raises:
            RefusedError: The source is a store, or holds what a tree cannot.
            SourceChangedError: Something vanished or kept changing.
            EnvironmentFailure: Something could not be read.
        """
        root = self._enter(b"", b"", None)
        if root is None:
            raise RefusedError(f"{shown(self._where, b'')} is a store; name a folder of files")
        stack = [root]
        yield Enter(b"")
        while stack:
            frame = stack[-1]
            if frame.folders:
                name = frame.folders.pop()
                cut = bisect_left(frame.files, name, frame.at)
                yield from self._chunks(frame, cut)
                below = self._enter(join(frame.path, name), name, frame.rules)
                if below is not None:
                    if len(stack) >= MAX_DEPTH:
                        raise RefusedError(
                            f"{shown(self._where, below.path)} lies more than {MAX_DEPTH} "
                            "folders deep"
                        )
                    stack.append(below)
                    yield Enter(name)
                continue
            yield from self._chunks(frame, len(frame.files))
            window = next(frame.windows, None)
            if window is None:
                stack.pop()
                leave = self._leave(frame)
                if stack and leave.end is None:
                    stack[-1].clean = False
                yield leave
            else:
                frame.files, frame.folders = window
                frame.at = 0

    def _leave(self, frame: _Frame) -> Leave:
        index = self._index
        if index is not None:
            end = index.end(frame.path)
            if end is not None and frame.clean and index.passed == frame.passed:
                return Leave(frame.path, frame.name, end, index.taken)
        return Leave(frame.path, frame.name)

    def one(self, name: bytes) -> Iterator[Same | Chunk]:
        """Give the one chunk of a source that is a single file of the root folder."""
        frame = _Frame(b"", b"", None)
        frame.files = [name]
        frame.live = {name}
        yield from self._chunks(frame, 1)

    # --- listing -------------------------------------------------------------------------------

    def _enter(self, path: bytes, name: bytes, rules: Rules | None) -> _Frame | None:
        """List a folder; None for one that is no content."""
        frame = _Frame(path, name, rules)
        if name == MEMORY:
            self._notice(path, "is the memory of a workspace and was left out")
            return None
        try:
            fd = self._handles.get(path)
            listing = Listing(fd, _MARKS)
            store = any(map(listing.has_file, _STORE_FILES))
            if store and all(map(listing.has_folder, _STORE_FOLDERS)):
                self._notice(path, "is a store and was left out")
                return None
            if self._ignore and listing.has_file(_IGNORE_FILE):
                self._read_rules(frame, fd)
        except OSError as error:
            raise failed(error, self._where, path) from error
        except Restless:
            raise SourceChangedError(
                f"{shown(self._where, path)} keeps changing while it is listed; "
                "add it when it is quiet"
            ) from None
        if self._index is not None:
            frame.passed = self._index.passed
        frame.live = listing.live
        frame.windows = listing.windows(self._keep(frame))
        return frame

    def _notice(self, path: bytes, what: str) -> None:
        self.notices.append(f"{shown(self._where, path)} {what}")

    def _read_rules(self, frame: _Frame, fd: int) -> None:
        if not stat.S_ISREG(os.lstat(_IGNORE_FILE, dir_fd=fd).st_mode):
            self._notice(join(frame.path, _IGNORE_FILE), "is no regular file and was not obeyed")
            return
        file = fs.open_read(_IGNORE_FILE, fd)
        try:
            text = fs.pread(file, _RULES_BYTES + 1, 0)
        finally:
            os.close(file)
        if len(text) > _RULES_BYTES:
            raise RefusedError(
                f"{shown(self._where, join(frame.path, _IGNORE_FILE))} is longer than "
                f"{_RULES_BYTES} bytes; shorten it or add with --no-ignore"
            )
        from cas.ingest.ignore import Rules  # late: start-up time, and few folders have any

        frame.rules = Rules(frame.rules, frame.path, text)

    def _keep(self, frame: _Frame) -> Keep | None:
        rules, path = frame.rules, frame.path
        out = frozenset() if path else self._leave_out
        if rules is None:
            return (lambda name, _: name not in out) if out else None
        return lambda name, is_folder: (
            name not in out and not rules.ignores(join(path, name), name, is_folder=is_folder)
        )

    # --- looking -------------------------------------------------------------------------------

    def _chunks(self, frame: _Frame, stop: int) -> Iterator[Same | Chunk]:
        """Look at the next files of a folder, in step with the runs of the index."""
        files = frame.files
        while frame.at < stop:
            start = frame.at
            if files[start] <= frame.covered:
                end = bisect_right(files, frame.covered, start, stop)
            elif self._index and (run := self._index.next_run(frame.path, files[stop - 1])):
                end = bisect_right(files, run.names[-1], start, stop)
                if files[start:end] == run.names:
                    frame.at = end
                    yield self._look(frame, run.names, run)
                    continue
                self._remember(frame, run)
                if end == start:  # nothing of the run is there any more
                    continue
            else:
                end = stop
            frame.at = min(end, start + MAX_RUN)
            yield self._look(frame, files[start : frame.at], None)

    def _remember(self, frame: _Frame, run: Run) -> None:
        """Keep what a run that does not fit knows, for the entries that are to come."""
        frame.clean = False
        frame.covered = run.names[-1]
        frame.old.clear()
        stats, digests = run.stats, run.digests
        for i, name in enumerate(run.names):
            known = stats[FIELDS * i : FIELDS * (i + 1)]
            if trusted(known[1], known[2], run.at_ns):
                frame.old[name] = known, digests[DIGEST_SIZE * i : DIGEST_SIZE * (i + 1)]

    def _look(self, frame: _Frame, names: list[bytes], run: Run | None) -> Same | Chunk:
        """Take the stats of some files, and what the index knows of them."""
        path = frame.path
        name = b""
        try:
            fd = self._handles.get(path)
            databases: set[bytes] = set()
            if frame.live:
                names, databases = self._databases(frame, fd, names)
            at_ns = time.time_ns()
            look = os.stat
            # `name` is what the error, if there is one, is about.
            looked = [look(name := each, dir_fd=fd, follow_symlinks=False) for each in names]
        except OSError as error:
            raise failed(error, self._where, join(path, name)) from error
        stats = [*chain.from_iterable(map(_KEY, looked))]
        if run is not None and not databases:
            if stats == run.stats and run.settled():
                return Same(run, self._index.taken if self._index else 0)
            self._remember(frame, run)
        frame.clean = False  # also where the index knows nothing
        modes = [st.st_mode for st in looked]
        return self._new_chunk(frame, names, modes, stats, at_ns, databases)

    def _new_chunk(
        self,
        frame: _Frame,
        names: list[bytes],
        modes: list[int],
        stats: list[int],
        at_ns: int,
        databases: set[bytes],
    ) -> Chunk:
        """Tell kinds from modes, and digests from what the index knew."""
        kinds: list[str] = []
        for i, mode in enumerate(modes):
            if stat.S_ISREG(mode):
                kinds.append(EXEC if mode & stat.S_IXUSR else FILE)
            elif stat.S_ISLNK(mode):
                kinds.append(LINK)
            else:
                self._refuse(mode, join(frame.path, names[i]))
        digests: list[bytes | None] = [None] * len(names)
        old = frame.old
        if old:
            for i, name in enumerate(names):
                known = old.pop(name, None)
                if known is not None and known[0] == stats[FIELDS * i : FIELDS * (i + 1)]:
                    digests[i] = known[1]
        chunk = Chunk(frame.path, names, kinds, stats, digests, at_ns)
        for i, name in enumerate(names) if databases else ():
            if name in databases:
                chunk.databases.append(i)
                digests[i] = None
        chunk.vouched = [digest or b"" for digest in digests]
        return chunk

    def _refuse(self, mode: int, path: bytes) -> NoReturn:
        name = shown(self._where, path)
        if stat.S_ISDIR(mode):
            raise SourceChangedError(
                f"{name} was replaced by a folder while it was listed; add it when it is quiet",
                path=name,
            )
        what = _SPECIAL.get(stat.S_IFMT(mode), "of a kind that is no file")
        raise UnsupportedError(
            f"{name} is {what}, which cannot be stored; remove it or list it in .casignore",
            path=name,
        )

    # --- databases -----------------------------------------------------------------------------

    def _databases(
        self, frame: _Frame, fd: int, names: list[bytes]
    ) -> tuple[list[bytes], set[bytes]]:
        """Find live databases; return the names without their side files, and the databases."""
        databases: set[bytes] = set()
        for name in names:
            if name in frame.live and name not in frame.side_files:
                path = os.path.join(self._where, join(frame.path, name))
                sides = side_files(fd, path, name)
                if sides:
                    databases.add(name)
                    frame.side_files.update(sides)
                    self._notice(
                        join(frame.path, name),
                        "is a live SQLite database: taken through SQLite, with all that was "
                        "committed, in place of its -wal, -shm and -journal files",
                    )
        return [name for name in names if name not in frame.side_files], databases
