"""How numbers, times and names are shown."""

import io
import json
import os
import time

import pytest

from cas_cli import output


class Stream:
    """A stream that may be a terminal."""

    def __init__(self, terminal: bool) -> None:
        self.buffer = io.BytesIO()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1500, "1.46 KiB"),
        (55 << 20, "55.0 MiB"),
        (1023 << 20, "1.00 GiB"),
        (100 << 40, "100 TiB"),
        (1 << 80, "1048576 EiB"),
    ],
)
def test_a_size_has_three_digits_and_a_unit(bytes_, text):
    assert output.size(bytes_) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (12345, "12,345 files")]
)
def test_a_count_has_the_right_plural(number, text):
    assert output.count(number, "file") == text


def test_a_plural_can_be_irregular():
    assert [output.count(n, "entry", "entries") for n in (1, 2)] == ["1 entry", "2 entries"]


def test_columns_are_aligned_and_no_line_ends_in_spaces():
    rows = [("a", "1", "x"), ("long", "100", "")]
    assert list(output.table(rows, right=(1,))) == ["a       1  x", "long  100"]


def test_an_empty_table_has_no_lines():
    assert list(output.table([])) == []


def test_a_time_is_shown_in_the_zone_of_the_reader(monkeypatch):
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    try:
        assert output.when("2026-01-02T23:30:00Z") == "2026-01-03 01:30"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("moment", ["yesterday", ""])
def test_a_time_that_does_not_read_is_shown_as_it_came(moment):
    assert output.when(moment) == moment


def test_a_name_of_any_bytes_reaches_a_pipe_as_it_is():
    stream = Stream(terminal=False)
    shown = output.Output(stream)
    name = b"caf\xe9 \xe2\x82\xac\nline\x1b[31m"
    shown.line(shown.path(name))
    assert stream.buffer.getvalue() == name + b"\n"


def test_a_name_cannot_command_a_terminal():
    shown = output.Output(Stream(terminal=True))
    assert shown.path(b"caf\xe9 \xe2\x82\xac\nline\x1b[31m") == r"caf\xe9 €\nline\x1b[31m"


def test_a_list_is_one_document_of_any_length():
    for values in ([], [{"a": 1}], [{"a": os.fsdecode(b"\xff")}, {"b": [1, 2]}, {}]):
        stream = Stream(terminal=False)
        output.Output(stream).documents(iter(values))
        assert json.loads(stream.buffer.getvalue()) == values


@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [
        (True, {"TERM": "xterm"}, True),
        (False, {"TERM": "xterm"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(monkeypatch, terminal, environment, coloured):
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    painted = output.Output(Stream(terminal)).paint("x", "red")
    assert (painted != "x") == coloured


def test_a_closed_stream_swallows_what_is_written():
    closed = output.Output(None)
    closed.line("gone")
    closed.flush()
    assert not closed.terminal
