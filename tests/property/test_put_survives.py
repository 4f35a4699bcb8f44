"""A key is absent or whole after a crash at any step, and there after an acknowledgement."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cas import fs
from cas.backends import LocalBackend, Missing
from cas.errors import DiskFullError, EnvironmentFailure, OutcomeUnknownError
from cas.testing import faults
from cas.testing.power_cut import Disk

OLD = b"old value"
NEW = b"new value, and longer"


@pytest.fixture(params=["unnamed files", "named files", "no links"], autouse=True)
def _filesystem(request, monkeypatch):
    if request.param != "unnamed files":
        monkeypatch.setattr(fs, "open_tmpfile", lambda *args: None)
    if request.param == "no links":

        def no_link(*args, **kwargs):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(fs, "link", no_link)


def value(root, key):
    backend = LocalBackend(root)
    try:
        return backend.get(key)
    except Missing:
        return None
    finally:
        backend.close()


def put_staged(backend):
    with backend.stage() as staging:
        staging.write(NEW[:5])
        staging.write(NEW[5:])
        return backend.put_if_absent("a/b/k", staging)


PUTS = {
    "bytes": lambda backend: backend.put_if_absent("a/b/k", NEW),
    "staged": put_staged,
    "replace": lambda backend: backend.put("a/b/k", NEW) or True,
}


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
def test_after_a_crash_at_any_step_the_key_is_absent_or_whole(tmp_path, put, power):
    for number, injection in enumerate(faults.every_crash()):
        root = tmp_path / str(number)
        root.mkdir()
        acknowledged = False
        with Disk(root) as disk:
            backend = LocalBackend(root)
            with injection:
                acknowledged = put(backend)
            backend.close()
            if power:
                disk.cut()
        assert acknowledged is not injection.fired
        assert value(root, "a/b/k") in ([NEW] if acknowledged else [None, NEW])
        # The next process just works, and sweeps what is left.
        backend = LocalBackend(root)
        backend.put("other", b"x")
        backend.put_if_absent("a/b/k", NEW)
        assert backend.get("a/b/k") == NEW
        assert [entry.key for entry in backend.list("")] == ["a/b/k", "other"]
        backend.close()
        assert not os.path.exists(root / "tmp") or os.listdir(root / "tmp") == []
    assert number > 5


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_replacing_leaves_the_old_value_or_the_new_one(tmp_path, power):
    for number, injection in enumerate(faults.every_crash()):
        root = tmp_path / str(number)
        root.mkdir()
        acknowledged = False
        backend = LocalBackend(root)
        backend.put("k", OLD)
        with Disk(root) as disk:
            with injection:
                backend.put("k", NEW)
                acknowledged = True
            backend.close()
            if power:
                disk.cut()
        assert value(root, "k") in ([NEW] if acknowledged else [OLD, NEW])


@pytest.mark.parametrize("effect", [False, True], ids=["failed", "acknowledgement lost"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)
def test_an_error_at_any_step_says_what_is_known(tmp_path, put, error, effect):
    for number, injection in enumerate(faults.every_failure(error, effect=effect)):
        root = tmp_path / str(number)
        root.mkdir()
        said = None
        with Disk(root) as disk:
            backend = LocalBackend(root)
            with injection:
                try:
                    said = put(backend)
                except EnvironmentFailure as failure:
                    said = failure
            backend.close()
            there = value(root, "a/b/k")
            assert there in (None, NEW)
            disk.cut()
        if said is True:
            assert value(root, "a/b/k") == NEW
        elif not isinstance(said, OutcomeUnknownError) and not effect:
            assert there is None
        if isinstance(said, EnvironmentFailure):
            assert said.errno == error
            assert isinstance(said, DiskFullError | OutcomeUnknownError) or error != errno.ENOSPC


@given(data=st.data(), at=st.integers(1, 40))
def test_acknowledged_keys_survive_any_power_cut(tmp_path_factory, data, at):
    root = tmp_path_factory.mktemp("store")
    acknowledged = {}
    tried = {}
    with Disk(root) as disk:
        for crash_at in (at, 1_000_000):
            backend = LocalBackend(root)
            with faults.crash(crash_at):
                for number in range(6):
                    key = data.draw(st.sampled_from(["a/1", "a/2", "a/b/3", "c", "d/e/4"]))
                    content = b"%d" % number * 50
                    tried.setdefault(key, []).append(content)
                    if backend.put_if_absent(key, content):
                        assert key not in acknowledged
                        acknowledged[key] = content
                    elif key not in acknowledged:
                        # Left by the crash; whoever relies on it settles it first.
                        backend.settle([key])
                        acknowledged[key] = backend.get(key)
                        assert acknowledged[key] in tried[key]
            backend.close()
            disk.cut(lambda: data.draw(st.booleans()))
            for key, content in acknowledged.items():
                assert value(root, key) == content
            for key, contents in tried.items():
                assert value(root, key) in [None, *contents]
