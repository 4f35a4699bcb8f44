"""Writers, merges, reopenings and lost derived files in any order, against a plain dict."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cas.backends import LocalBackend, MemoryBackend
from cas.errors import DamagedError
from cas.objects import BLOB, TREE, ObjectStore
from cas.testing.objects import check_holds, check_sound, contents

WRITERS = st.sampled_from(["one", "two"])


class ObjectsMachine(RuleBasedStateMachine):
    """Two writers and two readers over one backend."""

    def make_backend(self):
        return MemoryBackend()

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.backend = self.make_backend()
        self.reader = self.open()
        self.stale = self.open()
        self.writers = {}
        self.pending = {"one": {}, "two": {}}
        self.stored = {}

    def open(self):
        return ObjectStore(self.backend, loose_threshold=3_000, pack_target=8_000)

    def writer(self, name):
        if name not in self.writers:
            self.writers[name] = self.open().writer()
        return self.writers[name]

    @rule(
        name=WRITERS,
        batch=st.lists(contents(6_000), max_size=6),
        kind=st.sampled_from([BLOB, TREE]),
    )
    def put(self, name, batch, kind):
        for content in batch:
            self.pending[name][self.writer(name).put(content, kind)] = content

    @rule(name=WRITERS, content=contents(9_000))
    def put_large(self, name, content):
        path = self.folder / "large"
        path.write_bytes(content)
        fd = os.open(path, os.O_RDONLY)
        try:
            digest = self.writer(name).put_large(fd, len(content))
        finally:
            os.close(fd)
        self.pending[name][digest] = content

    @precondition(lambda self: self.stored)
    @rule(name=WRITERS, data=st.data())
    def rely(self, name, data):
        digest = data.draw(st.sampled_from(sorted(self.stored)))
        fresh = name not in self.writers
        known = self.writer(name).known(digest)
        assert known or not fresh
        if known:
            self.pending[name][digest] = self.stored[digest]

    @rule(name=WRITERS)
    def flush(self, name):
        self.writer(name).flush()
        self.stored |= self.pending[name]
        self.pending[name] = {}

    @rule(name=WRITERS)
    def abandon(self, name):
        if name in self.writers:
            self.writers.pop(name).__exit__(None, None, None)
        self.pending[name] = {}

    @rule()
    def tidy(self):
        self.reader.tidy()

    @rule()
    def reopen(self):
        self.reader.close()
        self.reader = self.open()

    @rule()
    def lose_the_index(self):
        for entry in list(self.backend.list("index/")):
            self.backend.delete(entry.key)

    @rule(data=st.data())
    def lose_a_table(self, data):
        tables = [entry.key for entry in self.backend.list("index/")]
        if tables:
            self.backend.delete(data.draw(st.sampled_from(tables)))

    @rule(data=st.data(), mask=st.integers(1, 255))
    def damage_a_table(self, data, mask):
        tables = [entry.key for entry in self.backend.list("index/")]
        if tables:
            key = data.draw(st.sampled_from(tables))
            content = bytearray(self.backend.get(key))
            content[data.draw(st.integers(0, len(content) - 1))] ^= mask
            self.backend.delete(key)
            self.backend.put(key, bytes(content))

    @rule()
    def lose_the_cache(self):
        for entry in list(self.backend.list("cache/")):
            self.backend.delete(entry.key)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def read_one(self, data):
        digest = data.draw(st.sampled_from(sorted(self.stored)))
        assert self.stale.read(digest) == self.stored[digest]

    @invariant()
    def nothing_flushed_is_lost(self):
        check_holds(self.reader, self.stored)

    def teardown(self):
        for name in ("one", "two"):
            self.abandon(name)
        check_holds(self.stale, self.stored)
        store = self.open()
        for entry in list(self.backend.list("index/")):
            self.backend.delete(entry.key)
        store.tidy()
        check_holds(store, self.stored)
        check_sound(store)
        for one in (store, self.reader, self.stale):
            one.close()
        self.backend.close()
        shutil.rmtree(self.folder)


class LocalObjectsMachine(ObjectsMachine):
    """The same on a disk."""

    def make_backend(self):
        return LocalBackend(self.folder / "store", create=True)


TestInMemory = ObjectsMachine.TestCase
TestInMemory.settings = settings(max_examples=settings.default.max_examples, stateful_step_count=30)
TestOnDisk = LocalObjectsMachine.TestCase
TestOnDisk.settings = settings(
    max_examples=settings.default.max_examples // 5, stateful_step_count=25
)


def test_the_machine_would_notice_a_lost_object():
    machine = ObjectsMachine()
    machine.put("one", [b"kept"], BLOB)
    machine.flush("one")
    for entry in list(machine.backend.list("packs/")):
        machine.backend.delete(entry.key)
    with pytest.raises((AssertionError, DamagedError)):
        machine.nothing_flushed_is_lost()
    shutil.rmtree(machine.folder)
