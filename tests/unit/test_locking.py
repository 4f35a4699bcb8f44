"""Locks: who may hold them together, who waits, and that they die with their process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time

import portalocker
import pytest

from cas import locking
from cas.errors import BusyError, EnvironmentFailure, UnsupportedError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lock"


def test_shared_locks_go_together(path):
    with locking.shared(path, 0), locking.shared(path, 0):
        pass


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (locking.shared, locking.exclusive),
        (locking.exclusive, locking.shared),
        (locking.exclusive, locking.exclusive),
    ],
)
def test_an_exclusive_lock_stands_alone(path, first, second):
    with first(path, 0):
        with pytest.raises(BusyError, match="lock"), second(path, 0.01):
            pass
        with pytest.raises(BusyError), second(path, None, blocking=False):
            pass
    with second(path, 0):
        pass


def test_a_lock_is_waited_for(path):
    held = threading.Event()

    def hold():
        with locking.exclusive(path, 0):
            held.set()
            time.sleep(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    start = time.monotonic()
    with locking.exclusive(path, None):
        assert time.monotonic() - start > 0.05
    thread.join()


def test_a_lock_is_released_by_an_error(path):
    with pytest.raises(ZeroDivisionError), locking.exclusive(path, 0):
        raise ZeroDivisionError
    with locking.exclusive(path, 0):
        pass


def test_a_lock_dies_with_its_process(path):
    code = (
        "import sys, time\nfrom cas import locking\n"
        "with locking.exclusive(sys.argv[1], 0):\n print('held', flush=True)\n time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(BusyError), locking.shared(path, 0):
            pass
        process.kill()
    with locking.exclusive(path, 5):
        pass


def test_the_file_stays(path):
    with locking.exclusive(path, 0):
        inode = os.stat(path).st_ino
    assert os.stat(path).st_ino == inode


def test_a_lock_file_that_cannot_be_written_can_be_locked(path):
    path.touch(mode=0o444)
    with locking.exclusive(path, 0):
        pass


def test_a_lock_that_cannot_be_made_is_named(path):
    lock = locking.shared(path / "nowhere", 0)
    with pytest.raises(EnvironmentFailure, match="nowhere"), lock:
        pass


def test_a_filesystem_without_locks_is_refused_by_name(path, monkeypatch):
    def refuse(*args):
        raise portalocker.LockException from OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(portalocker, "lock", refuse)
    with pytest.raises(UnsupportedError, match=str(path)), locking.shared(path, 0):
        pass


def test_a_directory_can_be_locked_by_its_descriptor(tmp_path):
    one = os.open(tmp_path, os.O_RDONLY)
    two = os.open(tmp_path, os.O_RDONLY)
    assert locking.try_lock_fd(one)
    assert not locking.try_lock_fd(two)
    assert not locking.try_lock_fd(two, share=True)
    os.close(one)
    assert locking.try_lock_fd(two)
    os.close(two)
