"""Copying one run into an empty database, with the tables as they were."""

# ruff: noqa: S608 - identifiers cannot be bound as parameters; every one goes through _quoted

from __future__ import annotations

import os
import re
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from cas import fs
from cas.errors import NotFoundError, RefusedError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLES: Final = ("_runs", "predictions")
"""The tables that a run has rows in; each has a column `run_id`."""

_ROWIDS: Final = ("rowid", "_rowid_", "oid")
_UNKNOWN: Final = re.compile(r"no such (function|collation sequence): (.+)", re.DOTALL)
_STEPS: Final = 100_000
_WAIT: Final = 30.0


class _Object(NamedTuple):
    """One row of a database's schema."""

    kind: str
    name: str
    table: str
    sql: str


def copy_run(source: str, target: str, run_id: str) -> None:
    """Make the database `target` of one run of the database that opens as `source`.

    Args:
        source: A URI.
        target: An absolute path, where what an earlier try left is thrown away.
        run_id: The run.

    Raises:
        NotFoundError: There is no such run.
        RefusedError: The source is not a harness's database.
        UnsupportedError: It needs functions or collations that are not SQLite's own.
        sqlite3.Error: Reading or writing failed.
    """
    if os.path.lexists(target):
        fs.unlink(target)
    with closing(_connect(source)) as reader:
        reader.text_factory = str
        layout = {
            name: reader.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("encoding", "page_size", "auto_vacuum")
        }
    with closing(_connect(target)) as connection:
        for name, setting in layout.items():
            connection.execute(f"PRAGMA {name} = '{setting}'")
        # The target is thrown away on any failure: its own journal would protect nothing.
        for pragma in ("journal_mode", "synchronous", "foreign_keys"):
            connection.execute(f"PRAGMA {pragma} = OFF")
        # Rows are taken as they are, also those older than a constraint.
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("ATTACH DATABASE ? AS source", (source,))
        _Copy(connection, run_id).make()


def _connect(database: str) -> sqlite3.Connection:
    # Without the cache: an EXPLAIN that was compiled once would not notice a new trigger.
    connection = sqlite3.connect(
        database, uri=True, isolation_level=None, timeout=_WAIT, cached_statements=0
    )
    # Values never leave SQLite; the texts of its schema are decoded where they are used.
    connection.text_factory = bytes
    # Python gets in between, so that Ctrl-C does.
    connection.set_progress_handler(lambda: None, _STEPS)
    if sys.version_info >= (3, 12):
        # Definitions that SQLite once took, such as DEFAULT "text", are taken.
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DDL, True)
    return connection


class _Copy:
    """A copy that is being made, over a connection with the source attached."""

    def __init__(self, connection: sqlite3.Connection, run_id: str) -> None:
        self._connection = connection
        self._run_id = run_id
        self._strange: str | None = None

    def make(self) -> None:
        """Copy all there is to copy.

        Raises:
            NotFoundError: There is no such run.
            RefusedError: There is no such table.
            UnsupportedError: Something cannot be copied as it was.
        """
        execute = self._connection.execute
        execute("BEGIN")
        objects = self._objects()
        tables = [_find(objects, name) for name in TABLES]
        for table in tables:
            self._copy_table(table)
        kept = {_folded(table.name) for table in tables}
        for item in objects:
            if item.kind == "index" and _folded(item.table) in kept:
                self._create(item)
        for setting in ("user_version", "application_id"):
            value = execute(f"PRAGMA source.{setting}").fetchone()[0]
            execute(f"PRAGMA main.{setting} = {value}")
        execute("COMMIT")
        execute("DETACH DATABASE source")
        self._keep_what_holds([item for item in objects if item.kind in ("view", "trigger")], kept)
        if self._strange is not None:
            raise self._unsupported(f"a row is kept in the order of {self._strange}")

    def _objects(self) -> list[_Object]:
        rows = self._connection.execute(
            "SELECT type, name, tbl_name, sql FROM source.sqlite_master "
            "WHERE sql IS NOT NULL ORDER BY rowid"
        )
        return [_Object(*(text.decode("utf-8", "surrogateescape") for text in row)) for row in rows]

    def _copy_table(self, table: _Object) -> None:
        self._create(table)
        name = _quoted(table.name)
        xinfo = self._connection.execute(f"PRAGMA main.table_xinfo({name})")
        columns = {row[1].decode(): row[6] for row in xinfo}
        run_id = next((column for column in columns if column.lower() == "run_id"), None)
        if run_id is None:
            raise RefusedError(f"table {table.name} has no column run_id: it is of no harness")
        # What is generated is generated again.
        taken = [_quoted(column) for column, hidden in columns.items() if not hidden]
        rowid = self._rowid(name, columns)
        if rowid is not None:
            taken.append(rowid)
        try:
            copied = self._connection.execute(
                f"INSERT INTO main.{name} ({', '.join(taken)}) "
                f"SELECT {', '.join(taken)} FROM source.{name} "
                f"WHERE {_quoted(run_id)} = ? COLLATE BINARY"
                + (f" ORDER BY {rowid}" if rowid is not None else ""),
                (self._run_id,),
            ).rowcount
        except sqlite3.IntegrityError as error:
            raise RefusedError(
                f"a row of run {self._run_id} breaks a constraint of its table: {error}"
            ) from None
        except sqlite3.OperationalError as error:
            raise self._translated(error) from None
        if table.name.lower() == TABLES[0] and not copied:
            raise NotFoundError(f"run {self._run_id} not found", run=self._run_id)
        if self._has("main", "sqlite_sequence"):
            self._copy_sequence(table.name)

    def _rowid(self, table: str, columns: dict[str, int]) -> str | None:
        """Return a name by which the rowid can be had; None where there is none."""
        hidden = {column.lower() for column in columns}
        for name in _ROWIDS:
            if name not in hidden:
                try:
                    self._connection.execute(f"SELECT {name} FROM main.{table} LIMIT 0")
                except sqlite3.OperationalError:
                    return None  # WITHOUT ROWID
                return name
        return None

    def _has(self, schema: str, table: str) -> bool:
        found = self._connection.execute(
            f"SELECT 1 FROM {schema}.sqlite_master WHERE name = ?", (table,)
        )
        return found.fetchone() is not None

    def _copy_sequence(self, table: str) -> None:
        """Let AUTOINCREMENT go on where it was."""
        execute = self._connection.execute
        execute("DELETE FROM main.sqlite_sequence WHERE name = ?", (table,))
        if self._has("source", "sqlite_sequence"):
            execute(
                "INSERT INTO main.sqlite_sequence (name, seq) "
                "SELECT name, seq FROM source.sqlite_sequence WHERE name = ?",
                (table,),
            )

    def _keep_what_holds(self, objects: Sequence[_Object], tables: set[bytes]) -> None:
        """Create the views and triggers that need nothing that is not there.

        One may need another, so this goes on until no more can be kept.
        """
        kept = set(tables)
        pending = list(objects)
        while True:
            left = [item for item in pending if not self._holds(item, kept)]
            if len(left) == len(pending):
                return
            pending = left

    def _holds(self, item: _Object, kept: set[bytes]) -> bool:
        """Create a view or trigger, and take it back if it does not work."""
        if item.kind == "trigger" and _folded(item.table) not in kept:
            return False
        probes = self._probes(item)
        before = [self._failure(probe) for probe in probes]
        try:
            self._create(item)
        except UnsupportedError:
            return False
        if item.kind == "view":
            probes, before = [f"EXPLAIN SELECT * FROM {_quoted(item.name)}"], [None]
        for probe, old in zip(probes, before, strict=True):
            failure = self._failure(probe)
            if failure is not None and failure != old:
                self._connection.execute(f"DROP {item.kind} {_quoted(item.name)}")
                return False
        if item.kind == "view":
            kept.add(_folded(item.name))
        return True

    def _probes(self, item: _Object) -> list[str]:
        """Return statements that between them compile a trigger, whatever fires it."""
        if item.kind == "view":
            return []
        table = _quoted(item.table)
        xinfo = self._connection.execute(f"PRAGMA table_xinfo({table})")
        columns = [_quoted(row[1].decode()) for row in xinfo if not row[6]]
        return [
            f"EXPLAIN INSERT INTO {table} DEFAULT VALUES",
            f"EXPLAIN DELETE FROM {table}",
            f"EXPLAIN UPDATE {table} SET {', '.join(f'{name} = {name}' for name in columns)}",
        ]

    def _failure(self, sql: str) -> str | None:
        """Return why a statement does not compile, or None."""
        try:
            self._execute(sql)
        except sqlite3.Error as error:
            return str(error)
        return None

    def _create(self, item: _Object) -> None:
        if item.sql[:14].upper() == "CREATE VIRTUAL":
            raise self._unsupported(f"table {item.name} is a virtual one")
        try:
            self._execute(item.sql)
        except UnicodeEncodeError:
            raise self._unsupported(f"{item.kind} {item.name!a} is not defined in UTF-8") from None
        except sqlite3.OperationalError as error:
            raise self._translated(error) from None

    def _execute(self, sql: str) -> None:
        """Execute a statement; functions and collations that it needs are only made known.

        Defining or compiling does not call them. Should a call be needed, the copy is refused.
        """
        while True:
            try:
                self._connection.execute(sql).close()
            except sqlite3.OperationalError as error:
                unknown = _UNKNOWN.fullmatch(str(error))
                if unknown is None:
                    raise
                self._make_known(unknown[1], unknown[2])
            else:
                return

    def _make_known(self, kind: str, name: str) -> None:
        def call(*_: object) -> None:
            self._strange = f"function {name}"
            raise NotImplementedError(name)

        def collate(one: str, other: str) -> int:
            self._strange = f"collation {name}"
            return (one > other) - (one < other)

        if kind == "function":
            self._connection.create_function(name, -1, call, deterministic=True)
        else:
            self._connection.create_collation(name, collate)

    def _translated(self, error: sqlite3.OperationalError) -> Exception:
        if self._strange is not None:
            return self._unsupported(f"a value comes from {self._strange}")
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) == sqlite3.SQLITE_ERROR:
            return self._unsupported(str(error))
        return error

    def _unsupported(self, why: str) -> UnsupportedError:
        return UnsupportedError(
            f"run {self._run_id} cannot be copied out of its database: {why}",
            run=self._run_id,
        )


def _find(objects: Sequence[_Object], table: str) -> _Object:
    for item in objects:
        if item.kind == "table" and item.name.lower() == table:
            return item
    raise RefusedError(f"the database has no table {table}: it is of no harness")


def _folded(name: str) -> bytes:
    """Return what is equal for names that SQLite holds for equal: it folds ASCII only."""
    return name.encode("utf-8", "surrogateescape").lower()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
