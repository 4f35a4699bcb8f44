"""Properties of extracting one run from a harness's database, over odd schemas."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass

from hypothesis import assume, given
from hypothesis import strategies as st

from cas import harness

IDENTIFIERS = [
    "plain", "two words", 'quo"te', "it's", "[x]", "`tick`", "ä", "\u2603", "select", "rowid",
    "oid", "_rowid_", "a.b", "a;b", "--", "%s", "?1", "\n", "CamelCase", "1", "'run_id'",
    "main", "source",
]  # fmt: skip
TYPES = [
    "",
    "TEXT",
    "INTEGER",
    "REAL",
    "BLOB",
    "NUMERIC",
    "VARCHAR(9)",
    "odd type",
    "TEXT COLLATE NOCASE",
]
STRICT_TYPES = ["TEXT", "INTEGER", "REAL", "BLOB", "ANY", "INT"]

columns = st.lists(
    st.tuples(st.sampled_from(IDENTIFIERS), st.integers(0, 99)),
    unique_by=lambda c: c[0].lower(),
    max_size=5,
)
values = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.binary(max_size=5),
    st.builds(lambda raw: ("text", raw), st.binary(max_size=5)),  # text of any bytes
)
RUN_IDS = ["a", "A", "b", "20260101_120000", "1", "1.0", "ä"]


@dataclass(frozen=True)
class Table:
    """What one table is made of."""

    columns: list[tuple[str, int]]
    strict: bool
    key: str
    generated: bool
    index: int


tables = st.builds(
    Table,
    columns=columns,
    strict=st.booleans(),
    key=st.sampled_from(["none", "id", "autoincrement", "without rowid", "unique"]),
    generated=st.booleans(),
    index=st.integers(0, 3),
)


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def create(db, name, table):
    """Make a table and its indexes; return the columns that rows are inserted into."""
    kinds = STRICT_TYPES if table.strict else TYPES
    parts = ["run_id TEXT"]
    keys = {
        "id": "id INTEGER PRIMARY KEY",
        "autoincrement": "id INTEGER PRIMARY KEY AUTOINCREMENT",
        "without rowid": "id TEXT",
        "unique": "id TEXT UNIQUE",
    }
    if table.key in keys:
        parts.append(keys[table.key])
    parts += [f"{quoted(column)} {kinds[kind % len(kinds)]}" for column, kind in table.columns]
    if table.generated:
        parts.append("virtual_one TEXT AS (run_id || 'v')")
        parts.append("stored_one TEXT GENERATED ALWAYS AS (upper(run_id)) STORED")
    if table.key == "without rowid":
        parts.append("PRIMARY KEY (run_id, id)")
    options = ["STRICT"] * table.strict + ["WITHOUT ROWID"] * (table.key == "without rowid")
    db.execute(f"CREATE TABLE {name} ({', '.join(parts)}) {', '.join(options)}")
    for n, (column, _) in enumerate(table.columns[: table.index]):
        index = quoted(f"index {n} of {name}")
        where = " WHERE run_id IS NOT NULL" if n else ""
        db.execute(f"CREATE INDEX {index} ON {name} ({quoted(column)} DESC){where}")
    return [column for column, _ in table.columns]


def insert(db, name, table, names, run_id, number, row):
    fields = {"run_id": run_id} | dict(zip(names, row, strict=False))
    if table.key in ("id", "autoincrement"):
        fields["id"] = number
    elif table.key != "none":
        fields["id"] = f"key {number}"
    marks = ["CAST(? AS TEXT)" if isinstance(value, tuple) else "?" for value in fields.values()]
    plain = [value[1] if isinstance(value, tuple) else value for value in fields.values()]
    try:
        db.execute(
            f"INSERT INTO {name} ({', '.join(map(quoted, fields))}) VALUES ({', '.join(marks)})",
            plain,
        )
    except sqlite3.IntegrityError:
        pass  # a value that a STRICT table does not take, or a key that is there


def content(path, name, where="1"):
    """Every row of a table, exactly: types, bytes, and the rowid where one can be had."""
    uri = f"file:{path}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as db:
        names = [row[1] for row in db.execute(f"PRAGMA table_xinfo({name})")]
        taken = [
            item
            for column in map(quoted, names)
            for item in (f"typeof({column})", f"hex({column})", column)
        ]
        db.text_factory = bytes
        for rowid in ("rowid", "oid", "_rowid_"):
            if rowid not in (column.lower() for column in names):
                try:
                    db.execute(f"SELECT {rowid} FROM {name} LIMIT 0")
                except sqlite3.OperationalError:
                    break
                taken.append(rowid)
                break
        return sorted(map(repr, db.execute(f"SELECT {', '.join(taken)} FROM {name} WHERE {where}")))


def schema(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        found = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
        sequence = any(name == "sqlite_sequence" for _, name, _, _ in found)
        return (
            sorted((row for row in found if "other" not in row[2]), key=repr),
            sorted(db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
            if sequence
            else [],
            db.execute("PRAGMA encoding").fetchone(),
            db.execute("PRAGMA integrity_check").fetchone(),
        )


@given(
    runs=tables,
    predictions=tables,
    rows=st.lists(
        st.tuples(st.sampled_from(RUN_IDS), st.lists(values, min_size=5, max_size=5)), max_size=12
    ),
    encoding=st.sampled_from(["UTF-8", "UTF-16le"]),
    trigger=st.booleans(),
    run_id=st.sampled_from(RUN_IDS),
    wal=st.booleans(),
)
def test_an_extract_is_the_source_with_one_run(
    runs, predictions, rows, encoding, trigger, run_id, wal
):
    with tempfile.TemporaryDirectory() as folder:
        src, dst = os.path.join(folder, "src.db"), os.path.join(folder, "dst.db")
        db = sqlite3.connect(src, isolation_level=None)
        db.execute(f"PRAGMA encoding = '{encoding}'")
        if wal:
            db.execute("PRAGMA journal_mode = WAL")
        db.execute("BEGIN")
        db.execute("CREATE TABLE other (x)")
        made = {"_runs": runs, "predictions": predictions}
        for name, table in made.items():
            names = create(db, name, table)
            if name == "_runs":
                for number, one in enumerate(RUN_IDS):
                    insert(db, name, table, names, one, number, [None] * 5)
            for number, (one, row) in enumerate(rows):
                insert(db, name, table, names, one, 1000 + number, row)
        db.execute("INSERT INTO other VALUES (1)")
        if trigger:
            db.execute(
                "CREATE TRIGGER fires AFTER INSERT ON predictions BEGIN DELETE FROM _runs; END"
            )
        db.execute(
            "DELETE FROM predictions WHERE rowid > 1010" if predictions.key == "id" else "SELECT 1"
        )
        db.execute("COMMIT")
        there = db.execute(
            "SELECT count(*) FROM _runs WHERE run_id = ? COLLATE BINARY", (run_id,)
        ).fetchone()[0]
        assume(there)
        if not wal:
            db.close()
        harness.extract_run(src, dst, run_id)
        db.close()
        where = f"run_id = '{run_id}' COLLATE BINARY"
        for name in made:
            assert content(dst, name) == content(src, name, where)
        got, expected = schema(dst), schema(src)
        assert got[0] == expected[0]
        assert got[1:3] == expected[1:3]
        assert got[3] == ("ok",)
        assert sorted(os.listdir(folder)) == ["dst.db", "src.db"]
