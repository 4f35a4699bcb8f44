"""Worker processes: their replies, their errors, and how they and their parents end."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cas import errors, workers
from cas.backends import Missing
from cas.workers import Worker

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def _targets(monkeypatch):
    monkeypatch.syspath_prepend(HERE)


@pytest.fixture
def worker():
    with Worker("worker_targets:faulty") as worker:
        yield worker


def ask(worker, message):
    worker.send(message)
    return worker.receive()


def send_for_ever(worker):
    while True:
        worker.send(b"x" * 100_000)


def is_gone(pid, patience=5.0):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        # An orphan that nobody reaps in this container is as good as gone.
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                return True
        time.sleep(0.02)
    return False


def test_replies_come_in_the_order_of_the_messages():
    init = {"a": [1, None, True, b"\xff", "é", 2.5]}
    with Worker("worker_targets:echo", init) as worker:
        for number in range(100):
            worker.send([number, b"x" * number])
        for number in range(100):
            assert worker.receive() == [init, [number, b"x" * number]]


def test_any_amount_may_be_on_the_way():
    content = os.urandom(3 << 20)
    with Worker("worker_targets:echo", b"") as worker:
        for _ in range(5):
            worker.send(content)
        for _ in range(5):
            assert worker.receive() == [b"", content]


def test_several_workers_are_waited_for_together():
    started = [Worker("worker_targets:echo", number) for number in range(2)]
    assert workers.wait(started, 0) == []
    for worker in started:
        worker.send("hello")
    got = []
    while len(got) < 2:
        got += [worker.receive()[0] for worker in workers.wait(started)]
    assert sorted(got) == [0, 1]
    for worker in started:
        worker.close()
        worker.close()


def test_an_error_comes_back_as_itself(worker):
    worker.send("missing")
    with pytest.raises(Missing, match=r"^thing not found$") as caught:
        worker.receive()
    assert caught.value.facts["key"] == "a/b"
    worker.send("full")
    with pytest.raises(errors.DiskFullError) as caught:
        worker.receive()
    assert caught.value.errno == errno.ENOSPC
    worker.send("os")
    with pytest.raises(PermissionError) as caught:
        worker.receive()
    assert (caught.value.errno, caught.value.filename) == (errno.EACCES, b"/x\xff")
    worker.send("memory")
    with pytest.raises(errors.EnvironmentFailure, match="MemoryError"):
        worker.receive()
    assert ask(worker, "and on it goes") == "and on it goes"


def test_an_error_of_the_factory_comes_for_whatever_is_asked():
    with Worker("worker_targets:faulty", "refuse") as worker:
        for _ in range(2):
            with pytest.raises(errors.RefusedError, match=r"^no good$") as caught:
                worker.receive()
            assert caught.value.facts == {"why": "test"}


def test_sending_to_a_worker_that_refused_says_why():
    with Worker("worker_targets:faulty", "refuse") as worker:
        workers.wait([worker])
        with pytest.raises(errors.RefusedError, match=r"^no good$"):
            send_for_ever(worker)


@pytest.mark.parametrize("how", ["exit", "bug", "killed"])
def test_a_broken_worker_is_named_at_once(how, capfd):
    worker = Worker("worker_targets:faulty")
    worker.send("sleep" if how == "killed" else how)
    if how == "killed":
        os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(errors.EnvironmentFailure, match="worker_targets:faulty") as caught:
        worker.receive()
    assert caught.value.facts["status"] == {"exit": 7, "bug": 1, "killed": -9}[how]
    for call in (worker.receive, lambda: worker.send(1)):
        with pytest.raises(errors.EnvironmentFailure, match=str(worker.pid)):
            call()
    worker.close()
    assert ("AssertionError: a bug" in capfd.readouterr().err) == (how == "bug")


def test_a_worker_killed_while_it_is_fed_does_not_hang_the_parent(worker):
    worker.send("sleep")
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(errors.EnvironmentFailure, match="killed by signal 9"):
        send_for_ever(worker)


def test_a_target_that_does_not_exist_is_a_bug_that_ends_the_worker(capfd):
    with Worker("worker_targets:nothing") as worker, pytest.raises(errors.EnvironmentFailure):
        worker.receive()
    assert "nothing" in capfd.readouterr().err


def test_stray_output_and_input_do_no_harm(capfd):
    with Worker("worker_targets:faulty") as worker:
        assert ask(worker, "print") == ""
    assert capfd.readouterr().err == "stray\n"


def test_closing_drops_unread_replies_and_killing_does_not_wait():
    with Worker("worker_targets:echo", b"") as worker:
        for _ in range(10):
            worker.send(b"x" * 1_000_000)
    start = time.monotonic()
    worker = Worker("worker_targets:faulty")
    worker.send("sleep")
    worker.kill()
    worker.kill()
    assert time.monotonic() - start < 5


def test_an_error_in_the_block_kills_the_worker():
    def fail(worker):
        worker.send("sleep")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Worker("worker_targets:faulty") as worker:
        fail(worker)
    assert is_gone(worker.pid)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_worker_dies_with_a_parent_that_is_killed(busy):
    code = (
        "import sys\nfrom cas.workers import Worker\n"
        "worker = Worker('worker_targets:faulty')\nworker.send('pid')\n"
        "print(worker.receive(), flush=True)\n"
        f"worker.send('sleep') if {busy} else None\nworker.receive()"
    )
    environment = dict(os.environ, PYTHONPATH=HERE)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment
    ) as parent:
        pid = int(parent.stdout.readline())
        assert not is_gone(pid, 0.1)
        parent.kill()
    assert is_gone(pid)


def test_a_worker_lives_on_when_the_thread_that_started_it_ends():
    found = []
    thread = threading.Thread(target=lambda: found.append(Worker("worker_targets:echo", 1)))
    thread.start()
    thread.join()
    with found[0] as worker:
        time.sleep(0.1)
        assert ask(worker, 2) == [1, 2]


def test_a_worker_loads_little(worker):
    loaded = set(ask(worker, "modules"))
    assert loaded.isdisjoint({"site", "subprocess", "typer", "zstandard", "tempfile", "ctypes"})


@pytest.mark.parametrize(
    "target", ["cas.maintenance.prover", "cas.ingest.reading", "cas.workspace.hashing"]
)
def test_what_a_worker_starts_with_is_quick_to_import(target):
    code = (
        f"import sys, {target}; print({{'dataclasses', 'inspect', 'logging'}} & {{*sys.modules}})"
    )
    shown = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == "set()"


def test_a_message_that_cannot_be_encoded_is_refused(worker):
    with pytest.raises(errors.RefusedError):
        worker.send(object())
    assert ask(worker, 1) == 1


def test_a_worker_that_cannot_be_started_is_said(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(errors.EnvironmentFailure, match="starting worker worker_targets:echo"):
        Worker("worker_targets:echo")


def test_the_number_of_workers_is_that_of_the_cores_unless_said():
    assert workers.worker_count() == len(os.sched_getaffinity(0))
    assert workers.worker_count(5) == 5
    assert workers.worker_count(0) == 1
