"""Proving a directory, whoever copied it: every file is read and hashed, nothing may be extra."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cas import fs
from cas.digest import DIGEST_SIZE, Digest, hash_bytes
from cas.errors import CasError, ConflictError, NotFoundError, environment_failure
from cas.manifests import DIR, EXEC, FILE, LINK
from cas.progress import Meter
from cas.statindex import FIELDS
from cas.workers import worker_count
from cas.workspace import hashing
from cas.workspace.alongside import Alongside, join, kind_of
from cas.workspace.changes import open_index
from cas.workspace.crew import Crew
from cas.workspace.memory import Opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cas.progress import Progress
    from cas.workspace.runs import Run

_BATCH_FILES: Final = 256
_BATCH_BYTES: Final = 16 << 20
_WEIGHT_BYTES: Final = 1 << 16

_WORDS: Final = {DIR: "directory", LINK: "symlink", EXEC: "executable file", FILE: "file"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that is not as it should be.

    Attributes:
        kind: `missing`, `extra`, `changed` or `unreadable`.
        path: Names joined by "/".
        digest: What it should have; None for what should not be there, and for a directory.
        detail: How it differs, in words.
    """

    kind: str
    path: bytes
    digest: Digest | None
    detail: str


@dataclass(frozen=True, slots=True)
class DirectoryCheck:
    """The outcome of proving a directory.

    Attributes:
        files: How many files and links it should hold.
        bytes: Their bytes.
        checked_bytes: How many bytes were read and hashed.
        differences: What is not as it should be, sorted by path.
    """

    files: int
    bytes: int
    checked_bytes: int
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


def verify_directory(
    directory: Path,
    expected: Iterable[Run],
    *,
    exec_bits: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> DirectoryCheck:
    """Compare a directory with what it should hold, reading every file.

    A folder called `.cas-workspace` is a workspace's memory and no content.

    Args:
        directory: The directory; a link to one is followed.
        expected: Runs of entries in walk order, as `cas.workspace.runs.runs` gives those of a tree.
        exec_bits: Whether executable bits have to be right.
        workers: How many processes hash; by default as many as there are cores.
        progress: Called with what was done so far.

    Raises:
        NotFoundError, ConflictError: There is no such directory.
        EnvironmentFailure: A directory in it cannot be read.
        DamagedError: What it should hold cannot be read.
    """
    try:
        root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _no_directory(directory, error) from error
    try:
        return _verify(directory, root, expected, exec_bits, workers, progress)
    except OSError as error:
        if isinstance(error, CasError):
            raise
        raise environment_failure(error, f"verifying {directory}") from error
    finally:
        os.close(root)


def verify_workspace(
    workspace: Path, *, workers: int | None = None, progress: Progress | None = None
) -> DirectoryCheck:
    """Prove a workspace against its own memory, without the store; as `verify_directory`.

    Raises:
        NotFoundError: There is no workspace.
        DamagedError: Its memory is damaged.
    """
    with Opened(workspace) as opened, open_index(opened) as index:
        expected = (
            (
                run.folder,
                [
                    (
                        name,
                        run.types[i],
                        run.stats[FIELDS * i],
                        run.digests[DIGEST_SIZE * i : DIGEST_SIZE * i + DIGEST_SIZE],
                    )
                    for i, name in enumerate(run.names)
                ],
            )
            for run in index
        )
        return verify_directory(
            opened.path,
            expected,
            exec_bits=opened.state.exec_bits,
            workers=workers,
            progress=progress,
        )


def _verify(
    directory: Path,
    root: int,
    expected: Iterable[Run],
    exec_bits: bool,
    workers: int | None,
    progress: Progress | None,
) -> DirectoryCheck:
    meter = Meter(progress, "verify")
    own = hashing.Hasher(root)
    init = hashing.same_as(os.path.abspath(directory), root)
    try:
        with (
            Alongside(root) as walk,
            Crew(own, "cas.workspace.hashing:serve", init, size=worker_count(workers)) as crew,
        ):
            check = _Check(walk, exec_bits=exec_bits)
            for files, answers in crew.map(check.tasks(expected)):
                check.take(files, answers, meter)
            walk.finish()
            meter.finish()
            return check.result()
    finally:
        own.close()


class _Check:
    """Looks at everything's type and mode, hands files out to be hashed, and collects findings."""

    def __init__(self, walk: Alongside, *, exec_bits: bool) -> None:
        self._walk = walk
        self._exec_bits = exec_bits
        self._files = 0
        self._bytes = 0
        self._checked = 0
        self._found: list[Difference] = []
        self._digests: dict[bytes, Digest] = {}

    def tasks(self, expected: Iterable[Run]) -> Iterator[tuple[list[Any], list[Any], int]]:
        """Yield batches of files to hash, as the crew wants them."""
        batch: list[Any] = []
        count = total = 0
        for folder, run in expected:
            files: list[Any] = []
            for entry in self._of_right_type(folder, run):
                files.append((entry[0], entry[2], entry[3]))
                count += 1
                total += entry[2]
                if count >= _BATCH_FILES or total >= _BATCH_BYTES:
                    batch.append((folder, files))
                    yield batch, batch, count + total // _WEIGHT_BYTES
                    batch, files, count, total = [], [], 0, 0
            if files:
                batch.append((folder, files))
        if batch:
            yield batch, batch, count + total // _WEIGHT_BYTES

    def _of_right_type(self, folder: bytes, run: Iterable[Any]) -> Iterator[Any]:
        """Yield the entries of a run that are files on both sides."""
        walk = self._walk
        run = list(run)
        at = walk.enter(folder)
        names = [entry[0] for entry in run]
        for entry in run:
            if entry[1] != DIR:
                self._files += 1
                self._bytes += entry[2]
        if at is None:
            walk.lack_below(folder, names)
            self._remember(folder, run)
            return
        for entry, text in zip(run, walk.expect(names), strict=True):
            name, kind, _, digest = entry
            try:
                st = os.stat(text, dir_fd=at, follow_symlinks=False)
            except FileNotFoundError:
                walk.lack(join(folder, name), is_dir=kind == DIR)
                self._remember(folder, [entry])
                continue
            wrong = self._wrong_type(kind, st.st_mode)
            if wrong:
                self._note("changed", join(folder, name), None if kind == DIR else digest, wrong)
                if kind == DIR:
                    walk.replaced(join(folder, name))
            elif kind == DIR:
                walk.descend(join(folder, name))
            elif kind == LINK:
                target = fs.readlink(text, dir_fd=at)
                self._checked += len(target)
                if hash_bytes(target) != digest:
                    detail = f"the symlink leads to {os.fsdecode(target)!r}"
                    self._note("changed", join(folder, name), digest, detail)
            else:
                yield entry

    def _wrong_type(self, kind: str, mode: int) -> str:
        """Say in words what is wrong with a type or mode; nothing if it is right."""
        there = kind_of(mode)
        if there == kind or (not self._exec_bits and {there, kind} == {EXEC, FILE}):
            return ""
        return f"is a {_WORDS.get(there, 'special file')}, not a {_WORDS[kind]}"

    def take(self, batch: list[Any], answers: list[Any], meter: Meter) -> None:
        """Take what the crew found out about a batch."""
        for (folder, files), said in zip(batch, answers, strict=True):
            for (name, size, digest), answer in zip(files, said, strict=True):
                if answer == hashing.SAME:
                    self._checked += size
                elif answer == hashing.CHANGED:
                    self._checked += size
                    self._note("changed", join(folder, name), digest, "its content differs")
                else:
                    self._note("unreadable", join(folder, name), digest, answer)
            meter.add(len(files), sum(file[1] for file in files))

    def _note(self, kind: str, path: bytes, digest: bytes | None, detail: str) -> None:
        wanted = None if digest is None else Digest(digest)
        self._found.append(Difference(kind, path, wanted, detail))

    def _remember(self, folder: bytes, run: Iterable[Any]) -> None:
        """Keep the digests of what is missing, for the report."""
        for name, kind, _, digest in run:
            if kind != DIR:
                self._digests[join(folder, name)] = Digest(digest)

    def result(self) -> DirectoryCheck:
        """Return the outcome, once all was taken."""
        for path in self._walk.missing:
            self._note("missing", path, self._digests.get(path), "it is not there")
        for path in self._walk.extra:
            self._note("extra", path, None, "it should not be there")
        self._found.sort(key=lambda difference: difference.path)
        return DirectoryCheck(self._files, self._bytes, self._checked, tuple(self._found))


def _no_directory(directory: Path, error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError):
        return NotFoundError(f"directory {directory} not found", path=str(directory))
    if isinstance(error, NotADirectoryError):
        return ConflictError(f"{directory} is no directory", path=str(directory))
    return environment_failure(error, f"opening {directory}")
