"""Push, pull and clone that crash or are refused by the system at any step."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

import cas
from cas.testing import faults
from cas.testing.stores import check_names_are_whole, read_state
from cas.testing.strategies import materialise

# Files that a killed process held open are closed by the system, here by the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

STEPS = faults.CHANGES - {"allocate", "fsync"}
"""A crash before a sync leaves what one after it leaves; cuts of power are another test's."""

NAMES = ["skills@v1", "skills@v3", "videos@v1"]


@pytest.fixture
def home(tmp_path):
    """A store with something of everything, and an empty one to be copied for every try."""
    materialise({b"a": ("file", b"1"), b"d": {b"b": ("file", b"2")}}, tmp_path / "skills")
    materialise({b"big": ("file", b"z" * 1_200_000)}, tmp_path / "videos")
    with cas.Store.init(tmp_path / "source") as source:
        for number in range(3):
            (tmp_path / "skills/a").write_text(str(number))
            source.versions.add("skills", tmp_path / "skills")
        source.versions.remove("skills@v2")
        source.versions.add("videos", tmp_path / "videos")
        source.tags.set("live", "skills@v3")
    cas.Store.init(tmp_path / "store").close()
    return tmp_path


def test_a_pull_that_crashes_at_any_step_names_all_or_nothing_and_goes_on(home):
    seen = set()
    copied = []
    with cas.Store.open(home / "source") as source:
        for number, injection in enumerate(faults.every_crash()):
            root = home / f"try{number}"
            shutil.copytree(home / "store", root)
            store = cas.Store.open(root)
            with injection:
                store.pull(source)
            with cas.Store.open(root) as again:
                found = check_names_are_whole(again)
                assert found in ([], NAMES)
                seen.add(bool(found))
                assert again.verify(workers=1).ok
                copied.append(again.pull(source).objects)
                assert check_names_are_whole(again) == NAMES
                assert again.tags.get("live").target == "skills@v3"
            shutil.rmtree(root)
    assert seen == {False, True}
    assert copied[0] > 0 == copied[-2]
    assert 0 < min(count for count in copied if count) < copied[0]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_pull_that_the_system_refuses_at_any_step_changes_no_name(home, code):
    with cas.Store.open(home / "source") as source:
        for number, injection in enumerate(faults.every_failure(code)):
            root = home / f"try{number}"
            shutil.copytree(home / "store", root)
            with cas.Store.open(root) as store:
                failure = None
                with injection:
                    try:
                        store.pull(source)
                    except cas.CasError as error:
                        failure = error
                if failure is not None and not isinstance(failure, cas.OutcomeUnknownError):
                    assert failure.exit_code == 8, failure
                    assert check_names_are_whole(store) == []
                store.pull(source)
                assert check_names_are_whole(store) == NAMES
            shutil.rmtree(root)


def test_a_clone_that_crashes_at_any_step_is_whole_or_no_store_and_goes_on(home):
    with cas.Store.open(home / "source") as source:
        wanted = {spec: read_state(source, spec) for spec in NAMES}
        seen = set()
        for number, injection in enumerate(faults.every_crash(on=STEPS)):
            root = home / f"try{number}"
            with injection:
                cas.Store.clone(source, root).close()
            whole = os.path.lexists(root / "store.json")
            seen.add(whole)
            if not whole:
                with pytest.raises(cas.NotFoundError):
                    cas.Store.open(root)
                cas.Store.clone(source, root).close()
            with cas.Store.open(root) as clone:
                assert clone.verify(workers=1, quick=True).ok
                assert {spec: read_state(clone, spec) for spec in NAMES} == wanted
                assert clone.tags.history("live") == source.tags.history("live")
            shutil.rmtree(root)
    assert seen == {False, True}


def test_a_clone_that_is_refused_at_any_step_leaves_no_store(home):
    with cas.Store.open(home / "source") as source:
        for number, injection in enumerate(faults.every_failure(errno.ENOSPC, on=STEPS)):
            root = home / f"try{number}"
            failure = None
            with injection:
                try:
                    cas.Store.clone(source, root).close()
                except cas.CasError as error:
                    failure = error
            if failure is not None and not os.path.lexists(root / "store.json"):
                left = [path for path in root.rglob("*/*") if path.suffix != ".new"]
                assert left == [] or {"packs", "loose"} & {p.parts[len(root.parts)] for p in left}
            if not os.path.lexists(root / "store.json"):
                cas.Store.clone(source, root).close()
            with cas.Store.open(root) as clone:
                assert check_names_are_whole(clone) == NAMES
            shutil.rmtree(root)
