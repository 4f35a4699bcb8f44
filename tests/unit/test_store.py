"""Stores: made whole or not at all, opened, discovered, read."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest

import cas
from cas.catalogue.identity import FILE, FOUNDING
from cas.digest import hash_bytes
from cas.testing import faults
from cas.testing.stores import read_state
from cas.testing.strategies import materialise, read_back

SET = {b"a": ("file", b"1"), b"d": {b"x": ("exec", b"2"), b"l": ("symlink", b"../a")}, b"e": {}}


@pytest.fixture
def folder(tmp_path):
    materialise(SET, tmp_path / "set")
    return tmp_path / "set"


def test_init_makes_a_directory_a_store_that_opens(tmp_path):
    with cas.Store.init(tmp_path / "deep/er/store") as made:
        assert made.versions.list() == []
    with cas.Store.open(tmp_path / "deep/er/store") as store:
        assert store.id == made.id
        assert store.root == tmp_path / "deep/er/store"


def test_init_takes_in_first_versions_in_the_same_record(tmp_path, folder):
    with cas.Store.init(tmp_path / "store", skills=folder, prompts=folder, videos=folder) as store:
        assert [v.spec for v in store.versions.list()] == ["prompts@v1", "skills@v1", "videos@v1"]
        assert read_state(store, "videos@v1") == SET
        assert store._context.refs.refresh() == 1


def test_init_with_a_missing_source_leaves_nothing(tmp_path, folder):
    with pytest.raises(cas.NotFoundError, match="the prompts to begin with"):
        cas.Store.init(tmp_path / "new/store", skills=folder, prompts=tmp_path / "nowhere")
    assert not (tmp_path / "new").exists()


def test_init_that_fails_inside_leaves_nothing(tmp_path, folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(cas.RefusedError, match="pipe"):
        cas.Store.init(tmp_path / "new/store", skills=folder)
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(cas.RefusedError, match="pipe"):
        cas.Store.init(tmp_path / "empty", skills=folder)
    assert os.listdir(tmp_path / "empty") == []


def test_init_refuses_what_is_there_and_touches_nothing(tmp_path, folder):
    cas.Store.init(tmp_path / "store").close()
    with pytest.raises(cas.ConflictError, match="is a store already"):
        cas.Store.init(tmp_path / "store")
    with pytest.raises(cas.ConflictError, match="is not empty"):
        cas.Store.init(folder)
    with pytest.raises(cas.ConflictError, match="is a file"):
        cas.Store.init(folder / "a")
    assert read_back(folder) == SET


def test_init_works_in_an_empty_directory_that_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cas.Store.init(".").close()
    assert (tmp_path / FILE).exists()


# Files that a killed process held open are closed by the system, here by the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_init_that_is_killed_at_any_step_leaves_a_store_or_nothing_in_the_way(tmp_path, folder):
    for number, injection in enumerate(faults.every_crash()):
        root = tmp_path / f"store{number}"
        with injection:
            cas.Store.init(root, skills=folder).close()
        if not (root / FILE).exists():
            with pytest.raises(cas.NotFoundError):
                cas.Store.open(root)
            cas.Store.init(root, skills=folder).close()
        with cas.Store.open(root) as store:
            assert read_state(store, "skills@v1") == SET
        assert not (root / FOUNDING).exists()


def test_two_inits_of_one_directory_make_one_store(tmp_path):
    script = "import cas, sys; cas.Store.init(sys.argv[1]); print('made')"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    results = [racer.communicate() for racer in racers]
    assert sum(out == "made\n" for out, _ in results) == 1
    for out, err in results:
        assert out or "ConflictError" in err or "BusyError" in err, err
    cas.Store.open(tmp_path / "store").close()


def test_a_store_inside_what_init_takes_in_is_not_taken_in(folder):
    with cas.Store.init(folder / ".cas", skills=folder) as store:
        assert read_state(store, "skills@v1") == SET


def test_a_shared_store_is_usable_by_its_group_whatever_the_umask(tmp_path, folder):
    before = os.umask(0o077)
    try:
        with cas.Store.init(tmp_path / "store", shared=True) as store:
            store.versions.add("skills", folder)
    finally:
        os.umask(before)
    for directory, _, files in os.walk(tmp_path / "store"):
        if "cache" in directory:
            continue
        assert os.stat(directory).st_mode & 0o2070 == 0o2070, directory
        for name in files:
            assert os.stat(os.path.join(directory, name)).st_mode & stat.S_IRGRP, name
    with pytest.raises(cas.RefusedError, match="there is no group"):
        cas.Store.init(tmp_path / "other", shared="no such group")


def test_open_finds_a_store_in_dot_cas(tmp_path):
    made = cas.Store.init(tmp_path / ".cas")
    made.close()
    with cas.Store.open(tmp_path) as store:
        assert store.id == made.id


def test_discover_looks_upward_for_a_store_a_folder_with_one_or_a_workspace(tmp_path, folder):
    with cas.Store.init(tmp_path / "project/.cas") as store:
        store.versions.add("skills", folder)
        store.checkout("skills@v1", tmp_path / "elsewhere/work")
        (tmp_path / "project/a/b").mkdir(parents=True)
        for start in ("project", "project/.cas/packs", "project/a/b", "elsewhere/work/d"):
            with cas.Store.discover(tmp_path / start) as found:
                assert found.id == store.id
    with pytest.raises(cas.NotFoundError, match="no store at or above"):
        cas.Store.discover(tmp_path / "elsewhere")


def test_a_workspace_whose_store_moved_says_so(tmp_path, folder):
    with cas.Store.init(tmp_path / "store") as store:
        store.versions.add("skills", folder)
        store.checkout("skills@v1", tmp_path / "work")
    (tmp_path / "store").rename(tmp_path / "moved")
    with pytest.raises(cas.NotFoundError, match="which is not there"):
        cas.Store.discover(tmp_path / "work")
    cas.Store.init(tmp_path / "store").close()
    with pytest.raises(cas.NotFoundError, match="another one is there now"):
        cas.Store.discover(tmp_path / "work")


def rewrite(root, change):
    line = json.loads((root / FILE).read_bytes().splitlines()[0])
    text = json.dumps(line | change).encode()
    (root / FILE).unlink()
    (root / FILE).write_bytes(text + b"\nblake3:" + hash_bytes(text).hex().encode() + b"\n")


def test_a_newer_format_is_refused_and_a_damaged_file_is_said(tmp_path):
    root = tmp_path / "store"
    cas.Store.init(root).close()
    good = (root / FILE).read_bytes()
    rewrite(root, {"format": 2})
    with pytest.raises(cas.NewerFormatError, match="format 2 is newer than the 1 known here"):
        cas.Store.open(root)
    for bad in (good[:-1], good.replace(b"blake3", b"blake2"), b"", b"{}\n", good + b"x"):
        (root / FILE).unlink()
        (root / FILE).write_bytes(bad)
        with pytest.raises(cas.FormatError, match="is damaged"):
            cas.Store.open(root)
    (root / FILE).write_bytes(good)
    for change in ({"format": "1"}, {"id": "x"}, {"shared": 1}, {"format": 0}):
        rewrite(root, change)
        with pytest.raises(cas.FormatError):
            cas.Store.open(root)


def test_open_opens_a_store_on_the_class_and_a_file_on_a_store(tmp_path, folder):
    with cas.Store.init(tmp_path / "store", skills=folder) as store:
        with store.open("skills@v1:d/x") as file:
            assert file.read() == b"2"
        with pytest.raises(cas.RefusedError, match="is a directory"):
            store.open("skills@v1:d")
        with pytest.raises(cas.NotFoundError, match=r"in skills@v1: 'd/y' not found"):
            store.open("skills@v1:d/y")


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, None, slice(0, None)), (3, None, slice(3, None)), (3, 10, slice(3, 10)),
     (0, 10**9, slice(0, None)), (9, 3, slice(0, 0)), (10**9, None, slice(0, 0))],
)  # fmt: skip
@pytest.mark.parametrize("size", [100, 3 << 20])
def test_read_range_gives_just_those_bytes(tmp_path, size, start, end, expected):
    content = os.urandom(size)
    materialise({b"f": ("file", content)}, tmp_path / "set")
    with cas.Store.init(tmp_path / "store", skills=tmp_path / "set") as store:
        assert b"".join(store.read_range("skills@v1:f", start, end)) == content[expected]


def test_list_dir_gives_one_level_or_all(tmp_path, folder):
    with cas.Store.init(tmp_path / "store", skills=folder) as store:
        assert [(e.path, e.type, e.size) for e in store.list_dir("skills@v1")] == [
            (b"a", "file", 1),
            (b"d", "dir", 5),
            (b"e", "dir", 0),
        ]
        deep = [e.path for e in store.list_dir("skills@v1:d", recursive=True)]
        assert deep == [b"l", b"x"]
        assert [e.path for e in store.list_dir("skills@v1:d/x")] == [b"x"]
        assert [e.to_json()["path"] for e in store.walk("skills@v1")][:2] == ["a", "d"]


def test_ingest_gives_a_tree_without_a_name(tmp_path, folder):
    with cas.Store.init(tmp_path / "store") as store:
        tree = store.ingest(folder)
        assert read_state(store, str(tree)) == SET
        assert store.versions.add("skills", str(tree)).tree == tree


def test_a_path_that_is_no_utf8_has_its_bytes_beside_it_in_json(tmp_path):
    materialise({b"\xff": ("file", b"1")}, tmp_path / "set")
    with cas.Store.init(tmp_path / "store", skills=tmp_path / "set") as store:
        shown = next(store.walk("skills@v1")).to_json()
        assert (shown["path"], shown["path_bytes"]) == ("\udcff", "/w==")


def test_the_system_s_refusals_name_what_was_being_done(tmp_path, folder):
    with cas.Store.init(tmp_path / "store") as store:
        with (
            faults.fail(1, 28, on={"fsync"}),
            pytest.raises(cas.DiskFullError, match=r"No space left"),
        ):
            store.versions.add("skills", folder)
        assert store.versions.list() == []


def test_closing_twice_is_fine(tmp_path):
    store = cas.Store.init(tmp_path / "store")
    store.close()
    store.close()


def test_everything_public_is_loaded_when_first_used():
    code = (
        "import sys, cas; light = set(sys.modules); "
        "assert not {'cas.store', 'cas.codec', 'blake3', 'msgpack'} & light, light; "
        "assert all(getattr(cas, name) is not None for name in cas.__all__); "
        "assert set(cas.__all__) <= set(dir(cas))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError):
        cas.nothing  # noqa: B018
