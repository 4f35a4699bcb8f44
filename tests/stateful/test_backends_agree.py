"""The local backend against the one in memory: whatever is done, both answer the same."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from cas import fs
from cas.backends import LocalBackend, MemoryBackend
from cas.errors import CasError

# No key is the beginning of another one.
KEYS = st.sampled_from(["a", "b/1", "b/1.x", "b/10", "b-c/1", "d/e/f/1", "d/e/g", "d/e.h"])
PREFIXES = st.sampled_from(["", "b/", "d/", "d/e/", "d/e/f/", "nothing/"])
CONTENTS = st.one_of(st.binary(max_size=20), st.integers(0, 200_000).map(lambda n: b"z" * n))


def outcome(call):
    """Return what a call gives: its value, or the kind of its error."""
    try:
        return call()
    except CasError as error:
        return type(error).__name__


class Agreement(RuleBasedStateMachine):
    """Each step is done to both; `model` is the one in memory."""

    stagings = Bundle("stagings")
    readers = Bundle("readers")

    @initialize(unnamed=st.booleans(), shared=st.booleans())
    def begin(self, unnamed, shared):
        self.folder = Path(tempfile.mkdtemp())
        self.gid = self.folder.stat().st_gid if shared else None
        self.open_tmpfile = fs.open_tmpfile
        if not unnamed:
            fs.open_tmpfile = lambda *args: None
        self.local = LocalBackend(self.folder / "store", create=True, shared_gid=self.gid)
        self.model = MemoryBackend()
        self.open_pairs = []
        self.former = []

    def teardown(self):
        if hasattr(self, "folder"):
            for pair in self.open_pairs:
                for one in pair:
                    getattr(one, "discard", getattr(one, "close", None))()
            for backend in (self.local, *self.former):
                backend.close()
            fs.open_tmpfile = self.open_tmpfile
            shutil.rmtree(self.folder)

    def both(self, call):
        results = [outcome(lambda backend=backend: call(backend)) for backend in self.pair]
        assert results[0] == results[1]
        return results[0]

    @property
    def pair(self):
        return self.local, self.model

    @rule(key=KEYS, content=CONTENTS)
    def put_if_absent(self, key, content):
        self.both(lambda backend: backend.put_if_absent(key, content))

    @rule(key=KEYS, content=CONTENTS, durable=st.booleans())
    def put(self, key, content, durable):
        self.both(lambda backend: backend.put(key, content, durable=durable))

    @rule(key=KEYS, limit=st.one_of(st.none(), st.integers(0, 300_000)))
    def get(self, key, limit):
        self.both(lambda backend: backend.get(key, max_bytes=limit))

    @rule(key=KEYS)
    def delete(self, key):
        self.both(lambda backend: backend.delete(key))

    @rule(prefix=PREFIXES)
    def listing(self, prefix):
        self.both(lambda backend: [(e.key, e.size) for e in backend.list(prefix)])

    @rule(keys=st.lists(KEYS))
    def settle(self, keys):
        self.both(lambda backend: backend.settle(keys))

    @rule(target=stagings)
    def stage(self):
        pair = tuple(backend.stage() for backend in self.pair)
        self.open_pairs.append(pair)
        return pair

    @rule(pair=stagings, content=CONTENTS)
    def write(self, pair, content):
        if self.discarded(pair):
            return
        for staging in pair:
            staging.write(content)
        local, model = pair
        assert local.tell() == model.tell()

    @rule(pair=stagings, offset=st.integers(0, 1000), length=st.integers(0, 1000))
    def read_staging(self, pair, offset, length):
        if self.discarded(pair):
            return
        local, model = pair
        assert local.read_at(offset, length) == model.read_at(offset, length)

    @rule(pair=stagings, key=KEYS)
    def place(self, pair, key):
        if self.discarded(pair):
            return
        results = [
            backend.put_if_absent(key, staging)
            for backend, staging in zip(self.pair, pair, strict=True)
        ]
        assert results[0] == results[1]
        if results[0]:
            self.discard(pair)

    @rule(pair=stagings)
    def discard(self, pair):
        for staging in pair:
            staging.discard()
        self.open_pairs = [other for other in self.open_pairs if other is not pair]

    def discarded(self, pair):
        return not any(other is pair for other in self.open_pairs)

    @rule(target=readers, key=KEYS)
    def open(self, key):
        pair = []
        results = [outcome(lambda b=b: pair.append(b.open(key))) for b in self.pair]
        assert results[0] == results[1]
        if pair:
            self.open_pairs.append(tuple(pair))
        return tuple(pair)

    @rule(pair=readers, offset=st.integers(0, 300_000), length=st.integers(0, 1000))
    def read(self, pair, offset, length):
        if pair:
            local, model = pair
            assert local.size == model.size
            assert local.read_at(offset, length) == model.read_at(offset, length)

    @rule()
    def reopen(self):
        # Open stagings go on with the old one, as those of another process would.
        self.former.append(self.local)
        self.local = LocalBackend(self.folder / "store", shared_gid=self.gid)

    @invariant()
    def everything_is_equal(self):
        if hasattr(self, "folder"):
            self.both(lambda backend: [(e.key, backend.get(e.key)) for e in backend.list("")])


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(settings(), stateful_step_count=30)
