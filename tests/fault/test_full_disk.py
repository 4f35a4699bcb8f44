"""A disk that is really full, and one that is read-only."""

from __future__ import annotations

import contextlib
import os

import pytest

import cas
from cas.testing import mounts
from cas.testing.runs import record_run
from cas.testing.stores import check_names_are_whole, read_state
from cas.testing.strategies import materialise

pytestmark = pytest.mark.root


@pytest.fixture
def mount(tmp_path):
    with contextlib.ExitStack() as stack:
        try:
            mount = stack.enter_context(mounts.mounted("ext4", tmp_path, size=24 << 20))
        except mounts.Unavailable as reason:
            pytest.skip(str(reason))
        yield mount


def fill(folder):
    """Leave no block free."""
    with open(folder / "filler", "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 512):
            with contextlib.suppress(OSError):
                while file.write(os.urandom(size)):
                    pass
        with contextlib.suppress(OSError):
            os.fsync(file.fileno())
    for number in range(10_000):
        try:
            (folder / f"filler{number}").write_bytes(b"x" * 4096)
        except OSError:
            return


def test_a_full_disk_refuses_an_add_and_still_takes_names_away(mount, tmp_path):
    materialise({b"a": ("file", b"a")}, tmp_path / "set")
    materialise({b"new": ("file", os.urandom(300_000))}, tmp_path / "more")
    record_run(tmp_path / "run.db", "r")
    with cas.Store.init(mount.path / "store") as store:
        for _ in range(4):
            store.versions.add("skills", tmp_path / "set")
        fill(mount.path)
        before = store.versions.list()
        with pytest.raises(cas.DiskFullError) as caught:
            store.versions.add("skills", tmp_path / "more")
        assert caught.value.exit_code == 8
        with pytest.raises(cas.DiskFullError):
            store.seeds.create(
                "initial",
                skills=tmp_path / "more",
                prompts=tmp_path / "set",
                baseline=tmp_path / "run.db",
                baseline_run_id="r",
            )
        assert store.versions.list() == before
        assert store.seeds.list() == []
        check_names_are_whole(store)

        store.tags.set("live", "skills@v1")
        store.versions.remove("skills@v4")
        for number in range(20):
            store.tags.set("live", f"skills@v{number % 3 + 1}")
        assert os.stat(mount.path / "store/reserve").st_size < 1 << 20

        for entry in os.scandir(mount.path):
            if entry.name.startswith("filler"):
                os.unlink(entry.path)
        assert store.versions.add("skills", tmp_path / "more").number == 5
        assert os.stat(mount.path / "store/reserve").st_size == 1 << 20
        assert [v.number for v in store.versions.list("skills")] == [1, 2, 3, 5]
        check_names_are_whole(store)


def test_a_read_only_store_can_be_read_and_checked_out_and_refuses_changes(mount, tmp_path):
    model = {b"a": ("file", b"a"), b"big": ("file", os.urandom(2 << 20)), b"l": ("symlink", b"a")}
    materialise(model, tmp_path / "set")
    with cas.Store.init(mount.path / "store", skills=tmp_path / "set") as store:
        store.tags.set("live", "skills@v1")
    mounts.remount_read_only(mount)
    with cas.Store.open(mount.path / "store") as store:
        assert read_state(store, "skills@v1") == model
        assert store.resolve("tag:live").name == "skills@v1"
        assert not store.diff("skills@v1", tmp_path / "set")
        assert [entry.spec for entry in store.log("skills@v1")] == ["skills@v1"]
        assert store.stats().resources[0].versions == 1
        store.checkout("skills@v1", tmp_path / "work")
        assert store.status(tmp_path / "work").clean
        assert store.workspaces.list() == []
        assert store.verify().ok
        for change in (
            lambda: store.versions.add("skills", tmp_path / "set"),
            lambda: store.versions.remove("skills@v1"),
            lambda: store.tags.set("live", "skills@v1"),
        ):
            with pytest.raises(cas.EnvironmentFailure, match="Read-only file system"):
                change()
