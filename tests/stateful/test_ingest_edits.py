"""Whatever is done to a folder between two ingests, the cache never hides it."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cas.backends import LocalBackend
from cas.ingest import ingest
from cas.objects import ObjectStore
from cas.testing.strategies import read_back
from cas.testing.trees import put_model

NAMES = st.sampled_from([b"a", b"b", b"c", b"c-", b"c0", b"d", b"e", b"f", b"g", b"\xff"])
BYTES = st.sampled_from([b"0", b"1", b"2"])


class EditsBetweenIngests(RuleBasedStateMachine):
    """A folder that somebody edits, and a store that takes it again and again."""

    def __init__(self):
        super().__init__()
        # Limits so small that a few names reach them.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("cas.ingest.walk.MAX_RUN", 2)
        self.patch.setattr("cas.ingest.assembly._HELD_ENTRIES", 3)
        self.patch.setattr("cas.ingest.listing.LISTED", 5)
        self.patch.setattr("cas.ingest.listing.WINDOW", 3)
        self.place = Path(tempfile.mkdtemp(prefix="cas-edits-"))
        self.source = os.fsencode(self.place / "source")
        os.mkdir(self.source)
        self.cache = self.place / "store" / "cache" / "stat"
        self.backend = LocalBackend(self.place / "store", create=True)
        self.objects = ObjectStore(self.backend)

    def teardown(self):
        self.patch.undo()
        self.objects.close()
        self.backend.close()
        shutil.rmtree(self.place)

    def at(self, folders, name):
        """The path of a name below folders, as far as those exist."""
        path = self.source
        for folder in folders:
            below = os.path.join(path, folder)
            if os.path.isdir(below) and not os.path.islink(below):
                path = below
        return os.path.join(path, name)

    @staticmethod
    def remove(path):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)

    def put(self, path, content):
        self.remove(path)
        with open(path, "wb") as file:
            file.write(content)

    @rule(folders=st.lists(NAMES, max_size=2), name=NAMES, content=BYTES, length=st.integers(0, 3))
    def write(self, folders, name, content, length):
        self.put(self.at(folders, name), content * length)

    @rule(folders=st.lists(NAMES, max_size=2), name=NAMES, content=BYTES)
    def rewrite_in_place_with_the_size_and_mtime_that_it_had(self, folders, name, content):
        path = self.at(folders, name)
        if os.path.islink(path) or not os.path.isfile(path):
            return
        before = os.stat(path)
        with open(path, "r+b") as file:
            file.write(content * before.st_size)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    @rule(folders=st.lists(NAMES, max_size=2), name=NAMES, executable=st.booleans())
    def set_mode(self, folders, name, executable):
        path = self.at(folders, name)
        if os.path.isfile(path) and not os.path.islink(path):
            os.chmod(path, 0o755 if executable else 0o644)

    @rule(folders=st.lists(NAMES, max_size=2), name=NAMES)
    def make_folder(self, folders, name):
        path = self.at(folders, name)
        if not os.path.lexists(path):
            os.mkdir(path)

    @rule(folders=st.lists(NAMES, max_size=2), name=NAMES, to=NAMES)
    def make_symlink(self, folders, name, to):
        path = self.at(folders, name)
        self.remove(path)
        os.symlink(to, path)

    @rule(a=st.lists(NAMES, max_size=2), b=st.lists(NAMES, max_size=2), name=NAMES, other=NAMES)
    def swap(self, a, b, name, other):
        first, second = self.at(a, name), self.at(b, other)
        spare = os.path.join(os.fsencode(self.place), b"spare")
        if first == second or first.startswith(second + b"/") or second.startswith(first + b"/"):
            return
        if os.path.lexists(first) and os.path.lexists(second):
            os.rename(first, spare)
            os.rename(second, first)
            os.rename(spare, second)

    @rule(folders=st.lists(NAMES, max_size=2), name=NAMES, other=NAMES)
    def make_hard_link(self, folders, name, other):
        first, second = self.at(folders, name), self.at(folders, other)
        if os.path.isfile(first) and not os.path.islink(first) and not os.path.lexists(second):
            os.link(first, second)

    @rule(folders=st.lists(NAMES, max_size=2), names=st.sets(NAMES, min_size=1))
    def delete(self, folders, names):
        for name in names:
            self.remove(self.at(folders, name))

    @rule(folders=st.lists(NAMES, max_size=2), names=st.sets(NAMES, min_size=3))
    def write_many(self, folders, names):
        for name in names:
            self.put(self.at(folders, name), b"m")

    @rule(at=st.floats(0, 1), bit=st.integers(0, 7))
    def damage_the_cache(self, at, bit):
        for name in os.listdir(self.cache) if self.cache.exists() else ():
            data = bytearray((self.cache / name).read_bytes())
            data[int(at * (len(data) - 1))] ^= 1 << bit
            (self.cache / name).write_bytes(data)

    @rule()
    def reopen_the_store(self):
        self.objects.close()
        self.objects = ObjectStore(self.backend)

    @invariant()
    def an_ingest_takes_what_is_there(self):
        with self.objects.writer() as writer:
            taken = ingest(self.objects, writer, self.source, cache=self.cache, workers=1)
            writer.flush()
        assert taken.tree == put_model(self.objects, read_back(self.source))


TestEditsBetweenIngests = EditsBetweenIngests.TestCase
TestEditsBetweenIngests.settings = settings(
    settings.default, max_examples=20, stateful_step_count=20
)
