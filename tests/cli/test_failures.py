"""What goes wrong is one line, or one document, and an exit code; never a traceback."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cas as library
from cas import errors
from cas_cli.failures import EXIT_CODES, wants_json
from cas_cli.session import CLOSED_PIPE


def every(kind: type[errors.CasError]) -> list[type[errors.CasError]]:
    return [kind, *(found for inner in kind.__subclasses__() for found in every(inner))]


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def discover(start=None):
        raise error

    monkeypatch.setattr(library.Store, "discover", discover)


@pytest.mark.parametrize("kind", every(errors.CasError), ids=lambda kind: kind.__name__)
def test_every_error_has_its_exit_code_and_its_line(cas, monkeypatch, kind):
    raising(monkeypatch, kind("skills@v3 not found; the newest is skills@v2", spec="skills@v3"))
    plain = cas("versions", code=kind.exit_code)
    assert plain.message == "cas: skills@v3 not found; the newest is skills@v2\n"
    assert plain.out == b""
    shown = cas("versions", "--json", code=kind.exit_code).error()
    assert shown == {
        "code": kind.code,
        "message": "skills@v3 not found; the newest is skills@v2",
        "spec": "skills@v3",
    }
    assert kind.exit_code in EXIT_CODES


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        ["add"],
        ["add", "skills"],
        ["add", "a", "b", "c"],
        ["versions", "--nosuch"],
        ["--nosuch"],
        ["seed", "nosuch"],
        ["seed", "create", "x"],
        ["add", "a", "b", "--meta", "x"],
        ["edit", "skills@v1"],
        ["checkout", "a", "b", "--mode", "magic"],
        ["cat", "a:b", "--range", "x"],
        ["log", "a", "--limit", "0"],
        ["verify", "--dir", "x"],
        ["verify", "--against", "x"],
        ["verify", "--sample", "0"],
        ["verify", "--budget", "10"],
        ["--json"],
        ["seed", "--json"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2_and_says_where_help_is(cas, arguments):
    if "--json" not in arguments:
        plain = cas(*arguments, code=2)
        assert plain.out == b""
        assert plain.message.startswith("cas: ")
        assert plain.message.count("\n") == 1
        assert "--help" in plain.message
    shown = cas("--json", *arguments, code=2)
    assert shown.out == b""
    assert shown.error()["code"] == "usage"


def test_a_command_that_does_not_exist_is_answered_with_one_that_does(cas):
    assert "Did you mean 'versions'" in cas("version", code=2).message


@pytest.mark.parametrize("arguments", [[], ["seed"], ["tag"], ["workspace"]], ids=" ".join)
def test_a_group_alone_shows_its_help(cas, arguments):
    assert "Commands:" in cas(*arguments).text


def test_an_error_of_the_system_is_the_environment(cas, monkeypatch):
    raising(monkeypatch, PermissionError(13, "Permission denied", b"/caf\xe9"))
    assert cas("versions", code=8).message == "cas: /caf\\xe9: Permission denied\n"
    assert cas("versions", "--json", code=8).error()["code"] == "environment"


def test_an_unforeseen_error_is_called_a_bug_and_says_how_to_see_more(cas, monkeypatch):
    raising(monkeypatch, ZeroDivisionError("division by zero"))
    plain = cas("versions", code=70)
    assert plain.message == (
        "cas: this is a bug in cas: ZeroDivisionError: division by zero; CAS_DEBUG=1 shows where\n"
    )
    shown = cas("versions", "--json", code=70).error()
    assert (shown["code"], shown["type"]) == ("bug", "ZeroDivisionError")
    monkeypatch.setenv("CAS_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cas("versions")


def test_an_interrupt_is_quiet(cas, monkeypatch):
    raising(monkeypatch, KeyboardInterrupt())
    stopped = cas("versions", code=130)
    assert (stopped.out, stopped.err) == (b"", b"")


def test_ctrl_c_ends_also_a_command_whose_output_nobody_reads(cas, store, clean, write):
    write(clean / "set", {"large.bin": os.urandom(4 << 20)})
    cas("add", "set", "set")
    running = subprocess.Popen(
        [sys.executable, "-m", "cas_cli", "cat", "set@v1:large.bin"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.read(1)
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=20) == 130
    with running:
        assert running.stderr.read() == b""


def test_ctrl_c_during_an_add_leaves_no_name_and_the_next_add_works(cas, store, clean, write):
    for number in range(40):
        write(clean / "set", {f"{number}.bin": os.urandom(2 << 20)})
    running = subprocess.Popen(
        [sys.executable, "-m", "cas_cli", "add", "set", "set"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    # Once something large is in place the add is in the middle of its work.
    while not any((store / "loose").glob("*/*")):
        assert running.poll() is None
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=20)
    assert (running.returncode, said) == (130, b"")
    assert cas("versions", "--json").json() == []
    assert cas("add", "set", "set", "--json").json()["spec"] == "set@v1"


def test_facts_of_an_error_are_shown_whatever_they_are(cas, monkeypatch):
    raising(monkeypatch, errors.NotFoundError("gone", path=Path("x"), digest=b"y"))
    assert cas("versions", "--json", code=3).error()["path"] == "x"


def test_an_error_that_nobody_can_read_still_has_its_exit_code(process, clean):
    with open("/dev/full", "wb") as full:
        process("nosuch", stdout=full, stderr=full, code=2)


def test_an_error_stays_on_one_line_whatever_names_it_holds(cas, monkeypatch):
    raising(monkeypatch, errors.NotFoundError(f"{os.fsdecode(b'a' + bytes([255]))}\nx\x1b[2J"))
    assert cas("versions", code=3).err == b"cas: a\\xff\\nx\\x1b[2J\n"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["add", "--json"], True),
        (["--json", "add"], True),
        (["add", "--", "--json"], False),
        (["add"], False),
    ],
)
def test_json_is_wanted_where_the_option_is_given(arguments, wanted):
    assert wants_json(arguments) is wanted


def test_a_reader_that_goes_away_is_no_traceback(cas, store, clean, write):
    for number in range(300):
        write(clean / "many", {f"{number:04}-{'x' * 200}.txt": str(number)})
    cas("add", "many", "many")
    running = subprocess.Popen(
        [sys.executable, "-m", "cas_cli", "ls", "many@v1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    with running:
        assert running.stderr.read() == b""
    assert running.returncode == CLOSED_PIPE == 128 + signal.SIGPIPE


def test_output_that_cannot_be_written_is_the_environment(process, store):
    with open("/dev/full", "wb") as full:
        ran = process("versions", "--json", stdout=full, stderr=subprocess.PIPE, code=8)
    assert json.loads(ran.err)["error"]["code"] == "environment"


def test_names_that_mean_nothing_are_refused_before_anything_is_made(cas, store, skills, clean):
    cas("add", "skills", skills)
    assert "see 'cas init --help'" in cas("init", "", code=2).message
    for url in ("http://localhost/x", "s3://bucket/x"):
        assert "is a URL" in cas("--store", url, "versions", code=6).message
        assert "is a URL" in cas("push", url, code=6).message
    assert not (clean / "http:").exists()
    assert "by is empty" in cas("tag", "set", "live", "skills@v1", "--by", "", code=6).message
    for place in ("tmp/x", "packs/x", "x"):
        assert "in the store itself" in cas("checkout", "skills@v1", store / place, code=6).message
        assert not (store / place).exists()
    put = f".cas-workspace/x={skills}/search.md"
    assert "own memory" in cas("edit", "skills@v1", "--put", put, code=6).message
    assert "'../a'" in cas("cat", "skills@v1:../a", code=6).message
