"""Ingest: a folder or a file becomes a tree in the store."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from cas.digest import Digest
from cas.errors import NotFoundError, UnsupportedError
from cas.ingest.cache import StatCache
from cas.ingest.files import Files
from cas.ingest.source import failed, shown
from cas.ingest.task import StaleIndex, Task
from cas.ingest.walk import Chunk
from cas.statindex import FIELDS
from cas.workers import worker_count
from cas.workspace.handles import Handles

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from cas.manifests import TreeRef
    from cas.objects import ObjectStore, ObjectWriter
    from cas.progress import Progress

__all__ = ["Ingested", "ingest", "ingest_blob"]

_NOTICES: Final = 100


class Ingested(NamedTuple):
    """What came of an ingest.

    Attributes:
        tree: The tree, durable once the writer is flushed.
        notices: Sentences about what was left out or taken in a special way.
    """

    tree: TreeRef
    notices: tuple[str, ...]


def ingest(
    objects: ObjectStore,
    writer: ObjectWriter,
    source: str | bytes | os.PathLike[str],
    *,
    folder: int | None = None,
    leave_out: Collection[bytes] = (),
    cache: Path | None = None,
    ignore: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Ingested:
    """Store a folder, or a single file as a tree of one entry.

    The source itself may be a symlink, which is followed; those inside are kept. What the cache
    knows to be unchanged is not read. The cache learns of this ingest when the writer is flushed.

    Args:
        objects: The store.
        writer: What writes into it, and keeps gc out.
        source: The folder or file.
        folder: A descriptor of the folder, for a caller who has found it already without following
            links; `source` is then its path, and what the path leads to now does not matter.
        leave_out: Names in the source itself, not below it, that are no content.
        cache: Folder of the store's stat indexes; None reads everything.
        ignore: Honour `.casignore` files.
        workers: How many processes read; by default as many as pay.
        progress: Called with what was done so far.

    Raises:
        NotFoundError: There is no such source.
        RefusedError: It is a store, holds what a tree cannot, or would not stand still.
        EnvironmentFailure: Something could not be read or written.
    """
    given = os.path.abspath(os.fsencode(source))
    root, where, name = _open_source(given) if folder is None else (os.dup(folder), given, None)
    known = StatCache(cache, given)
    size = worker_count(workers)
    try:
        while True:
            task = Task(
                objects, writer, root, where, known, ignore=ignore, leave_out=frozenset(leave_out)
            )
            try:
                if name is None:
                    tree = task.take_folder(size, progress)
                else:
                    tree = task.take_file(name, os.path.basename(given), progress)
                break
            except StaleIndex:
                # Rare, and cheap: what was stored is known now.
                known.begin_again()
    except BaseException:
        known.close()
        raise
    finally:
        os.close(root)
    writer.after_flush(known.save, known.close)
    notices = task.notices
    if len(notices) > _NOTICES:
        notices = [*notices[:_NOTICES], f"and {len(notices) - _NOTICES} more of the kind"]
    return Ingested(tree, tuple(notices))


def ingest_blob(
    writer: ObjectWriter, path: str | bytes | os.PathLike[str], *, threshold: int = 1 << 20
) -> tuple[Digest, int]:
    """Store one file, which may be named through a symlink, as a blob.

    A live SQLite database is not recognised here; see `cas.sqlite_copy`.

    Args:
        writer: What writes into the store.
        path: The file.
        threshold: Files of at least so many bytes are large.

    Returns:
        Its digest and its size in bytes.

    Raises:
        NotFoundError: There is no such file.
        RefusedError: It is no regular file, or would not stand still.
        EnvironmentFailure: It could not be read, or the store not be written.
    """
    given = os.path.abspath(os.fsencode(path))
    root, where, name = _open_source(given)
    try:
        if name is None:
            raise UnsupportedError(f"{shown(given, b'')} is a folder, not a file")
        with Handles(root) as handles:
            chunk = Chunk(b"", [name], [""], [0] * FIELDS, [None], 0)
            Files(writer, threshold, handles, where).take(chunk, 0)
    finally:
        os.close(root)
    digest = chunk.digests[0]
    assert digest is not None, "take raises or fills it in"
    return Digest(digest), chunk.sizes[0]


def _open_source(given: bytes) -> tuple[int, bytes, bytes | None]:
    """Open a source.

    Returns:
        A descriptor of the folder, its path, and nothing; of a file, all of the folder that it
        really lies in, and its name there.
    """
    try:
        mode = os.stat(given).st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise UnsupportedError(
                f"{shown(given, b'')} is neither a folder nor a regular file; name one that is"
            )
        folder, name = (
            (given, None) if stat.S_ISDIR(mode) else os.path.split(os.path.realpath(given))
        )
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), folder, name
    except FileNotFoundError:
        raise NotFoundError(f"{shown(given, b'')} not found", path=os.fsdecode(given)) from None
    except OSError as error:
        raise failed(error, given, b"") from error
