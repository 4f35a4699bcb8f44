"""The local backend on real filesystems: conformance, power cuts, full and read-only ones."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from cas import fs, locking
from cas.backends import LocalBackend
from cas.errors import DiskFullError, EnvironmentFailure, UnsupportedError
from cas.testing import mounts
from cas.testing.backend_suite import BackendSuite

pytestmark = pytest.mark.root


@contextlib.contextmanager
def mounted(kind, folder, **options):
    with contextlib.ExitStack() as stack:
        try:
            mount = stack.enter_context(mounts.mounted(kind, folder, **options))
        except mounts.Unavailable as reason:
            pytest.skip(str(reason))
        yield mount


@pytest.fixture(scope="module", params=mounts.SAFE)
def mount(request, tmp_path_factory):
    with mounted(request.param, tmp_path_factory.mktemp("mount")) as mount:
        yield mount


class TestConformance(BackendSuite):
    @pytest.fixture
    def backend(self, mount):
        number = len(os.listdir(mount.path))
        backend = LocalBackend(mount.path / f"store-{number}", create=True)
        yield backend
        backend.close()


# Dies without a chance to close or sync anything after its last acknowledgement.
WRITER = """
import os, sys
from cas import fs
from cas.backends import LocalBackend
if sys.argv[2] == "named":
    fs.open_tmpfile = lambda *args: None
backend = LocalBackend(sys.argv[1])
for number in range(20):
    key = f"{'abc'[number % 3]}/{number % 4}/{number}"
    if number % 2:
        assert backend.put_if_absent(key, b"%d" % number * 1000)
    else:
        with backend.stage() as staging:
            staging.write(b"%d" % number * 20000)
            assert backend.put_if_absent(key, staging)
    backend.put("head", b"%d" % number * 500)
    print(key, flush=True)
    if number % 5 == 4:
        sys.stdin.readline()
"""


@pytest.mark.parametrize("way", ["unnamed", "named"])
def test_acknowledged_keys_survive_a_power_cut(mount, tmp_path, way):
    root = mount.path / f"cut-{way}"
    LocalBackend(root, create=True).close()
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", WRITER, root, way]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        for round_ in range(4):
            keys = [process.stdout.readline().strip() for _ in range(5)]
            with mounts.after_power_cut(mount, tmp_path) as copy:
                backend = LocalBackend(copy / root.name)
                found = {entry.key: entry.size for entry in backend.list("")}
                for number, key in enumerate(keys, round_ * 5):
                    wanted = b"%d" % number * (1000 if number % 2 else 20000)
                    assert found[key] == len(wanted)
                    assert backend.get(key) == wanted
                assert len(found) == round_ * 5 + 6
                assert backend.get("head") == b"%d" % (round_ * 5 + 4) * 500
                # The next command just works.
                assert backend.put_if_absent("next", b"x")
                backend.close()
            process.stdin.write("\n")
            process.stdin.flush()


def test_an_unsynced_value_may_be_lost_so_the_power_cut_is_a_real_one(tmp_path):
    with mounted("ext4", tmp_path) as mount:
        fd = os.open(mount.path / "unsynced", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"x" * 1000)
        os.close(fd)
        with mounts.after_power_cut(mount, tmp_path) as copy:
            assert not (copy / "unsynced").exists()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_full_disk_is_said_and_the_reserve_helps(tmp_path, kind):
    with mounted(kind, tmp_path) as mount:
        backend = LocalBackend(mount.path / "store", create=True)
        backend.make_directories(["log"])
        backend.create_reserve()
        number = 0
        size = 1 << 20
        while size:
            try:
                backend.put_if_absent(f"packs/{number}", os.urandom(size))
            except DiskFullError:
                size //= 8
            number += 1
        written = {entry.key: entry.size for entry in backend.list("packs/")}
        if kind != "btrfs":  # which keeps small files among its own metadata
            with pytest.raises(DiskFullError):
                backend.put_if_absent("log/big", os.urandom(20_000))
        assert backend.release_reserve(2) == 128 << 10
        assert backend.put_if_absent("log/record", os.urandom(500))
        backend.delete(f"packs/{max(written, key=written.get).partition('/')[2]}")
        assert backend.put_if_absent("log/big", os.urandom(20_000))
        assert backend.refill_reserve()
        backend.close()


def test_a_read_only_store_is_read_and_not_written(tmp_path):
    with mounted("ext4", tmp_path) as mount:
        backend = LocalBackend(mount.path / "store", create=True)
        backend.put_if_absent("packs/a", b"x")
        with locking.shared(mount.path / "store" / "lock", 0):
            pass
        assert backend.writable
        backend.close()
        mounts.remount_read_only(mount)
        backend = LocalBackend(mount.path / "store")
        assert not backend.writable
        assert backend.get("packs/a") == b"x"
        assert [entry.key for entry in backend.list("packs/")] == ["packs/a"]
        assert not backend.put_if_absent("packs/a", b"y")
        backend.settle(["packs/a"])
        with locking.shared(mount.path / "store" / "lock", 0):
            pass
        for write in (
            lambda: backend.put("packs/b", b"x"),
            lambda: backend.put_if_absent("packs/b", b"x"),
            lambda: backend.delete("packs/a"),
            backend.stage,
            backend.now_ns,
            backend.create_reserve,
            lambda: backend.make_directories(["index"]),
        ):
            with pytest.raises(EnvironmentFailure, match=str(backend.root)):
                write()
        backend.close()


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_a_staging_can_be_a_clone(tmp_path, kind):
    with mounted(kind, tmp_path) as mount:
        (mount.path / "source").write_bytes(b"content " * 100_000)
        backend = LocalBackend(mount.path / "store", create=True)
        source = fs.open_read(mount.path / "source")
        with backend.stage() as staging:
            assert fs.clone(source, staging.fileno())
            assert staging.tell() == 800_000
            assert backend.put_if_absent("loose/a", staging)
        os.close(source)
        assert backend.get("loose/a") == b"content " * 100_000
        backend.close()


def test_a_filesystem_that_cannot_place_safely_is_refused_by_name(tmp_path):
    with mounted("exfat", tmp_path) as mount:
        backend = LocalBackend(mount.path / "store", create=True)
        with pytest.raises(UnsupportedError, match=str(mount.path)):
            backend.put_if_absent("packs/a", b"x")
        assert list(backend.list("")) == []
        assert os.listdir(mount.path / "store" / "tmp") == []
        backend.close()
