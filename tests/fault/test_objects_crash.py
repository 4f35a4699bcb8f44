"""Killed, or without power, at any step of storing and merging: what was flushed stays whole."""

from __future__ import annotations

import os
import random
import shutil

import pytest

from cas.backends import LocalBackend
from cas.objects import ObjectStore
from cas.objects.merging import FAN
from cas.testing import faults
from cas.testing.objects import check_holds, check_sound, sample
from cas.testing.power_cut import Disk

SMALL = {"loose_threshold": 2_000, "pack_target": 12_000}


def open_store(root):
    return ObjectStore(LocalBackend(root, create=True), **SMALL)


def close(store):
    store.close()
    store.backend.close()


def add(store, objects, large=None):
    expected = {}
    with store.writer() as writer:
        for content in objects:
            expected[writer.put(content)] = content
        if large is not None:
            fd = os.open(large, os.O_RDONLY)
            try:
                expected[writer.put_large(fd, os.fstat(fd).st_size)] = large.read_bytes()
            finally:
                os.close(fd)
        writer.flush()
    return expected


def storing(store, large):
    return add(store, [*sample(12, seed=2, largest=1900), b"noise" * 900, *sample(5)], large)


def merging(store, large):
    store.tidy()
    return {}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Give what is to survive, and a function that makes a store that holds it.

    It has enough small packs that the next tidy merges them.
    """
    template = tmp_path_factory.mktemp("prepared") / "store"
    expected = {}
    for number in range(FAN + 1):
        store = open_store(template)
        expected |= add(store, [b"object %d" % number] if number else sample(5))
        close(store)

    def prepare(root):
        shutil.copytree(template, root)
        return dict(expected)

    return prepare


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("operation", [storing, merging])
def test_what_was_flushed_survives_a_crash_at_any_step(tmp_path, prepared, operation, power):
    large = tmp_path / "large"
    large.write_bytes(random.Random(9).randbytes(5_000))
    choice = random.Random(1)
    for number, injection in enumerate(faults.every_crash()):
        root = tmp_path / f"store-{number}"
        expected = prepared(root)
        with Disk(root) as disk:
            store = open_store(root)
            with injection:
                expected |= operation(store, large)
            close(store)
            if power:
                disk.cut((lambda: choice.random() < 0.5) if number % 2 else None)
        store = open_store(root)
        check_holds(store, expected)
        check_sound(store)
        expected |= operation(store, large)
        store.tidy()
        close(store)
        store = open_store(root)
        check_holds(store, expected)
        check_sound(store)
        assert list(store.uncovered()) == []
        assert store.totals().packs < FAN + 3
        close(store)
    assert number > 10


@pytest.mark.parametrize("operation", [storing, merging])
def test_what_was_found_after_a_kill_is_durable_once_relied_on(tmp_path, prepared, operation):
    large = tmp_path / "large"
    large.write_bytes(random.Random(9).randbytes(5_000))
    for number, injection in enumerate(faults.every_crash()):
        root = tmp_path / f"store-{number}"
        expected = prepared(root)
        with Disk(root) as disk:
            store = open_store(root)
            with injection:
                operation(store, large)
            close(store)
            # Another process finds what the killed one left, and relies on it.
            store = open_store(root)
            expected |= storing(store, large)
            expected |= add(store, list(expected.values()))
            close(store)
            disk.cut()
        store = open_store(root)
        check_holds(store, expected)
        close(store)


def test_a_crashed_merge_leaves_no_copies_after_the_next(tmp_path, prepared):
    for number, injection in enumerate(faults.every_crash()):
        root = tmp_path / f"store-{number}"
        expected = prepared(root)
        store = open_store(root)
        with injection:
            store.tidy()
        close(store)
        store = open_store(root)
        for extra in range(3 * FAN):
            expected |= add(store, [b"more %d" % extra])
            store.tidy()
        assert store.count() <= len(expected) + FAN
        check_holds(store, expected)
        close(store)
