"""A consistent copy of a SQLite database that others may be writing to.

A database in WAL mode is two files: copying the main one alone loses every row that was not
checkpointed yet, often all of them. Only SQLite knows how to read the pair, so the copy is made by
its own backup, and the source is never opened for writing:

- somebody has it open (a ``-shm`` file exists): backup over a read-only connection, which holds one
  snapshot while writers go on;
- nobody has it open and nothing is pending: backup of the main file as an immutable one, which,
  unlike a read-only connection, leaves no ``-wal`` and ``-shm`` behind in the source's folder;
- a crash left a ``-wal`` or a hot journal: the files are copied under unchanged stats and SQLite
  recovers the copy, since it could recover the original only by writing to it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from cas.errors import (
    BusyError,
    CasError,
    DiskFullError,
    EnvironmentFailure,
    NotFoundError,
    RefusedError,
    SourceChangedError,
    environment_failure,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAL = b"-wal"
SHM = b"-shm"
JOURNAL = b"-journal"

_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_PAGES_A_STEP = 2048
_ATTEMPTS = 5

T = TypeVar("T")

StatKey = tuple[int, int, int, int, int]


def is_hot_journal(head: bytes) -> bool:
    """Tell whether a ``-journal`` file beginning with ``head`` (8 bytes) holds a transaction."""
    return head.startswith(_JOURNAL_MAGIC)


def copy_live(
    src: str | bytes | os.PathLike[str],
    dst: str | bytes | os.PathLike[str],
    *,
    timeout: float = 30.0,
) -> None:
    """Copy the committed content of the database ``src`` to the new file ``dst``.

    The copy is one consistent state that includes every transaction committed before the call, has
    no side files, and keeps the journal mode that the source's header names. It is not synced. A
    failure leaves no ``dst``.

    Args:
        src: The database; opened read-only, never created, no file added beside it.
        dst: The file to make; must not exist.
        timeout: Seconds to wait for a writer that locks readers out.

    Raises:
        NotFoundError: ``src`` does not exist.
        RefusedError: ``src`` is no SQLite database, or a damaged one; ``dst`` exists.
        SourceChangedError: ``src`` kept changing while no lock protected it.
        BusyError: A writer held ``src`` longer than ``timeout``.
        EnvironmentFailure: The files could not be read or written.
    """
    target = os.fsencode(dst)
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except FileExistsError:
        raise RefusedError(f"{os.fsdecode(target)} exists; give a new file name") from None
    except OSError as error:
        raise environment_failure(error, f"create {os.fsdecode(target)}") from error
    try:
        scratch = os.path.dirname(target) or b"."
        read_live(src, lambda uri: _backup(uri, target, timeout), scratch=scratch)
    except BaseException:
        for suffix in (b"", JOURNAL):
            with contextlib.suppress(OSError):
                os.unlink(target + suffix)
        raise


def read_live(
    src: str | bytes | os.PathLike[str],
    use: Callable[[str], T],
    *,
    scratch: str | bytes | os.PathLike[str] | None = None,
) -> T:
    """Return what ``use`` makes of the committed content of the database ``src``.

    Args:
        src: The database; opened read-only, never created, no file added beside it.
        use: Gets a URI to open or attach, and must read within one transaction. It is called again
            if the database turns out to have changed under it, so it must be able to start over.
            Errors of SQLite that it lets out are translated.
        scratch: Where a copy may lie for as long as this takes; by default the system's place.

    Raises:
        NotFoundError: ``src`` does not exist.
        RefusedError: ``src`` is no SQLite database, or a damaged one.
        SourceChangedError: ``src`` kept changing while no lock protected it.
        BusyError: A writer held ``src`` longer than ``use`` waits.
        EnvironmentFailure: The files could not be read or written.
    """
    # SQLite keeps the WAL beside the file that a symlink leads to, not beside the symlink.
    source = os.path.realpath(os.fsencode(src))
    name = os.fsdecode(src)
    _check_source(source, name)
    folder = None if scratch is None else os.fsencode(scratch)
    for _ in range(_ATTEMPTS):
        try:
            if _exists(source + SHM):
                return use(_uri(source, "mode=ro"))
            before = _state(source)
            if before[1] is None and before[2] is None:
                result = use(_uri(source, "mode=ro&immutable=1"))
            elif before[1] is None:
                # A rollback journal: a writer at work (its lock tells readers when to wait) or,
                # if SQLite says that it would have to roll back, what a crash left.
                return use(_uri(source, "mode=ro"))
            else:
                result = _recovered(source, use, folder)
        except sqlite3.OperationalError as error:
            if not _needs_writing(error):
                raise _translated(error, name) from error
            before = _state(source)
            try:
                result = _recovered(source, use, folder)
            except sqlite3.Error as second:
                raise _translated(second, name) from second
        except sqlite3.Error as error:
            raise _translated(error, name) from error
        if _state(source) == before:
            return result
    raise SourceChangedError(
        f"database {name} keeps changing while it is read; stop its writer or try again"
    )


def is_database(src: str | bytes | os.PathLike[str], *, timeout: float = 30.0) -> bool:
    """Say whether a file is a SQLite database, by asking SQLite.

    Looking at its first bytes would do, but for the close: it would drop the locks that a
    connection of this process holds on the file.

    Raises:
        CasError: As `read_live`, of a file that SQLite takes for a database.
    """

    def probe(uri: str) -> bool:
        with _connect(uri, timeout) as reader:
            try:
                reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.DatabaseError as error:
                if _code(error) == sqlite3.SQLITE_NOTADB:
                    return False
                raise
        return True

    return read_live(src, probe)


def _check_source(source: bytes, name: str) -> None:
    # Not opened: closing it again would drop the locks that a connection of this process holds.
    try:
        regular = stat.S_ISREG(os.stat(source).st_mode)
    except FileNotFoundError:
        raise NotFoundError(f"database {name} not found", path=name) from None
    except OSError as error:
        raise environment_failure(error, f"read database {name}") from error
    if not regular:
        raise RefusedError(f"{name} is not a SQLite database: it is not a file", path=name)


def _uri(path: bytes, how: str) -> str:
    return f"file:{quote(os.path.abspath(path))}?{how}"


def _recovered(source: bytes, use: Callable[[str], T], folder: bytes | None) -> T:
    """Use a copy of the database and what is pending beside it, which SQLite may recover."""
    prefix: bytes = b".db-"
    with tempfile.TemporaryDirectory(dir=folder, prefix=prefix) as made:
        scratch = os.path.join(made, b"db")
        for suffix in (b"", WAL, JOURNAL):
            try:
                shutil.copyfile(source + suffix, scratch + suffix)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise environment_failure(error, f"copy {os.fsdecode(source + suffix)}") from error
        return use(_uri(scratch, "mode=rw"))


def _backup(source: str, target: bytes, timeout: float) -> None:
    os.truncate(target, 0)  # what a failed attempt left would decide the page size
    with (
        _connect(source, timeout) as reader,
        _connect(_uri(target, "mode=rw"), timeout) as writer,
    ):
        # The target is thrown away on any failure: its own journal would protect nothing.
        writer.execute("PRAGMA journal_mode=OFF")
        writer.execute("PRAGMA synchronous=OFF")
        # An open read transaction pins one snapshot: the steps can neither mix two states nor
        # start over whenever somebody commits.
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        # A Python callback between the steps is where Ctrl-C gets in.
        reader.backup(writer, pages=_PAGES_A_STEP, progress=lambda *_: None)


@contextlib.contextmanager
def _connect(uri: str, timeout: float) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def _exists(path: bytes) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise environment_failure(error, f"look at {os.fsdecode(path)}") from error
    return True


def _state(source: bytes) -> tuple[StatKey | None, ...]:
    """Stat keys of the database, its WAL and its journal; None where empty or absent."""
    keys: list[StatKey | None] = []
    for suffix in (b"", WAL, JOURNAL):
        try:
            st = os.stat(source + suffix)
        except FileNotFoundError:
            keys.append(None)
            continue
        except OSError as error:
            raise environment_failure(error, f"look at {os.fsdecode(source + suffix)}") from error
        key = (st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)
        keys.append(key if st.st_size or not suffix else None)
    return tuple(keys)


def _needs_writing(error: sqlite3.Error) -> bool:
    """Tell whether SQLite could go on only by writing beside or into the source."""
    return _code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def _translated(error: sqlite3.Error, name: str) -> CasError:
    code = _code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BusyError(f"database {name} is locked by a writer; try again when it is done")
    if code == sqlite3.SQLITE_FULL:
        return DiskFullError(f"the disk is full; cannot read database {name}")
    if code == sqlite3.SQLITE_NOTADB:
        return RefusedError(f"{name} is not a SQLite database")
    if code == sqlite3.SQLITE_CORRUPT:
        return RefusedError(
            f"database {name} is damaged ({error}); repair it with sqlite3 .recover"
        )
    return EnvironmentFailure(f"cannot read database {name}: {error}")
