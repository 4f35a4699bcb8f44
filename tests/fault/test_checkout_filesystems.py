"""Checkouts on real filesystems: what they share, what they cannot hold, what survives a cut."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from cas.backends import LocalBackend
from cas.checkout import checkout, update
from cas.digest import hash_bytes
from cas.errors import DiskFullError, UnsupportedError
from cas.objects import ObjectStore
from cas.testing import mounts
from cas.testing.strategies import read_back
from cas.testing.trees import put_model
from cas.workspace import WorkspaceState, status, verify_workspace

pytestmark = pytest.mark.root

LARGE = random.Random(1).randbytes(4 << 20)
MODEL = {
    b"small": ("file", b"small"),
    b"run": ("exec", b"#!"),
    b"clip": ("file", LARGE),
    b"again": ("file", LARGE),
    b"link": ("symlink", b"clip"),
    b"\xff\n": {b"A": ("file", b"1"), b"a": ("file", b"2")},
}


@contextlib.contextmanager
def mounted(kind, folder, **options):
    with contextlib.ExitStack() as stack:
        try:
            mount = stack.enter_context(mounts.mounted(kind, folder, **options))
        except mounts.Unavailable as reason:
            pytest.skip(str(reason))
        yield mount


def state():
    return WorkspaceState(store_path="/the/store", store_id="1" * 32, spec="r@v1")


def contents(path):
    model = read_back(path)
    model.pop(b".cas-workspace", None)
    return model


@contextlib.contextmanager
def opened(path):
    """Open a store, and let go of its filesystem at the end."""
    backend = LocalBackend(path, create=True)
    objects = ObjectStore(backend)
    try:
        yield objects
    finally:
        objects.close()
        backend.close()


def used(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    os.sync()
    found = os.statvfs(path)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
@pytest.mark.parametrize("mode", ["auto", "reflink"])
def test_large_files_share_blocks_where_the_filesystem_can(tmp_path, kind, mode):
    with mounted(kind, tmp_path) as mount, opened(mount.path / "store") as objects:
        tree = put_model(objects, MODEL).digest
        before = used(mount.path)
        done = checkout(objects, tree, mount.path / "work", mode=mode, memory=state())
        assert (done.mode, done.proof) == ("reflink", "stat")
        assert contents(mount.path / "work") == MODEL
        assert status(mount.path / "work").clean
        assert used(mount.path) - before < len(LARGE)
        with (mount.path / "work" / "clip").open("r+b") as file:
            file.write(b"mine")
        assert objects.read(hash_bytes(LARGE)) == LARGE
        assert status(mount.path / "work").changed == (b"clip",)


def test_ext4_falls_back_to_copies_and_says_so(tmp_path):
    with (
        mounted("ext4", tmp_path, size=64 << 20) as mount,
        opened(mount.path / "store") as objects,
    ):
        tree = put_model(objects, MODEL).digest
        done = checkout(objects, tree, mount.path / "work", memory=state())
        assert (done.mode, done.proof) == ("copy", "content")
        assert contents(mount.path / "work") == MODEL
        with pytest.raises(UnsupportedError, match="reflink"):
            checkout(objects, tree, mount.path / "other", mode="reflink")
        assert not (mount.path / "other").exists()


def test_another_filesystem_can_neither_be_linked_nor_cloned_into(tmp_path):
    with mounted("xfs", tmp_path) as mount, opened(tmp_path / "store") as objects:
        tree = put_model(objects, MODEL).digest
        for mode in ("hardlink", "reflink"):
            with pytest.raises(UnsupportedError, match=mode):
                checkout(objects, tree, mount.path / "work", mode=mode)
        assert os.listdir(mount.path) == []
        assert checkout(objects, tree, mount.path / "work").mode == "copy"
        assert contents(mount.path / "work") == MODEL


@contextlib.contextmanager
def mounted_exfat(folder):
    """Mount an exFAT through FUSE, where the kernel has no vfat: its limits are much the same."""
    image, path = folder / "image", folder / "mnt"
    path.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    device = ""
    try:
        try:
            subprocess.run(["mkfs.exfat", image], capture_output=True, check=True)
            found = subprocess.run(
                ["losetup", "-f", "--show", image], capture_output=True, check=True, text=True
            )
            device = found.stdout.strip()
            subprocess.run(["mount.exfat-fuse", device, path], capture_output=True, check=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as reason:
            pytest.skip(f"no exFAT to mount: {reason}")
        yield path
    finally:
        if os.path.ismount(path):
            subprocess.run(["umount", path], capture_output=True, check=True)
        if device:
            subprocess.run(["losetup", "-d", device], capture_output=True, check=True)


@pytest.fixture(params=["vfat", "exfat"])
def narrow(request, tmp_path):
    """A filesystem that folds case, and has no links and no modes."""
    if os.geteuid() != 0:
        pytest.skip("loop mounts need root")
    if request.param == "exfat":
        with mounted_exfat(tmp_path) as path:
            yield path
    else:
        with mounted("vfat", tmp_path) as mount:
            yield mount.path


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({b"A": ("file", b"1"), b"a": ("file", b"2")}, "'a'"),
        ({b"x:y": ("file", b"1")}, "'x:y'"),
        ({b"d": {b"link": ("symlink", b"x")}}, "'d/link'"),
    ],
)
def test_what_a_filesystem_cannot_hold_is_refused_before_the_first_byte(
    tmp_path, narrow, model, said
):
    with opened(tmp_path / "store") as objects:
        tree = put_model(objects, {b"0": ("file", b"a byte"), **model}).digest
        with pytest.raises(UnsupportedError, match=said):
            checkout(objects, tree, narrow / "work")
        assert os.listdir(narrow) == []


def test_what_it_can_hold_is_written_and_lost_modes_are_said(tmp_path, narrow):
    work = narrow / "work"
    with opened(tmp_path / "store") as objects:
        model = {b"run": ("exec", b"#!"), b"d": {b"f": ("file", b"x"), b"G": ("file", b"G")}}
        done = checkout(objects, put_model(objects, model).digest, work, memory=state())
        assert any("executable" in notice for notice in done.notices)
        assert status(work).clean
        assert verify_workspace(work).ok
        (work / "d" / "f").write_bytes(b"y")
        assert status(work).changed == (b"d/f",)
        model = {b"run": ("exec", b"#!!"), b"d": {b"f": ("file", b"z"), b"G": ("file", b"H")}}
        done = update(objects, work, put_model(objects, model).digest, memory=state())
        assert done.kept == (b"d/f",)
        assert (work / "run").read_bytes() == b"#!!"
        assert status(work).changed == (b"d/f",)


@contextlib.contextmanager
def case_folding(folder):
    """An XFS that takes `A` for `a`."""
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(300 << 20)
    try:
        done = subprocess.run(
            ["mkfs.xfs", "-q", "-n", "version=ci", str(image)], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("mkfs.xfs is not installed")
    if done.returncode:
        pytest.skip("mkfs.xfs makes no case-folding filesystems")
    with contextlib.ExitStack() as stack:
        try:
            path = stack.enter_context(mounts.mounted_image("xfs", image, folder / "mnt"))
        except mounts.Unavailable as reason:
            pytest.skip(str(reason))
        yield path


def test_a_filesystem_that_folds_case_is_refused_twins_and_takes_the_rest(tmp_path):
    with case_folding(tmp_path) as disk, opened(tmp_path / "store") as objects:
        twins = put_model(objects, {b"d": {b"A": ("file", b"1"), b"a": ("file", b"2")}}).digest
        with pytest.raises(UnsupportedError, match=r"'d/a'.*'A'"):
            checkout(objects, twins, disk / "work")
        assert os.listdir(disk) == []
        model = {b"d": {b"A": ("file", b"1"), b"b": ("symlink", b"A")}}
        checkout(objects, put_model(objects, model).digest, disk / "work", memory=state())
        assert contents(disk / "work") == model
        with pytest.raises(UnsupportedError, match=r"'d/a'.*'A'"):
            update(objects, disk / "work", twins, memory=state())
        assert contents(disk / "work") == model
        assert status(disk / "work").clean


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    with mounted("ext4", tmp_path) as mount, opened(tmp_path / "store") as objects:
        model = {b"f%d" % n: ("file", random.Random(n).randbytes(1 << 20)) for n in range(30)}
        tree = put_model(objects, model).digest
        with pytest.raises(DiskFullError):
            checkout(objects, tree, mount.path / "work")
        assert sorted(os.listdir(mount.path)) == ["lost+found"]


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_checkout_that_returned_survives_a_power_cut(tmp_path, kind):
    with mounted(kind, tmp_path, size=64 << 20) as mount, opened(tmp_path / "store") as objects:
        tree = put_model(objects, MODEL).digest
        checkout(objects, tree, mount.path / "deep" / "work", memory=state())
        with mounts.after_power_cut(mount, tmp_path) as disk:
            assert contents(disk / "deep" / "work") == MODEL
            assert verify_workspace(disk / "deep" / "work").ok


PROGRAM = """
import sys
from cas.backends import LocalBackend
from cas.checkout import checkout
from cas.digest import Digest
from cas.objects import ObjectStore
from cas.workspace import WorkspaceState
store, tree, dest = sys.argv[1:]
memory = WorkspaceState(store_path=store, store_id="1" * 32, spec="r@v1")
print("begun", flush=True)
checkout(ObjectStore(LocalBackend(store)), Digest.parse(tree), dest, memory=memory, workers=2)
"""


def test_a_power_cut_while_a_checkout_runs_leaves_it_absent_or_whole(tmp_path):
    chance = random.Random(4)
    model = {
        b"d%02d" % n: {b"f%03d" % m: ("file", b"%d %d" % (n, m)) for m in range(100)}
        for n in range(30)
    }
    with (
        mounted("ext4", tmp_path, size=128 << 20) as mount,
        opened(tmp_path / "store") as objects,
    ):
        tree = put_model(objects, model).digest
        dest = mount.path / "work"
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(tree), str(dest)]
        for number in range(4):
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            process.stdout.readline()
            time.sleep(chance.uniform(0.05, 0.4))
            folder = tmp_path / f"cut-{number}"
            folder.mkdir()
            with mounts.after_power_cut(mount, folder) as disk:
                if (disk / "work").exists():
                    assert verify_workspace(disk / "work").ok
                checkout(objects, tree, disk / "again", memory=state())
                assert contents(disk / "again") == model
            process.send_signal(signal.SIGKILL)
            process.communicate()
            shutil.rmtree(dest, ignore_errors=True)
            (folder / "image-after-the-cut").unlink()
