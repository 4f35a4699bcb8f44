"""Databases of a harness: snapshots, extracts, and which runs may earn a seed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from cas import fs, harness, sqlite_copy
from cas.errors import (
    BusyError,
    ConflictError,
    EnvironmentFailure,
    NameRefusedError,
    NotFoundError,
    RefusedError,
    SourceChangedError,
    UnsupportedError,
)

RUNS = (
    "CREATE TABLE _runs (run_id TEXT PRIMARY KEY,"
    " status TEXT, skills_version TEXT, prompts_version TEXT)"
)
PREDICTIONS = "CREATE TABLE predictions (id INTEGER PRIMARY KEY, run_id TEXT, answer TEXT)"


COUNT = "SELECT count(*) FROM predictions WHERE run_id = 'a'"


def make(path, *statements, runs=RUNS, predictions=PREDICTIONS):
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in (runs, predictions, *statements):
            if statement:
                db.execute(statement)
    return path


def ask(path, sql, *args):
    uri = f"file:{path}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as db:
        db.text_factory = bytes
        return db.execute(sql, args).fetchall()


def texts(rows):
    return [tuple(v.decode() if isinstance(v, bytes) else v for v in row) for row in rows]


def schema(path):
    return texts(ask(path, "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid"))


def listing(directory):
    return sorted(os.listdir(directory))


@pytest.fixture
def db(tmp_path):
    return make(
        tmp_path / "run.db",
        "INSERT INTO _runs VALUES ('a', 'completed', 'v2', 'v1'), ('b', 'running', 'v2', 'v1')",
        "INSERT INTO predictions VALUES (5, 'a', 'x'), (6, 'b', 'y'), (9, 'a', 'z')",
    )


# --- extract -------------------------------------------------------------------------------------


def test_an_extract_holds_one_run_with_its_rowids(db, tmp_path):
    harness.extract_run(db, tmp_path / "one.db", "a")
    assert texts(ask(tmp_path / "one.db", "SELECT * FROM _runs")) == [
        ("a", "completed", "v2", "v1")
    ]
    assert texts(ask(tmp_path / "one.db", "SELECT * FROM predictions")) == [
        (5, "a", "x"),
        (9, "a", "z"),
    ]
    assert schema(tmp_path / "one.db") == schema(db)
    assert listing(tmp_path) == ["one.db", "run.db"]
    assert ask(tmp_path / "one.db", "PRAGMA integrity_check") == [(b"ok",)]


def test_the_tables_are_as_they_were(tmp_path):
    runs = """CREATE TABLE "_runs" (run_id TEXT NOT NULL COLLATE NOCASE,
        "odd ""name" INT DEFAULT (1+1), made TEXT AS (run_id || '!') VIRTUAL,
        kept TEXT GENERATED ALWAYS AS (upper(run_id)) STORED,
        PRIMARY KEY (run_id)) WITHOUT ROWID, STRICT"""
    predictions = """CREATE TABLE predictions (run_id REFERENCES _runs(run_id) ON DELETE CASCADE,
        n INTEGER PRIMARY KEY AUTOINCREMENT, "ä b" BLOB, c CHECK (c < 10), UNIQUE (run_id, c))"""
    src = make(
        tmp_path / "src.db",
        "INSERT INTO _runs (run_id, \"odd \"\"name\") VALUES ('a', 3), ('B', 4)",
        "INSERT INTO predictions VALUES ('a', 1, x'00ff', 1), ('B', 2, NULL, 1), ('a', 50, 'x', 2)",
        "DELETE FROM predictions WHERE n = 50",
        'CREATE INDEX "in dex" ON predictions ("ä b" DESC) WHERE c > 0',
        "CREATE UNIQUE INDEX expr ON predictions (lower(run_id), n)",
        "PRAGMA user_version = 77",
        "PRAGMA application_id = 12345",
        runs=runs,
        predictions=predictions,
    )
    dst = tmp_path / "dst.db"
    harness.extract_run(src, dst, "a")
    assert schema(dst) == schema(src)
    assert texts(ask(dst, "SELECT * FROM _runs")) == [("a", 3, "a!", "A")]
    assert ask(dst, "SELECT * FROM predictions") == [(b"a", 1, b"\x00\xff", 1)]
    assert ask(dst, "PRAGMA user_version") == [(77,)]
    assert ask(dst, "PRAGMA application_id") == [(12345,)]
    assert texts(ask(dst, "SELECT * FROM sqlite_sequence")) == [("predictions", 50)]
    assert ask(dst, "PRAGMA foreign_key_check") == []


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
@pytest.mark.parametrize("page_size", [512, 65536])
def test_layout_survives(tmp_path, encoding, page_size):
    src = tmp_path / "src.db"
    with closing(sqlite3.connect(src, isolation_level=None)) as db:
        db.execute(f"PRAGMA encoding = '{encoding}'")
        db.execute(f"PRAGMA page_size = {page_size}")
        db.execute("PRAGMA auto_vacuum = FULL")
        db.execute("CREATE TABLE other (x)")
    make(src, "INSERT INTO _runs VALUES ('ä', 'ok', 'v1', 'v1')")
    harness.extract_run(src, tmp_path / "dst.db", "ä")
    for name, value in (
        ("encoding", encoding.encode()),
        ("page_size", page_size),
        ("auto_vacuum", 1),
    ):
        assert ask(tmp_path / "dst.db", f"PRAGMA {name}") == [(value,)]
    assert texts(ask(tmp_path / "dst.db", "SELECT run_id FROM _runs")) == [("ä",)]


def test_text_that_is_not_utf8_keeps_its_bytes(tmp_path):
    src = make(
        tmp_path / "src.db",
        "INSERT INTO _runs VALUES ('a', 'ok', 'v1', 'v1')",
        "INSERT INTO predictions VALUES (1, 'a', CAST(x'ff00fe41' AS TEXT))",
    )
    harness.extract_run(src, tmp_path / "dst.db", "a")
    assert ask(
        tmp_path / "dst.db", "SELECT typeof(answer), CAST(answer AS BLOB) FROM predictions"
    ) == [(b"text", b"\xff\x00\xfeA")]


def test_rowids_that_no_column_shows_are_kept(tmp_path):
    src = make(
        tmp_path / "src.db",
        "INSERT INTO _runs VALUES ('a', 'ok', 'v1', 'v1')",
        "INSERT INTO predictions (oid, run_id, rowid)"
        " VALUES (7, 'a', 'one'), (-3, 'a', 'two'), (8, 'b', 'x')",
        predictions="CREATE TABLE predictions (run_id TEXT, rowid TEXT, _ROWID_ TEXT)",
    )
    harness.extract_run(src, tmp_path / "dst.db", "a")
    assert texts(ask(tmp_path / "dst.db", "SELECT oid, rowid FROM predictions")) == [
        (-3, "two"),
        (7, "one"),
    ]


def test_a_table_that_hides_its_rowid_by_all_three_names_keeps_its_rows(tmp_path):
    src = make(
        tmp_path / "src.db",
        "INSERT INTO _runs VALUES ('a', 'ok', 'v1', 'v1')",
        "INSERT INTO predictions VALUES ('a', 1, 2, 3), ('b', 4, 5, 6)",
        predictions="CREATE TABLE predictions (run_id TEXT, rowid, _rowid_, oid)",
    )
    harness.extract_run(src, tmp_path / "dst.db", "a")
    assert texts(ask(tmp_path / "dst.db", "SELECT * FROM predictions")) == [("a", 1, 2, 3)]


def test_views_and_triggers_stay_as_far_as_they_hold(tmp_path):
    src = make(
        tmp_path / "src.db",
        "CREATE TABLE other (x)",
        "INSERT INTO _runs VALUES ('a', 'ok', 'v1', 'v1')",
        "INSERT INTO predictions VALUES (1, 'a', 'x'), (2, 'b', 'y')",
        "CREATE VIEW uses_later AS SELECT * FROM good",
        "CREATE VIEW good AS SELECT answer FROM predictions JOIN _runs USING (run_id)",
        "CREATE VIEW bad AS SELECT * FROM other",
        "CREATE VIEW hidden_bad AS SELECT (SELECT max(x) FROM other) AS m FROM _runs",
        "CREATE VIEW uses_bad AS SELECT * FROM bad",
        "CREATE TRIGGER counts AFTER INSERT ON predictions BEGIN"
        " UPDATE _runs SET status = 'fired' WHERE run_id = NEW.run_id; END",
        "CREATE TRIGGER logs AFTER INSERT ON predictions BEGIN INSERT INTO other VALUES (1); END",
        "CREATE TRIGGER logs_late AFTER UPDATE OF answer ON predictions WHEN NEW.id > 1 BEGIN"
        " DELETE FROM _runs WHERE run_id IN (SELECT x FROM other); END",
        "CREATE TRIGGER of_other AFTER INSERT ON other BEGIN DELETE FROM predictions; END",
        "CREATE TRIGGER instead INSTEAD OF INSERT ON good BEGIN"
        " INSERT INTO predictions (answer) VALUES (NEW.answer); END",
        "CREATE TRIGGER instead_bad INSTEAD OF DELETE ON good BEGIN DELETE FROM other; END",
        "CREATE TRIGGER through AFTER DELETE ON predictions BEGIN"
        " INSERT INTO good VALUES (OLD.answer); END",
        "CREATE INDEX other_index ON other (x)",
    )
    dst = tmp_path / "dst.db"
    harness.extract_run(src, dst, "a")
    kept = {name for _, name, _, _ in schema(dst) if not name.startswith("sqlite_")}
    assert kept == {"_runs", "predictions", "good", "uses_later", "counts", "instead", "through"}
    assert texts(ask(dst, "SELECT status FROM _runs")) == [("ok",)]
    with closing(sqlite3.connect(dst, isolation_level=None)) as db:
        db.execute("INSERT INTO predictions (run_id) VALUES ('a')")
        assert db.execute("SELECT status FROM _runs").fetchall() == [("fired",)]
        db.execute("DELETE FROM predictions WHERE id = 1")


def functions(db):
    db.create_function("twice", 1, lambda x: 2 * x, deterministic=True)
    db.create_collation("odd", lambda a, b: (a > b) - (a < b))


def test_functions_of_the_application_are_no_hindrance_until_a_row_needs_them(tmp_path):
    src = tmp_path / "src.db"
    with closing(sqlite3.connect(src, isolation_level=None)) as db:
        functions(db)
        db.execute(RUNS)
        db.execute("CREATE TABLE predictions (run_id TEXT COLLATE odd, n CHECK (twice(n) < 9))")
        db.execute(
            "CREATE VIEW doubled AS"
            " SELECT twice(n) AS t FROM predictions ORDER BY run_id COLLATE odd"
        )
        db.execute("INSERT INTO _runs VALUES ('a', 'ok', 'v1', 'v1')")
        db.execute("INSERT INTO predictions VALUES ('a', 2), ('a', 3), ('b', 4)")
    harness.extract_run(src, tmp_path / "dst.db", "a")
    assert schema(tmp_path / "dst.db") == schema(src)
    with closing(sqlite3.connect(tmp_path / "dst.db")) as db:
        functions(db)
        assert db.execute("SELECT t FROM doubled").fetchall() == [(4,), (6,)]
    for index in (
        "CREATE INDEX i ON predictions (twice(n))",
        "CREATE INDEX i ON predictions (run_id)",
    ):
        with closing(sqlite3.connect(src, isolation_level=None)) as db:
            functions(db)
            db.execute(index)
        with pytest.raises(UnsupportedError, match=r"function twice|collation odd"):
            harness.extract_run(src, tmp_path / "no.db", "a")
        assert listing(tmp_path) == ["dst.db", "src.db"]
        with closing(sqlite3.connect(src, isolation_level=None)) as db:
            functions(db)
            db.execute("DROP INDEX i")


def test_a_run_is_matched_exactly(tmp_path):
    src = make(
        tmp_path / "src.db",
        "INSERT INTO _runs VALUES ('Run'), ('run')",
        "INSERT INTO predictions VALUES ('run', 1), ('RUN', 2)",
        runs="CREATE TABLE _runs (RUN_ID TEXT COLLATE NOCASE)",
        predictions="CREATE TABLE Predictions (Run_Id TEXT COLLATE NOCASE, n)",
    )
    harness.extract_run(src, tmp_path / "dst.db", "run")
    assert texts(ask(tmp_path / "dst.db", "SELECT * FROM _runs")) == [("run",)]
    assert ask(tmp_path / "dst.db", "SELECT n FROM predictions") == [(1,)]


@pytest.mark.parametrize(
    ("runs", "predictions", "why"),
    [
        ("", PREDICTIONS, "no table _runs"),
        (RUNS, "", "no table predictions"),
        (RUNS, "CREATE VIEW predictions AS SELECT 1 AS run_id", "no table predictions"),
        ("CREATE TABLE _runs (id TEXT)", PREDICTIONS, "no column run_id"),
        (RUNS, "CREATE TABLE predictions (id)", "no column run_id"),
    ],
)
def test_a_database_of_no_harness_is_refused(tmp_path, runs, predictions, why):
    src = make(tmp_path / "src.db", "SELECT 1", runs=runs, predictions=predictions)
    if "_runs (run_id" in runs:
        with closing(sqlite3.connect(src, isolation_level=None)) as db:
            db.execute("INSERT INTO _runs VALUES ('a', 'ok', 'v1', 'v1')")
    with pytest.raises(RefusedError, match=why):
        harness.extract_run(src, tmp_path / "dst.db", "a")
    assert listing(tmp_path) == ["src.db"]


def test_an_unknown_run_leaves_no_target(db, tmp_path):
    with pytest.raises(NotFoundError, match="run zzz not found"):
        harness.extract_run(db, tmp_path / "dst.db", "zzz")
    with pytest.raises(NameRefusedError):
        harness.extract_run(db, tmp_path / "dst.db", "")
    assert listing(tmp_path) == ["run.db"]


# --- both ways of copying -------------------------------------------------------------------------


def extract(src, dst):
    harness.extract_run(src, dst, "a")


COPIES = pytest.mark.parametrize("copy", [harness.snapshot, extract], ids=["snapshot", "extract"])


@COPIES
def test_a_source_that_does_not_exist_is_not_created(tmp_path, copy):
    with pytest.raises(NotFoundError, match=r"no\.db"):
        copy(tmp_path / "no.db", tmp_path / "dst.db")
    assert listing(tmp_path) == []


@COPIES
@pytest.mark.parametrize("content", [b"hello", b"not a database " * 1000])
def test_what_is_no_database_is_refused(tmp_path, copy, content):
    (tmp_path / "src.db").write_bytes(content)
    with pytest.raises(RefusedError, match="not a SQLite database"):
        copy(tmp_path / "src.db", tmp_path / "dst.db")
    with pytest.raises(RefusedError, match="not a file"):
        copy(tmp_path, tmp_path / "dst.db")
    assert listing(tmp_path) == ["src.db"]


@COPIES
@pytest.mark.parametrize("suffix", ["", "-wal", "-journal", "-shm"])
def test_an_existing_target_is_not_touched(db, tmp_path, copy, suffix):
    there = tmp_path / f"dst.db{suffix}"
    there.write_bytes(b"mine")
    with pytest.raises(ConflictError, match=f"dst.db{suffix}' exists"):
        copy(db, tmp_path / "dst.db")
    assert there.read_bytes() == b"mine"
    assert listing(tmp_path) == sorted(["run.db", there.name])
    with pytest.raises(ConflictError):
        copy(db, db)


@COPIES
def test_a_target_that_appears_meanwhile_is_not_touched(db, tmp_path, copy, monkeypatch):
    link = fs.link

    def late(source, target, *args):
        (tmp_path / "dst.db").write_bytes(b"mine")
        return link(source, target, *args)

    monkeypatch.setattr(fs, "link", late)
    with pytest.raises(ConflictError, match="exists"):
        copy(db, tmp_path / "dst.db")
    assert (tmp_path / "dst.db").read_bytes() == b"mine"
    assert listing(tmp_path) == ["dst.db", "run.db"]


@COPIES
@pytest.mark.parametrize("step", ["fsync", "link", "fsync_dir"])
def test_a_failure_at_any_step_leaves_no_target(db, tmp_path, copy, step, monkeypatch):
    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fs, step, broken)
    with pytest.raises(EnvironmentFailure, match="No space"):
        copy(db, tmp_path / "dst.db")
    assert listing(tmp_path) == ["run.db"]


@COPIES
def test_without_hard_links_the_target_still_appears_only_whole(db, tmp_path, copy, monkeypatch):
    def unsupported(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(fs, "link", unsupported)
    copy(db, tmp_path / "dst.db")
    assert listing(tmp_path) == ["dst.db", "run.db"]
    with pytest.raises(ConflictError):
        copy(db, tmp_path / "dst.db")


@COPIES
@pytest.mark.parametrize("name", ["a?b#c%41.db", "sp ace;'\"&=.db", "ä€.db", b"\xff\xfe.db"])
def test_odd_paths_are_only_paths(db, tmp_path, copy, name):
    src = os.path.join(os.fsencode(tmp_path), os.fsencode(name))
    shutil.copyfile(db, src)
    copy(os.fsdecode(src), os.fsdecode(src + b".copy"))
    assert len(os.listdir(tmp_path)) == 3
    shutil.move(src + b".copy", tmp_path / "plain.db")
    assert ask(tmp_path / "plain.db", "SELECT count(*) FROM _runs")[0][0] in (1, 2)


def wal(path):
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    return db


@COPIES
@pytest.mark.parametrize("link", [False, True], ids=["path", "symlink"])
def test_rows_that_only_the_wal_has_are_copied_while_the_writer_goes_on(db, tmp_path, copy, link):
    src = db
    if link:
        (tmp_path / "elsewhere").mkdir()
        src = tmp_path / "elsewhere" / "link.db"
        src.symlink_to(db)
    with closing(wal(db)) as writer:
        writer.execute("INSERT INTO predictions VALUES (100, 'a', 'only in the wal')")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO predictions VALUES (101, 'a', 'not committed')")
        before = {name: (tmp_path / name).stat().st_mtime_ns for name in ("run.db", "run.db-wal")}
        copy(src, tmp_path / "dst.db")
        after = {name: (tmp_path / name).stat().st_mtime_ns for name in ("run.db", "run.db-wal")}
        writer.execute("COMMIT")
    assert before == after
    assert (tmp_path / "dst.db").exists()
    assert not (tmp_path / "dst.db-wal").exists()
    assert ask(tmp_path / "dst.db", "SELECT max(id) FROM predictions") == [(100,)]


@COPIES
@pytest.mark.parametrize("left", [["", "-wal"], ["", "-wal", "-shm"]], ids=["wal", "wal and shm"])
def test_a_wal_that_a_crash_left_is_copied_and_stays_as_it_is(db, tmp_path, copy, left):
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    with closing(wal(db)) as writer:
        writer.execute("INSERT INTO predictions VALUES (100, 'a', 'only in the wal')")
        for suffix in left:
            shutil.copyfile(f"{db}{suffix}", crashed / f"run.db{suffix}")
    # The -shm is SQLite's scratch space for readers, too.
    before = {f"run.db{suffix}": (crashed / f"run.db{suffix}").read_bytes() for suffix in left[:2]}
    copy(crashed / "run.db", tmp_path / "dst.db")
    assert ask(tmp_path / "dst.db", "SELECT max(id) FROM predictions") == [(100,)]
    assert {name: (crashed / name).read_bytes() for name in before} == before
    assert listing(crashed) == [f"run.db{suffix}" for suffix in sorted(left)]
    assert listing(tmp_path) == ["crashed", "dst.db", "run.db"]


@COPIES
def test_a_transaction_that_a_crash_cut_short_is_rolled_back_in_the_copy(db, tmp_path, copy):
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    with closing(sqlite3.connect(db, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 2")
        writer.execute("BEGIN")
        for n in range(1000, 3000):
            writer.execute("INSERT INTO predictions VALUES (?, 'a', ?)", (n, "x" * 200))
        for suffix in ("", "-journal"):  # as the disk is when the power goes
            shutil.copyfile(f"{db}{suffix}", crashed / f"run.db{suffix}")
        writer.execute("ROLLBACK")
    before = {name: (crashed / name).read_bytes() for name in listing(crashed)}
    assert len(before["run.db"]) > 100_000
    copy(crashed / "run.db", tmp_path / "dst.db")
    assert ask(tmp_path / "dst.db", "SELECT max(id) FROM predictions") == [(9,)]
    assert ask(tmp_path / "dst.db", "PRAGMA integrity_check") == [(b"ok",)]
    assert {name: (crashed / name).read_bytes() for name in listing(crashed)} == before


@COPIES
@pytest.mark.parametrize("changes", [1, 99])
def test_a_source_that_changes_meanwhile_is_read_again(db, tmp_path, copy, monkeypatch, changes):
    state, calls = sqlite_copy._state, []

    def changing(source):
        calls.append(source)
        return (*state(source), len(calls) if len(calls) <= 2 * changes else 0)

    monkeypatch.setattr(sqlite_copy, "_state", changing)
    if changes == 1:
        copy(db, tmp_path / "dst.db")
        assert ask(tmp_path / "dst.db", "SELECT max(id) FROM predictions") == [(9,)]
        assert len(calls) == 4
    else:
        with pytest.raises(SourceChangedError, match="keeps changing"):
            copy(db, tmp_path / "dst.db")
        assert listing(tmp_path) == ["run.db"]


@COPIES
def test_a_database_at_rest_gets_no_side_files(db, tmp_path, copy):
    wal(db).close()
    copy(db, tmp_path / "dst.db")
    assert listing(tmp_path) == ["dst.db", "run.db"]


@COPIES
def test_a_source_in_a_directory_that_cannot_be_written_is_copied(db, tmp_path, copy):
    folder = tmp_path / "folder"
    folder.mkdir()
    wal(db).close()
    db.rename(folder / "run.db")
    folder.chmod(0o555)
    try:
        copy(folder / "run.db", tmp_path / "dst.db")
    finally:
        folder.chmod(0o755)
    assert listing(folder) == ["run.db"]


@COPIES
def test_a_copy_is_one_state_while_a_writer_commits(db, tmp_path, copy):
    stop = threading.Event()

    def write():
        with closing(wal(db)) as writer:
            while not stop.is_set():
                # Two tables change together: a copy that mixes two states shows.
                writer.execute("BEGIN")
                writer.execute("INSERT INTO predictions (run_id) VALUES ('a')")
                writer.execute(f"UPDATE _runs SET status = ({COUNT})")
                writer.execute("COMMIT")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for n in range(10):
            copy(db, tmp_path / f"{n}.db")
    finally:
        stop.set()
        thread.join()
    for n in range(10):
        status, count = ask(
            tmp_path / f"{n}.db",
            f"SELECT status, ({COUNT}) FROM _runs WHERE run_id = 'a'",
        )[0]
        assert status in (b"completed", str(count).encode())


def test_copying_does_not_drop_the_locks_that_this_process_holds(db, tmp_path):
    script = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)\n"
        "try:\n"
        "    db.execute('BEGIN IMMEDIATE')\n"
        "except sqlite3.OperationalError:\n"
        "    sys.exit(7)\n"
    )
    with closing(wal(db)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        harness.snapshot(db, tmp_path / "one.db")
        harness.extract_run(db, tmp_path / "two.db", "a")
        harness.run_row(db, "a")
        assert subprocess.run([sys.executable, "-c", script, db]).returncode == 7
        writer.execute("COMMIT")


def test_a_database_that_is_locked_is_busy(db, tmp_path, monkeypatch):
    monkeypatch.setattr(harness.extract, "_WAIT", 0.1)
    with closing(sqlite3.connect(db, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("DELETE FROM predictions")
        with pytest.raises(BusyError, match="locked"):
            harness.extract_run(db, tmp_path / "dst.db", "a")
    assert listing(tmp_path) == ["run.db"]


# --- runs ----------------------------------------------------------------------------------------


def test_the_row_of_a_run(tmp_path):
    src = make(
        tmp_path / "src.db",
        "INSERT INTO _runs VALUES ('a', 1.5, x'00', NULL, CAST(x'ff' AS TEXT))",
        runs="CREATE TABLE _runs (run_id, n, b, z, t)",
    )
    assert harness.run_row(src, "a") == {
        "run_id": "a",
        "n": 1.5,
        "b": b"\0",
        "z": None,
        "t": "\udcff",
    }
    with pytest.raises(NotFoundError, match="run b not found"):
        harness.run_row(src, "b")


def test_a_run_that_is_there_twice_is_refused(tmp_path):
    src = make(
        tmp_path / "src.db",
        "INSERT INTO _runs VALUES ('a'), ('a')",
        runs="CREATE TABLE _runs (run_id)",
    )
    with pytest.raises(RefusedError, match="more than once"):
        harness.run_row(src, "a")


def test_runs_of_no_harness_are_refused(tmp_path):
    with pytest.raises(RefusedError, match="of no harness"):
        harness.run_row(make(tmp_path / "a.db", runs=""), "a")
    with pytest.raises(RefusedError, match="of no harness"):
        harness.run_row(make(tmp_path / "b.db", runs="CREATE TABLE _runs (id)"), "a")
    with pytest.raises(NotFoundError):
        harness.check_run(tmp_path / "c.db", "a")
    assert listing(tmp_path) == ["a.db", "b.db"]


def run_database(tmp_path, **columns):
    path = tmp_path / "run.db"
    names = ", ".join(columns)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE _runs (run_id, {names})")
        marks = ", ".join("?" * (len(columns) + 1))
        db.execute(f"INSERT INTO _runs VALUES ({marks})", ("a", *columns.values()))
    return path


BOTH = {"skills_version": "v2", "prompts_version": "v1"}


@pytest.mark.parametrize("status", [*sorted(harness.FINISHED), "Completed", "DONE", " ok "])
def test_a_finished_run_is_taken(tmp_path, status):
    path = run_database(tmp_path, status=status, **BOTH)
    assert harness.check_run(path, "a", skills_version="v2") == harness.RunVersions("v2", "v1")


@pytest.mark.parametrize("status", ["running", "failed", "", None, 1, b"done", "not done"])
def test_an_unfinished_run_is_taken_only_by_force(tmp_path, status):
    path = run_database(tmp_path, status=status, finished_at="2026-01-01", **BOTH)
    with pytest.raises(RefusedError, match="run a is not finished: its status is"):
        harness.check_run(path, "a")
    assert harness.check_run(path, "a", force=True).skills == "v2"


@pytest.mark.parametrize("column", harness.END_TIMES)
def test_without_a_status_the_end_time_tells(tmp_path, column):
    path = run_database(tmp_path, **{column: None}, **BOTH)
    with pytest.raises(RefusedError, match=f"not finished: {column} is NULL"):
        harness.check_run(path, "a")
    assert harness.check_run(path, "a", force=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE _runs SET {column} = 5")
    assert harness.check_run(path, "a")


def test_without_status_or_end_time_nothing_says_that_a_run_is_unfinished(tmp_path):
    assert harness.check_run(run_database(tmp_path, **BOTH), "a") == harness.RunVersions("v2", "v1")


@pytest.mark.parametrize("column", sorted(BOTH))
@pytest.mark.parametrize("force", [False, True])
def test_a_run_without_versions_is_refused_even_by_force(tmp_path, column, force):
    path = run_database(tmp_path, STATUS="done", **(BOTH | {column: None}))
    with pytest.raises(RefusedError, match=f"{column} is NULL"):
        harness.check_run(path, "a", force=force)


def test_a_harness_without_version_columns_is_refused(tmp_path):
    with pytest.raises(RefusedError, match="skills_version is NULL or missing"):
        harness.check_run(run_database(tmp_path, status="done"), "a")


@pytest.mark.parametrize(
    ("label", "asked", "same"),
    [
        ("v2", "v2", True),
        ("skills-v2", "v2", True),
        ("skills-v2", "skills-v2", True),
        ("v2", "skills@v2", True),
        ("skills/v2", "skills:v2", True),
        (2, "2", True),
        ("v2", "v3", False),
        ("v22", "v2", False),
        ("skillsv2", "v2", False),
        ("prompts-v2", "v2", False),
        ("V2", "v2", False),
    ],
)
def test_another_skills_version_than_asked_is_refused(tmp_path, label, asked, same):
    path = run_database(tmp_path, status="done", skills_version=label, prompts_version="prompts-v1")
    if "/" in str(label):
        with pytest.raises(NameRefusedError):
            harness.check_run(path, "a", skills_version=asked)
    elif same:
        versions = harness.check_run(path, "a", skills_version=asked)
        assert versions == harness.RunVersions(str(label), "prompts-v1")
    else:
        with pytest.raises(RefusedError, match=f"run a used skills {label}, not {asked}"):
            harness.check_run(path, "a", skills_version=asked, force=True)


@pytest.mark.parametrize("label", ["../x", "", ".", "a\n", b"v2", 2.5, "ä"])
def test_a_label_that_cannot_name_a_folder_is_refused(tmp_path, label):
    path = run_database(tmp_path, status="done", skills_version=label, prompts_version="v1")
    with pytest.raises(RefusedError):
        harness.check_run(path, "a", force=True)


def test_importing_the_package_does_not_import_sqlite3():
    script = "import sys, cas; sys.exit('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
