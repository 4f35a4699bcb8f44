"""Imports and exports that crash or are refused by the system at any step."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

import cas
from cas.testing import faults
from cas.testing.runs import record_run
from cas.testing.stores import check_names_are_whole
from cas.testing.strategies import materialise, read_back

# Files that a killed process held open are closed by the system, here by the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

META = b'{"created_at": "2026-01-01T00:00:00+00:00"}'
OLD = {
    b"skills": {
        b"v1": {b"a": ("file", b"1"), b"meta.json": ("file", META)},
        b"v3": {
            b"own": ("file", b"{}"),
            b"meta.json": (
                "file",
                META[:-1] + b', "cas": {"moved": {"meta.json": "own"}}}',
            ),
        },
    },
    b"videos": {b"bird": {b"frame": ("file", b"z" * 1_200_000)}},
    b"seeds": {
        b"initial": {
            b"skills": {b"a": ("file", b"1")},
            b"prompts": {},
            b"seed.json": ("file", META[:-1] + b', "baseline_run_id": "r1"}'),
        }
    },
}
NAMES = ["skills@v1", "skills@v3", "videos@v1", "seed:initial"]


@pytest.fixture
def home(tmp_path):
    """An old layout, and an empty store to be copied for every try."""
    materialise(OLD, tmp_path / "old")
    record_run(tmp_path / "old/seeds/initial/baseline.db", "r1")
    cas.Store.init(tmp_path / "store").close()
    return tmp_path


def test_an_import_that_crashes_at_any_step_names_all_or_nothing(home):
    before = read_back(home / "old")
    seen = set()
    for number, injection in enumerate(faults.every_crash()):
        root = home / f"try{number}"
        shutil.copytree(home / "store", root)
        store = cas.Store.open(root)
        with injection:
            store.import_layout(home / "old")
        with cas.Store.open(root) as again:
            found = check_names_are_whole(again)
            assert found in ([], NAMES)
            seen.add(bool(found))
            done = again.import_layout(home / "old")
            assert len(done.present) == len(found)
            assert check_names_are_whole(again) == NAMES
        shutil.rmtree(root)
    assert seen == {False, True}
    assert read_back(home / "old") == before


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_import_that_the_system_refuses_at_any_step_changes_no_name(home, code):
    for number, injection in enumerate(faults.every_failure(code)):
        root = home / f"try{number}"
        shutil.copytree(home / "store", root)
        with cas.Store.open(root) as store:
            failure = None
            with injection:
                try:
                    done = store.import_layout(home / "old")
                except cas.CasError as error:
                    failure = error
            if isinstance(failure, cas.OutcomeUnknownError):
                continue
            if failure is not None:
                assert failure.exit_code == 8, failure
                assert check_names_are_whole(store) == []
            else:
                assert done.skipped == ()
            store.import_layout(home / "old")
            assert check_names_are_whole(store) == NAMES
        shutil.rmtree(root)


def test_an_export_that_crashes_at_any_step_is_whole_or_not_there(home):
    with cas.Store.open(home / "store") as store:
        store.import_layout(home / "old")
        store.export_layout(home / "wanted")
    wanted = read_back(home / "wanted")
    seen = set()
    for injection in faults.every_crash():
        store = cas.Store.open(home / "store")
        with injection:
            store.export_layout(home / "out")
        there = os.path.lexists(home / "out")
        seen.add(there)
        if there:
            assert read_back(home / "out") == wanted
            shutil.rmtree(home / "out")
    assert seen == {False, True}
    with cas.Store.open(home / "store") as store:
        store.export_layout(home / "out")
    assert sorted(os.listdir(home)) == ["old", "out", "store", "wanted"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_export_that_the_system_refuses_at_any_step_leaves_nothing(home, code):
    with cas.Store.open(home / "store") as store:
        store.import_layout(home / "old")
        for injection in faults.every_failure(code):
            failure = None
            with injection:
                try:
                    store.export_layout(home / "out")
                except cas.CasError as error:
                    failure = error
            if failure is not None:
                assert failure.exit_code == 8, failure
            if os.path.lexists(home / "out"):
                shutil.rmtree(home / "out")
        store.export_layout(home / "out")
    assert sorted(os.listdir(home)) == ["old", "out", "store"]
