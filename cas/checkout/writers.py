"""Writing a stream of runs with all the processes that pay, in order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Self

from cas import fs
from cas.backends import LocalBackend
from cas.checkout.writing import Tally, Writer
from cas.errors import environment_failure
from cas.manifests import DIR
from cas.objects import ObjectStore
from cas.workers import worker_count
from cas.workspace.crew import Crew
from cas.workspace.handles import Handles
from cas.workspace.hashing import open_same, same_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from cas.manifests import Entry
    from cas.workspace.runs import Run

_BATCH_FILES: Final = 128
_BATCH_BYTES: Final = 8 << 20
_WEIGHT_BYTES: Final = 1 << 16

_NO_STAT: Final = (0, 0, 0, 0, 0)

Written = tuple[bytes, "list[Entry]", list[int]]
"""A folder, entries of it, and five numbers an entry: size, mtime_ns, ctime_ns, device, inode."""


def _weight(files: int, size: int) -> int:
    """Return the weight of writing so many files with so many bytes."""
    return files + size // _WEIGHT_BYTES


def _crew_size(workers: int | None, average: int, *, large: int, sync: bool) -> int:
    """Return how many processes write files of an average size.

    Whoever copies large files and has them written back at the same time keeps a second core busy
    with that, so that more than one for two cores only get in each other's way.
    """
    size = worker_count(workers)
    return max(1, size // 2) if workers is None and sync and average >= large else size


class Writers:
    """Makes directories here and has a crew write what is in them; a context manager.

    Args:
        objects: Where content comes from.
        root: A descriptor of the directory to write below.
        path: Its path.
        mode: One of `cas.checkout.writing.MODES`.
        sync: Whether all will be synced in the end.
        workers: How many processes; by default as many as there are cores.
        expected: How many files and bytes will come, if known.

    Attributes:
        tally: What was written so far.
    """

    def __init__(
        self,
        objects: ObjectStore,
        root: int,
        path: Path,
        mode: str,
        *,
        sync: bool,
        workers: int | None = None,
        expected: tuple[int, int] | None = None,
    ) -> None:
        """Start the workers that are known to pay."""
        self.tally = Tally()
        self._handles = Handles(root)
        self._writer = Writer(objects, root, mode, sync=sync)
        files, total = expected or (0, 0)
        average = total // max(files, 1)
        size = _crew_size(workers, average, large=objects.loose_threshold, sync=sync)
        local = objects.backend.local
        init: list[Any] = []
        if local is not None:
            place = [os.fsencode(local.root), local.shared_gid, objects.loose_threshold]
            init = [*place, *same_as(path, root), mode, sync]
        self._crew = Crew(
            self._write_here,
            "cas.checkout.writers:serve",
            init,
            size=size if init else 1,
            expected=_weight(files, total) if expected else None,
        )

    def write(self, runs: Iterable[Run]) -> Iterator[Written]:
        """Write everything, and yield what was written, in order.

        Raises:
            CasError: As `Writer.write`; what was written stays for the caller to remove.
        """
        for pieces, (stats, counts) in self._crew.map(self._tasks(runs)):
            self.tally.add(Tally(*counts))
            for (folder, entries, below), numbers in zip(pieces, stats, strict=True):
                if below is None:
                    yield folder, entries, numbers
                else:
                    yield folder, [*entries, below], [*numbers, *_NO_STAT]

    def _write_here(self, message: list[Any]) -> list[Any]:
        return _write(self._writer, message)

    def _tasks(self, runs: Iterable[Run]) -> Iterator[tuple[Any, list[Any], int]]:
        """Make directories, and yield batches of what goes into them."""
        pieces: list[Any] = []
        message: list[Any] = []
        files = total = 0
        for folder, run in runs:
            below = run[-1] if run[-1][1] == DIR else None
            if below is not None:
                self._make_directory(folder, below[0])
                run = run[:-1]
            size = sum([entry[2] for entry in run])
            start = 0
            if files + len(run) > _BATCH_FILES or total + size > _BATCH_BYTES:
                for at, entry in enumerate(run, 1):
                    files += 1
                    total += entry[2]
                    if files >= _BATCH_FILES or total >= _BATCH_BYTES:
                        pieces.append((folder, run[start:at], None))
                        message.append((folder, run[start:at]))
                        yield pieces, message, _weight(files, total)
                        pieces, message, files, total, start = [], [], 0, 0, at
            else:
                files += len(run)
                total += size
            if start < len(run) or below is not None:
                pieces.append((folder, run[start:], below))
                message.append((folder, run[start:]))
        if pieces:
            yield pieces, message, _weight(files, total)

    def _make_directory(self, folder: bytes, name: bytes) -> None:
        try:
            fs.mkdir(name, dir_fd=self._handles.get(folder))
        except OSError as error:
            path = os.fsdecode(folder + b"/" + name if folder else name)
            raise environment_failure(error, f"making the directory {path!r}") from error

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the workers and close the directories."""
        self._crew.__exit__(kind, error, traceback)
        self._writer.__exit__()
        self._handles.close()


def _write(writer: Writer, message: list[Any]) -> list[Any]:
    stats = writer.write(message)
    tally = writer.tally.take()
    return [stats, [tally.files, tally.bytes, tally.cloned, tally.linked]]


def serve(init: list[Any]) -> Callable[[list[Any]], list[Any]]:
    """Return what writes batches in a worker process.

    Args:
        init: The store's path as bytes, its group, its threshold for loose objects, what
            `open_same` takes, the mode, and whether all will be synced.
    """
    store, group, threshold, path, device, inode, mode, sync = init
    backend = LocalBackend(os.fsdecode(store), shared_gid=group)
    objects = ObjectStore(backend, loose_threshold=threshold)
    writer = Writer(objects, open_same(path, device, inode), mode, sync=sync)
    return lambda message: _write(writer, message)
