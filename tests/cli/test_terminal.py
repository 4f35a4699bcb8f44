"""What only a terminal gets: colours, indented JSON, progress."""

import os
import pty
import subprocess
import sys
import threading

import pytest

from cas_cli.session import Options, Session


def on_terminal(stream, *command, **environment):
    """Run a command with one of its streams on a terminal; return what arrived there."""
    master, slave = pty.openpty()
    arrived: list[bytes] = []

    def read():
        # Linux ends the reading of a terminal that everyone else closed with an error.
        try:
            while piece := os.read(master, 65536):
                arrived.append(piece)
        except OSError:
            pass

    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: slave}
    running = subprocess.Popen(
        command, env=os.environ | {"TERM": "xterm", "COLUMNS": "100"} | environment, **streams
    )
    os.close(slave)
    reader = threading.Thread(target=read)
    reader.start()
    running.communicate(timeout=60)
    reader.join()
    os.close(master)
    return b"".join(arrived).decode()


@pytest.fixture
def two(cas, store, skills):
    cas("add", "skills", "skills")
    (skills / "search.md").write_text("other\n")
    cas("add", "skills", "skills")


def test_a_terminal_gets_colours_unless_it_asks_for_none(two):
    diff = (sys.executable, "-m", "cas_cli", "diff", "skills@v1", "skills@v2")
    assert "\x1b[33mchanged \x1b[0m  search.md" in on_terminal("stdout", *diff)
    assert "\x1b" not in on_terminal("stdout", *diff, NO_COLOR="1")


def test_performance_has_bars_on_a_terminal(cas, store):
    counts = ("--activations", "10", "--successes", "4")
    cas("learn", "perf", "set", "look", "v1", *counts)
    shown = on_terminal("stdout", sys.executable, "-m", "cas_cli", "learn", "perf", "list")
    assert shown.split() == ["look", "v1", "10", "uses", "40%", "█" * 8 + "░" * 12]


def test_a_pipe_gets_no_colours(two, process):
    assert process("diff", "skills@v1", "skills@v2").text == "changed   search.md\n"


def test_columns_stay_aligned_in_colour(two):
    shown = on_terminal("stdout", sys.executable, "-m", "cas_cli", "diff", "skills@v1", "skills@v2")
    plain = shown.replace("\x1b[33m", "").replace("\x1b[0m", "")
    assert plain.splitlines() == ["changed   search.md"]


PROGRESS = """
import time
from cas_cli.progress import Bar
with Bar() as bar:
    for files in range(12):
        bar("ingest", files, files << 20, 12, 12 << 20)
        time.sleep(0.06)
    for files in range(3):
        bar("publish", files, 0, None, None)
"""


def test_progress_shows_files_bytes_and_rate_and_leaves_nothing():
    shown = on_terminal("stderr", sys.executable, "-c", PROGRESS)
    for part in ("ingest", "of 12 files", "of 12.0 MiB", "MiB/s", "publish"):
        assert part in shown
    # The cursor is shown again, and the line that is left is empty.
    assert shown.rindex("\x1b[?25h") > shown.rindex("publish")
    assert shown.endswith("\x1b[2K")


QUICK = """
import sys
from cas_cli import progress
moments = iter([0.0, 0.1, 0.2, 0.3])
progress.time.monotonic = lambda: next(moments)
with progress.Bar() as bar:
    for files in range(3):
        bar("ingest", files, files << 20, 3, 3 << 20)
assert "rich" not in sys.modules
"""


def test_what_is_done_quickly_draws_nothing_and_loads_nothing():
    assert on_terminal("stderr", sys.executable, "-c", QUICK) == ""


@pytest.mark.parametrize("options", [Options(quiet=True), Options(no_progress=True), Options()])
def test_progress_is_for_a_terminal_that_was_not_told_to_be_quiet(options):
    with Session(options) as session, session.progress() as progress:
        assert progress is None
