"""Ingest: what comes in, what is refused by name, and what is left out and said."""

import contextlib
import os
import socket
import sqlite3
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

import cas.ingest.crew
from cas import fs
from cas.backends import LocalBackend, MemoryBackend
from cas.digest import hash_bytes
from cas.errors import (
    EnvironmentFailure,
    NotFoundError,
    RefusedError,
    SourceChangedError,
    UnsupportedError,
)
from cas.ingest import ingest, ingest_blob
from cas.ingest.files import Files
from cas.ingest.listing import Listing
from cas.ingest.task import Task
from cas.ingest.walk import Walk
from cas.manifests import entries, parse_tree, walk
from cas.objects import ObjectStore
from cas.testing import faults
from cas.testing.strategies import materialise
from cas.testing.trees import put_model

LARGE = 1 << 20


class Place:
    """A store beside a source."""

    def __init__(self, tmp_path):
        self.source = tmp_path / "source"
        self.source.mkdir()
        self.root = tmp_path / "store"
        self.objects = ObjectStore(LocalBackend(self.root, create=True))
        self.cache = self.root / "cache" / "stat"

    def take(self, source=None, **options):
        options.setdefault("cache", self.cache)
        with self.objects.writer() as writer:
            self.taken = ingest(self.objects, writer, source or self.source, **options)
            writer.flush()
            self.new_objects = writer.new_objects
        return self.taken.tree

    def paths(self, tree=None):
        tree = tree or self.taken.tree
        return dict(walk(self.objects.read, tree.digest))

    def content(self, path):
        return self.objects.read(self.paths()[path][3])


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    place.objects.close()
    place.objects.backend.close()


def wait_out_the_clock():
    time.sleep(0.03)


# --- what comes in -------------------------------------------------------------------------------


def test_everything_comes_in_as_it_is(place):
    model = {
        b"empty": ("file", b""),
        b"run me": ("exec", b"#!/bin/sh\n"),
        b"-rf": ("file", b"x"),
        b"\xff\xfe": ("file", b"no UTF-8"),
        b"new\nline": ("file", b"x"),
        b"to nowhere": ("symlink", b"gone/\xff"),
        b"to itself": ("symlink", b"."),
        b"to a file": ("symlink", b"empty"),
        b"nothing in it": {},
        b"d": {b"d": {b"deep": ("file", b"y" * 5000)}, b"large": ("file", b"z" * LARGE)},
    }
    materialise(model, place.source)
    tree = place.take()
    assert tree == put_model(place.objects, model)
    assert (tree.files, tree.bytes) == (10, size_of(model))


def size_of(model):
    return sum(size_of(node) if isinstance(node, dict) else len(node[1]) for node in model.values())


def test_an_empty_folder_is_the_empty_tree(place):
    tree = place.take()
    assert (tree.files, tree.bytes) == (0, 0)
    assert list(entries(place.objects.read, tree.digest)) == []


def test_the_source_itself_may_be_a_symlink(place, tmp_path):
    (place.source / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to(place.source)
    assert place.take(tmp_path / "link").digest == place.take().digest


def test_a_single_file_becomes_a_tree_of_one_entry(place, tmp_path):
    (place.source / "run.sh").write_bytes(b"x")
    (place.source / "run.sh").chmod(0o755)
    place.take(place.source / "run.sh")
    assert place.paths() == {b"run.sh": (b"run.sh", "x", 1, hash_bytes(b"x"))}
    (tmp_path / "other.sh").symlink_to(place.source / "run.sh")
    place.take(tmp_path / "other.sh")
    assert list(place.paths()) == [b"other.sh"]


def test_a_single_large_file_is_not_read_again(place, monkeypatch):
    file = place.source / "large"
    file.write_bytes(b"x" * LARGE)
    wait_out_the_clock()
    tree = place.take(file)
    monkeypatch.setattr(Files, "take", None)
    assert place.take(file).digest == tree.digest


def test_a_sparse_file_stays_sparse(place):
    with open(place.source / "sparse", "wb") as file:
        file.truncate(64 << 20)
        file.seek(32 << 20)
        file.write(b"data")
    if os.stat(place.source / "sparse").st_blocks * 512 > 1 << 20:
        pytest.skip("this filesystem keeps no holes")
    place.take()
    path = place.objects.loose_path(place.paths()[b"sparse"][3])
    assert os.stat(path).st_blocks * 512 < 1 << 20


def test_hard_links_are_files_of_equal_content(place):
    (place.source / "a").write_bytes(b"x")
    os.link(place.source / "a", place.source / "b")
    place.take()
    assert place.paths()[b"a"][3] == place.paths()[b"b"][3]


def test_equal_content_is_stored_once_however_it_is_read(place):
    for n in range(1500):
        (place.source / f"{n:04}").write_bytes(b"%d" % (n % 10) * 100)
    place.take(workers=2)
    # 1500 entries are more than one page of a tree holds.
    pages = parse_tree(place.objects.read(place.taken.tree.digest)).children
    assert place.new_objects == 10 + 1 + len(pages)


def test_a_memory_store_takes_the_same_tree(place):
    for n in range(700):
        (place.source / f"{n:04}").write_bytes(b"%d" % n)
    objects = ObjectStore(MemoryBackend())
    with objects.writer() as writer:
        taken = ingest(objects, writer, place.source)
        writer.flush()
    assert taken.tree == place.take(workers=2)


@pytest.mark.parametrize("entries_in_memory", [10, 10**6])
def test_a_large_folder_is_sorted_with_the_disk_to_the_same_tree(
    place, monkeypatch, entries_in_memory
):
    model = {b"%d" % n: ("file", b"%d" % n) for n in range(1500)}
    model |= {b"d%d" % n: {b"x": ("file", b"x")} for n in range(20)}
    model[b".casignore"] = ("file", b"skipped*\n")
    materialise(model | {b"skipped": ("file", b"")}, place.source)
    monkeypatch.setattr("cas.ingest.listing.LISTED", entries_in_memory)
    monkeypatch.setattr("cas.ingest.listing.WINDOW", 64)
    monkeypatch.setattr("cas.ingest.listing.SORT_BYTES", 20_000)
    assert place.take().digest == put_model(place.objects, model).digest
    assert place.take().digest == put_model(place.objects, model).digest


def test_folders_deeper_than_open_files_allow_come_in(place):
    at = os.open(place.source, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 50, dir_fd=at)
        below = os.open("d" * 50, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    tree = place.take()
    assert tree.files == 1
    assert place.take() == tree
    assert max(len(path.split(b"/")) for path in place.paths()) == 301


def test_progress_ends_with_everything_counted(place):
    told = []
    for n in range(700):
        (place.source / f"{n:04}").write_bytes(b"xx")
    place.take(progress=lambda *what: told.append(what))
    assert told[-1][:3] == ("ingest", 700, 1400)
    assert [counts[1] for counts in told] == sorted(counts[1] for counts in told)


def test_a_blob_is_one_file_named_through_a_symlink_or_not(place):
    (place.source / "a").write_bytes(b"small")
    (place.source / "b").write_bytes(b"l" * LARGE)
    (place.source / "c").symlink_to("b")
    with place.objects.writer() as writer:
        assert ingest_blob(writer, place.source / "a") == (hash_bytes(b"small"), 5)
        assert ingest_blob(writer, place.source / "c") == (hash_bytes(b"l" * LARGE), LARGE)
        with pytest.raises(UnsupportedError, match="folder"):
            ingest_blob(writer, place.source)
        with pytest.raises(NotFoundError, match="missing"):
            ingest_blob(writer, place.source / "missing")


# --- what is left out ----------------------------------------------------------------------------


def test_ignored_files_are_left_out_and_the_rules_come_in(place):
    materialise(
        {
            b".casignore": ("file", b"*.log\n!keep.log\nbuild/\n\xff*\n"),
            b"a.log": ("file", b""),
            b"keep.log": ("file", b""),
            b"\xff\xfe": ("file", b""),
            b"build": {b"x": ("file", b"")},
            b"d": {
                b".casignore": ("file", b"!a.log\n/only here\n"),
                b"a.log": ("file", b""),
                b"only here": ("file", b""),
                b"e": {b"only here": ("file", b""), b"build": ("file", b"no folder")},
            },
        },
        place.source,
    )
    place.take()
    assert set(place.paths()) == {
        *(b".casignore", b"keep.log", b"d", b"d/.casignore", b"d/a.log"),
        *(b"d/e", b"d/e/build", b"d/e/only here"),
    }
    place.take(ignore=False)
    assert {b"a.log", b"build/x", b"\xff\xfe", b"d/only here"} <= set(place.paths())


def test_rules_behind_a_symlink_are_not_obeyed_and_that_is_said(place):
    (place.source / ".casignore").symlink_to("rules")
    (place.source / "rules").write_bytes(b"*\n")
    place.take()
    assert set(place.paths()) == {b".casignore", b"rules"}
    assert "not obeyed" in place.taken.notices[0]


def test_a_store_and_a_workspace_memory_inside_are_left_out_and_said(place):
    materialise(
        {
            b"a": ("file", b""),
            b".cas-workspace": {b"state": ("file", b"")},
            b"d": {
                b".cas": {b"store.json": ("file", b""), b"packs": {}, b"log": {}},
                b"no store": {b"store.json": ("file", b""), b"packs": {}},
            },
        },
        place.source,
    )
    place.take()
    assert set(place.paths()) == {
        *(b"a", b"d", b"d/no store", b"d/no store/store.json", b"d/no store/packs")
    }
    assert [notice.partition(" is ")[2] for notice in place.taken.notices] == [
        "the memory of a workspace and was left out",
        "a store and was left out",
    ]


def test_a_store_is_no_source(place):
    materialise({b"store.json": ("file", b""), b"packs": {}, b"log": {}}, place.source)
    with pytest.raises(RefusedError, match="is a store"):
        place.take()


def test_many_notices_are_cut_short(place):
    for n in range(150):
        (place.source / f"{n}" / ".cas-workspace").mkdir(parents=True)
    place.take()
    assert len(place.taken.notices) == 101
    assert place.taken.notices[-1] == "and 50 more of the kind"


# --- what is refused -----------------------------------------------------------------------------


def make_socket(path):
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "what"),
    [(os.mkfifo, "a FIFO"), (make_socket, "a socket")],
)
def test_a_special_file_is_refused_by_name(place, make, what):
    (place.source / "d").mkdir()
    make(place.source / "d" / "special")
    with pytest.raises(UnsupportedError, match=what) as caught:
        place.take()
    assert str(place.source / "d" / "special") in str(caught.value)
    (place.source / ".casignore").write_bytes(b"special\n")
    assert place.take().files == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_refused_by_name(place):
    try:
        os.mknod(place.source / "null", 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("devices cannot be made here")
    with pytest.raises(UnsupportedError, match="a character device"):
        place.take()


def test_a_source_that_does_not_exist_is_not_found(place):
    with pytest.raises(NotFoundError, match="nothing here"):
        place.take(place.source / "nothing here")


def test_a_source_of_another_kind_is_refused(place):
    os.mkfifo(place.source / "fifo")
    with pytest.raises(UnsupportedError, match="fifo"):
        place.take(place.source / "fifo")


@pytest.mark.parametrize("size", [10, LARGE])
def test_an_unreadable_file_is_refused_by_name(place, size, monkeypatch):
    (place.source / "a").write_bytes(b"x")
    (place.source / "secret").write_bytes(b"x" * size)
    deny(monkeypatch, b"secret")
    with pytest.raises(EnvironmentFailure, match=r"ermission denied.*casignore") as caught:
        place.take()
    assert str(place.source / "secret") in str(caught.value)


def deny(monkeypatch, denied):
    """Refuse to open a file, as the system does for who is not root."""
    real = fs.open_read

    def open_read(path, *rest, **options):
        if os.fsencode(path).endswith(denied):
            raise PermissionError(13, os.strerror(13))
        return real(path, *rest, **options)

    monkeypatch.setattr(fs, "open_read", open_read)


def test_a_message_shows_odd_names_on_one_line(place):
    os.mkfifo(os.fsencode(place.source) + b"/new\nline\xff")
    with pytest.raises(UnsupportedError) as caught:
        place.take()
    assert "\n" not in str(caught.value)
    assert "\\n" in str(caught.value)


def test_rules_that_are_too_long_are_refused(place):
    (place.source / ".casignore").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(RefusedError, match="longer than"):
        place.take()


# --- what does not stand still -------------------------------------------------------------------


def on_read(monkeypatch, name, action):
    """Do something each time a file was opened for reading, before it is read."""
    real = fs.open_read

    def open_read(path, *rest, **options):
        fd = real(path, *rest, **options)
        if os.fsencode(path) == name:
            action()
        return fd

    monkeypatch.setattr(fs, "open_read", open_read)


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_file_that_changes_once_is_read_again(place, monkeypatch, size):
    file = place.source / "log"
    file.write_bytes(b"x" * size)
    changes = [b"y" * size]

    def change():
        if changes:
            file.write_bytes(changes.pop())

    on_read(monkeypatch, b"log", change)
    place.take()
    assert place.content(b"log") == b"y" * size


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_file_that_never_stands_still_is_refused_by_name(place, monkeypatch, size):
    file = place.source / "log"
    file.write_bytes(b"x" * size)

    def grow():
        with open(file, "ab") as log:
            log.write(b"more")

    on_read(monkeypatch, b"log", grow)
    with pytest.raises(SourceChangedError, match="keeps changing") as caught:
        place.take()
    assert str(file) in str(caught.value)


def share_blocks(monkeypatch, then=lambda name: None):
    """Have every filesystem clone files, by copying; and do something after each."""

    def clone(source, target):
        os.sendfile(target, source, 0, os.fstat(source).st_size)
        then(os.readlink(f"/proc/self/fd/{source}"))
        return True

    monkeypatch.setattr(fs, "clone", clone)


def held_files(place):
    """Files of the source, and unnamed ones in the store, that are still open."""
    held = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            held.add(os.readlink(f"/proc/self/fd/{fd}"))
    ours = (f"{place.source}/", f"{place.root}/#", f"{place.root}/tmp/")
    return [path for path in held if path.startswith(ours)]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_large_files_whose_blocks_are_shared_come_in_beside_small_ones(place, monkeypatch, workers):
    share_blocks(monkeypatch)
    contents = {f"{n}": bytes([n % 3]) * (LARGE + n % 3) for n in range(7)}
    for n in range(3):
        (place.source / f"sub-{n}").mkdir()
        contents |= {f"sub-{n}/small": b"%d" % n, f"sub-{n}/large": bytes([9]) * LARGE}
    for name, content in contents.items():
        (place.source / name).write_bytes(content)
    place.take(workers=workers)
    assert held_files(place) == []
    for name, content in contents.items():
        assert place.content(name.encode()) == content
    assert len(list(place.objects.loose_objects())) == 4
    assert place.take(workers=workers) == place.take(workers=workers, cache=None)
    assert place.new_objects == 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_large_file_that_changes_after_its_blocks_were_shared_is_read_again(
    place, monkeypatch, count
):
    changed = set()

    def change(name):
        if name not in changed:
            changed.add(name)
            with open(name, "r+b") as file:
                file.write(b"y")

    share_blocks(monkeypatch, change)
    for n in range(count):
        (place.source / f"{n}").write_bytes(bytes([n]) * LARGE)
    place.take(workers=2)
    for n in range(count):
        assert place.content(b"%d" % n) == b"y" + bytes([n]) * (LARGE - 1)
    assert held_files(place) == []
    assert len(list(place.objects.loose_objects())) == count


def test_an_ingest_that_fails_lets_go_of_shared_blocks(place, monkeypatch):
    share_blocks(monkeypatch)
    for n in range(3):
        (place.source / f"{n}").write_bytes(bytes([n]) * LARGE)
    (place.source / "sub").mkdir()
    os.mkfifo(place.source / "sub" / "pipe")
    with pytest.raises(UnsupportedError):
        place.take(workers=8)
    assert held_files(place) == []
    assert list(place.objects.loose_objects()) == []


def test_a_file_that_grows_to_a_large_one_while_it_is_read_comes_in(place, monkeypatch):
    file = place.source / "log"
    file.write_bytes(b"x")
    grown = []

    def grow():
        if not grown:
            grown.append(True)
            file.write_bytes(b"z" * LARGE)

    on_read(monkeypatch, b"log", grow)
    place.take()
    assert place.content(b"log") == b"z" * LARGE
    assert place.objects.loose_path(hash_bytes(b"z" * LARGE)) is not None


def test_a_file_that_is_swapped_for_a_symlink_is_not_followed(place, monkeypatch, tmp_path):
    (tmp_path / "outside").write_bytes(b"secret")
    file = place.source / "victim"
    file.write_bytes(b"secret")
    take = Task._take

    def swap(self, chunk, *rest):
        file.unlink()
        file.symlink_to(tmp_path / "outside")
        take(self, chunk, *rest)

    monkeypatch.setattr(Task, "_take", swap)
    place.take()
    assert place.paths()[b"victim"][1] == "l"


def test_a_folder_that_is_swapped_for_a_symlink_is_not_followed(place, monkeypatch, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_bytes(b"secret")
    (place.source / "d").mkdir()
    enter = Walk._enter

    def swap(self, path, name, rules):
        if path == b"d":
            (place.source / "d").rmdir()
            (place.source / "d").symlink_to(tmp_path / "outside")
        return enter(self, path, name, rules)

    monkeypatch.setattr(Walk, "_enter", swap)
    with pytest.raises(SourceChangedError, match="vanished or was replaced"):
        place.take()


def test_a_folder_that_vanishes_is_refused_by_name(place, monkeypatch):
    (place.source / "d").mkdir()
    enter = Walk._enter

    def vanish(self, path, name, rules):
        if path == b"d":
            (place.source / "d").rmdir()
        return enter(self, path, name, rules)

    monkeypatch.setattr(Walk, "_enter", vanish)
    with pytest.raises(SourceChangedError, match="vanished") as caught:
        place.take()
    assert str(place.source / "d") in str(caught.value)


def test_a_file_that_vanishes_is_refused_by_name(place, monkeypatch):
    (place.source / "a").write_bytes(b"x")
    (place.source / "b").write_bytes(b"x")
    on_read(monkeypatch, b"a", lambda: (place.source / "b").unlink(missing_ok=True))
    with pytest.raises(SourceChangedError, match="vanished") as caught:
        place.take()
    assert str(place.source / "b") in str(caught.value)


def test_a_folder_that_changes_whenever_it_is_listed_is_refused(place, monkeypatch):
    scan = Listing._scan
    names = iter(range(1000))

    def busy(self, fd):
        scan(self, fd)
        (place.source / f"{next(names)}").write_bytes(b"")

    monkeypatch.setattr(Listing, "_scan", busy)
    with pytest.raises(SourceChangedError, match="keeps changing while it is listed"):
        place.take()


def test_writers_at_work_never_make_a_wrong_digest(place):
    files = [place.source / f"{n}" for n in range(20)]
    for file in files:
        file.write_bytes(b"0" * 3000)
    stop = threading.Event()

    def scribble():
        turn = 0
        while not stop.is_set():
            turn += 1
            with open(files[turn % 20], "r+b") as file:
                file.write(b"%d" % (turn % 10) * 3000)
            time.sleep(0.002)

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        for _ in range(5):
            try:
                place.take()
            except SourceChangedError:
                continue
            for path, entry in place.paths().items():
                content = place.objects.read(entry[3])
                assert hash_bytes(content) == entry[3], path
                assert len(content) == entry[2]
                assert len(set(content)) == 1, "half of one state and half of another"
    finally:
        stop.set()
        writer.join()


# --- databases -----------------------------------------------------------------------------------


def rows(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT count(*) FROM t").fetchone()[0]


def live_database(path, mode="wal"):
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA journal_mode={mode}")
    db.execute("CREATE TABLE t (x)")
    db.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(50)])
    return db


def test_a_live_database_is_taken_through_sqlite_and_said(place, tmp_path):
    with closing(live_database(place.source / "harness.db")) as db:
        assert (place.source / "harness.db-wal").stat().st_size
        place.take()
        assert set(place.paths()) == {b"harness.db"}
        assert "harness.db is a live SQLite database" in place.taken.notices[0]
        (tmp_path / "copy").write_bytes(place.content(b"harness.db"))
        assert rows(tmp_path / "copy") == 50
        # Its own stat says nothing of the rows that only the WAL has.
        wait_out_the_clock()
        db.execute("INSERT INTO t VALUES (50)")
        place.take()
    (tmp_path / "copy").write_bytes(place.content(b"harness.db"))
    assert rows(tmp_path / "copy") == 51


def test_a_single_live_database_is_taken_through_sqlite(place, tmp_path):
    with closing(live_database(place.source / "harness.db")):
        place.take(place.source / "harness.db")
    assert len(place.taken.notices) == 1
    (tmp_path / "copy").write_bytes(place.content(b"harness.db"))
    assert rows(tmp_path / "copy") == 50


def test_a_database_at_rest_is_a_file_like_any(place):
    live_database(place.source / "a.db").close()
    place.take()
    assert place.taken.notices == ()
    assert place.content(b"a.db") == (place.source / "a.db").read_bytes()


def test_a_transaction_that_a_crash_cut_off_is_rolled_back_in_the_copy_alone(place, tmp_path):
    script = (
        "import sqlite3, os; db = sqlite3.connect('j.db', isolation_level=None);"
        "db.execute('PRAGMA cache_size=1'); db.execute('CREATE TABLE t (x)');"
        "db.execute('INSERT INTO t VALUES (1)'); db.execute('BEGIN');"
        "db.executemany('INSERT INTO t VALUES (randomblob(500))', [()] * 2000);"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run(["python3", "-c", script], cwd=place.source, check=False)
    before = {file.name: file.read_bytes() for file in place.source.iterdir()}
    assert set(before) == {"j.db", "j.db-journal"}
    place.take()
    assert set(place.paths()) == {b"j.db"}
    (tmp_path / "copy").write_bytes(place.content(b"j.db"))
    assert rows(tmp_path / "copy") == 1
    assert {file.name: file.read_bytes() for file in place.source.iterdir()} == before


def test_files_that_are_only_called_like_side_files_are_files(place):
    model = {
        b"x": ("file", b"no database"),
        b"x-wal": ("file", b"1"),
        b"x-shm": ("file", b"2"),
        b"y-journal": ("file", b"3"),
        b"z": ("file", b""),
        b"z-wal": ("file", b"4"),
        b"-wal": ("file", b"5"),
    }
    materialise(model, place.source)
    assert place.take().digest == put_model(place.objects, model).digest
    assert place.taken.notices == ()


# --- ends ----------------------------------------------------------------------------------------


def test_an_interrupted_ingest_leaves_no_worker_and_nothing_to_see(place, capfd):
    for n in range(3000):
        (place.source / f"{n:04}").write_bytes(b"%d" % n * 200)
    pids = []
    real = cas.ingest.crew.Worker

    class Watched(real):
        def __init__(self, *args):
            super().__init__(*args)
            pids.append(self.pid)

    def interrupt(phase, files, *rest):
        if files > 1500:
            raise KeyboardInterrupt

    cas.ingest.crew.Worker = Watched
    try:
        with pytest.raises(KeyboardInterrupt):
            place.take(workers=3, progress=interrupt)
    finally:
        cas.ingest.crew.Worker = real
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert capfd.readouterr().err == ""
    assert not list(place.root.glob("cache/stat/*"))
    assert place.take(workers=1).files == 3000


def test_a_worker_that_is_killed_is_an_error_that_says_so(place, monkeypatch):
    for n in range(3000):
        (place.source / f"{n:04}").write_bytes(b"%d" % n * 200)
    started = []
    real = cas.ingest.crew.Worker

    def killed(*args):
        started.append(real(*args))
        os.kill(started[0].pid, 9)
        return started[0]

    monkeypatch.setattr(cas.ingest.crew, "Worker", killed)
    with pytest.raises(EnvironmentFailure, match="killed by signal 9"):
        place.take(workers=2)


def test_a_full_disk_in_a_worker_is_an_error_of_the_ingest(place, monkeypatch):
    for n in range(3000):
        (place.source / f"{n:04}").write_bytes(os.urandom(200))
    for at in (1, 5):
        with faults.fail(at, 28, on={"write", "fsync"}), pytest.raises(EnvironmentFailure):
            place.take(workers=1)
    assert place.take(workers=1).files == 3000


def test_a_source_may_be_given_as_text_bytes_or_path(place):
    (place.source / "a").write_bytes(b"x")
    texts = [str(place.source), os.fsencode(place.source), Path(place.source)]
    assert len({place.take(text).digest for text in texts}) == 1
