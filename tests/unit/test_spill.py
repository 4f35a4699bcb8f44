"""Sorting in bounded memory equals sorting in memory."""

from __future__ import annotations

import errno
import os
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cas import fs
from cas.errors import DiskFullError
from cas.spill import Spill


@given(
    items=st.lists(st.one_of(st.binary(max_size=8), st.binary(max_size=300))),
    max_bytes=st.integers(0, 3000),
    unique=st.booleans(),
    at_once=st.integers(1, 40),
)
def test_the_order_is_that_of_sorted(items, max_bytes, unique, at_once):
    with Spill(max_bytes, unique=unique) as spill:
        for item in items[at_once:]:
            spill.add(item)
        spill.extend(iter(items[:at_once]))
        wanted = sorted(set(items)) if unique else sorted(items)
        assert list(spill) == wanted
        assert list(spill) == wanted


def test_more_can_be_added_after_a_look():
    with Spill(100) as spill:
        spill.add(b"b")
        assert list(spill) == [b"b"]
        for item in (b"c" * 200, b"a"):
            spill.add(item)
        assert list(spill) == [b"a", b"b", b"c" * 200]


def test_many_runs_are_merged():
    with Spill(1) as spill:
        for number in range(200):
            spill.add(b"%05d" % ((number * 7919) % 1000))
            assert len(spill._runs) < 40
        assert list(spill) == sorted(b"%05d" % ((number * 7919) % 1000) for number in range(200))


def test_strings_longer_than_the_buffer_come_back_whole():
    items = [os.urandom(300_000), b"", os.urandom(131_068), os.urandom(131_069), b"x" * 1_000_000]
    with Spill(1000) as spill:
        for item in items:
            spill.add(item)
        assert list(spill) == sorted(items)


def test_duplicates_alone_never_reach_the_disk(monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", None)
    with Spill(10_000, unique=True) as spill:
        for number in range(100_000):
            spill.add(b"%d" % (number % 10))
        assert len(list(spill)) == 10


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors = len(os.listdir("/dev/fd"))
    with Spill(100) as spill:
        for number in range(1000):
            spill.add(b"%d" % number)
        assert os.listdir(tmp_path) == []
    assert len(os.listdir("/dev/fd")) == descriptors
    assert list(spill) == []


def test_a_full_disk_is_said(monkeypatch):
    def refuse(*args):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(fs, "write", refuse)
    with Spill(100) as spill, pytest.raises(DiskFullError, match="temporary"):
        spill.add(b"x" * 200)
