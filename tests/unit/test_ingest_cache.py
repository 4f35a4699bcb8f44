"""The stat cache: what is unchanged is not read, what is changed is always seen."""

import os
import shutil
import stat
import time
from contextlib import closing, contextmanager

import pytest

from cas import fs
from cas.backends import LocalBackend
from cas.ingest import ingest
from cas.ingest.cache import KEPT, StatCache
from cas.manifests import TreeBuilder, walk
from cas.objects import ObjectStore
from cas.testing import faults
from cas.testing.strategies import materialise, read_back
from cas.testing.trees import put_model


class Place:
    """A store beside a source."""

    def __init__(self, tmp_path):
        self.source = tmp_path / "source"
        self.source.mkdir()
        self.root = tmp_path / "store"
        self.cache = self.root / "cache" / "stat"

    @contextmanager
    def objects(self):
        with (
            closing(LocalBackend(self.root, create=True)) as backend,
            closing(ObjectStore(backend)) as objects,
        ):
            yield objects

    def take(self, source=None, *, flush=True, cache=True):
        """Ingest, and count the files that are read."""
        where = self.cache if cache else None
        with (
            self.objects() as objects,
            objects.writer() as writer,
            faults.watch(on={"read"}) as watched,
        ):
            taken = ingest(objects, writer, source or self.source, cache=where, workers=1)
            if flush:
                writer.flush()
        self.read = len(watched.calls)
        return taken.tree

    def expected(self):
        with self.objects() as objects:
            return put_model(objects, read_back(self.source)).digest


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def settle():
    """Let the clock move on, so that what was written before can be trusted."""
    time.sleep(fs.CLOCK_GRAIN_NS / 1e9)


def fill(place, count=40):
    model = {b"%04d" % n: ("file", b"%04d" % n) for n in range(count)}
    model[b"0010 d"] = dict(model)
    model[b"0010 d"][b"link"] = ("symlink", b"x")
    materialise(model, place.source)
    settle()


def test_what_is_unchanged_is_not_read(place):
    fill(place)
    first = place.take()
    assert place.read == 80
    assert place.take() == first
    assert place.read == 0


def test_only_what_changed_is_read(place):
    fill(place)
    place.take()
    (place.source / "0005").write_bytes(b"new")
    (place.source / "0005a").write_bytes(b"new")
    (place.source / "0010 d" / "0020").unlink()
    (place.source / "0009 e").mkdir()
    settle()
    assert place.take().digest == place.expected()
    assert place.read == 2
    place.take()
    assert place.read == 0


@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 3000])
def test_edits_in_a_large_folder_read_only_themselves(place, count):
    names = [b"%05d" % (2 * n) for n in range(count)]
    materialise({name: ("file", name) for name in names}, place.source)
    settle()
    place.take()
    base = os.fsencode(place.source)
    for name in names[:: count // 10 + 1]:
        os.unlink(os.path.join(base, name))
    added = [b"%05d" % n for n in range(1, 2 * count, max(2, count // 600) | 1) if n % 2]
    for name in added:
        with open(os.path.join(base, name), "wb") as file:
            file.write(b"+" + name)
    settle()
    assert place.take().digest == place.expected()
    assert place.read == len(added)
    place.take()
    assert place.read == 0


def test_a_change_of_equal_size_with_the_mtime_put_back_is_seen(place):
    fill(place)
    place.take()
    file = place.source / "0003"
    before = file.stat()
    file.write_bytes(b"9999")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert place.take().digest == place.expected()
    assert place.read == 1


def test_changes_within_a_tick_of_the_clock_are_seen(place):
    file = place.source / "file"
    for n in range(30):
        file.write_bytes(b"%04d" % n)
        tree = place.take()
        file.write_bytes(b"%04d" % (n + 5000))
        assert place.take().digest != tree.digest
    assert place.take().digest == place.expected()


@pytest.mark.parametrize("change", ["chmod", "swap", "link", "folder"])
def test_a_change_that_leaves_the_content_alone_is_seen(place, change):
    fill(place)
    (place.source / "0001").write_bytes(b"aaaa")
    settle()
    before = place.take()
    a, b = place.source / "0001", place.source / "0002"
    if change == "chmod":
        a.chmod(0o755)
    elif change == "swap":
        a.rename(place.source / "t")
        b.rename(a)
        (place.source / "t").rename(b)
    elif change == "link":
        a.unlink()
        a.symlink_to("0002")
    else:
        a.unlink()
        a.mkdir()
    after = place.take()
    assert after.digest != before.digest
    assert after.digest == place.expected()


def test_what_is_unchanged_is_not_built_and_the_index_not_written(place, monkeypatch):
    fill(place)
    tree = place.take()
    (name,) = os.listdir(place.cache)
    before = (place.cache / name).stat().st_ino
    monkeypatch.setattr(TreeBuilder, "finish", None)
    assert place.take() == tree
    assert (place.cache / name).stat().st_ino == before


@pytest.mark.parametrize("count", [1, 40, 1200])
@pytest.mark.parametrize("change", ["add", "delete", "edit", "add folder", "delete folder", "none"])
def test_a_change_anywhere_in_nested_folders_is_in_the_tree(place, change, count):
    files = {b"%04d" % n: ("file", b"%d" % n) for n in range(count)}
    model = {
        b"a": dict(files),
        b"b": {**files, b"empty": {}, b"0000 d": {b"x": dict(files)}, b"~": {}},
        b"b-": dict(files),
        **files,
    }
    materialise(model, place.source)
    settle()
    place.take()
    base = place.source / "b" / "0000 d" / "x"
    if change == "add":
        (base / "0000a").write_bytes(b"+")
    elif change == "delete":
        (base / "0000").unlink()
    elif change == "edit":
        (base / "0000").write_bytes(b"+")
    elif change == "add folder":
        (base / "new").mkdir()
    elif change == "delete folder":
        (place.source / "b" / "empty").rmdir()
        (place.source / "b" / "~").rmdir()
    for _ in range(3):
        settle()
        assert place.take().digest == place.expected()
    assert place.read == 0
    shutil.rmtree(base)
    assert place.take().digest == place.expected()
    assert place.read == 0


@pytest.mark.parametrize("gone", [range(1024), range(1024, 2048), range(2048, 3000)])
@pytest.mark.parametrize("folders", [(), (b"01024 d", b"01500 d"), (b"01023 d", b"02048 d")])
def test_a_whole_run_that_is_gone_is_missed(place, gone, folders):
    files = {b"%05d" % n: ("file", b"") for n in range(3000)}
    materialise({name: {} for name in folders} | {b"d": files} | files, place.source)
    settle()
    place.take()
    for n in gone:
        (place.source / f"{n:05}").unlink(missing_ok=True)
    assert place.take().digest == place.expected()
    for n in gone:
        (place.source / "d" / f"{n:05}").unlink()
    assert place.take().digest == place.expected()


def test_a_file_and_a_folder_that_hold_it_are_not_mistaken_for_each_other(place, tmp_path):
    """The index of a path that led to a file is used when it leads to the file's folder."""
    (place.source / "f").write_bytes(b"x")
    settle()
    link = tmp_path / "link"
    for _ in range(2):
        link.symlink_to(place.source / "f")
        file = place.take(link)
        link.unlink()
        link.symlink_to(place.source)
        assert place.take(link).digest == place.expected() != file.digest
        link.unlink()


def test_an_index_of_another_clock_is_not_trusted(place):
    fill(place)
    place.take()
    ahead = time.time() + 3600
    os.utime(place.source / "0003", (ahead, ahead))
    place.take()
    place.take()
    assert place.read == 1, "a time that lies ahead says nothing"


def test_without_a_flush_nothing_is_remembered(place):
    fill(place)
    place.take(flush=False)
    assert not os.listdir(place.cache)
    place.take()
    assert place.read == 80


def test_the_index_is_one_small_file_for_a_source(place, tmp_path):
    fill(place)
    place.take()
    place.take()
    assert len(os.listdir(place.cache)) == 1
    (tmp_path / "link").symlink_to(place.source)
    place.take(tmp_path / "link")
    assert place.read == 80, "another path has an index of its own"
    assert len(os.listdir(place.cache)) == 2


def test_the_sources_used_least_lately_are_forgotten(place, tmp_path):
    fill(place, 1)
    place.take()
    (first,) = os.listdir(place.cache)
    for n in range(KEPT + 3):
        other = place.cache / f"{n:032}"
        other.write_bytes(b"")
        os.utime(other, (n, n))
    (place.cache / ".old").write_bytes(b"")
    os.utime(place.cache / ".old", (0, 0))
    (place.cache / ".new").write_bytes(b"")
    (place.source / "more").write_bytes(b"")
    place.take()
    left = set(os.listdir(place.cache))
    assert {first, ".new"} <= left
    assert len(left - {".new"}) == KEPT
    assert f"{0:032}" not in left


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "garbage", "folder", "fifo", "link"])
def test_a_damaged_index_costs_only_time(place, damage, tmp_path):
    fill(place, 1200)
    expected = place.take()
    (name,) = os.listdir(place.cache)
    index = place.cache / name
    data = index.read_bytes()
    index.unlink()
    if damage == "cut":
        index.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        index.write_bytes(data[:999] + bytes([data[999] ^ 1]) + data[1000:])
    elif damage == "folder":
        index.mkdir()
    elif damage == "fifo":
        os.mkfifo(index)
    elif damage == "link":
        index.symlink_to(tmp_path / "nowhere")
    else:
        index.write_bytes(b"" if damage == "empty" else os.urandom(5000))
    assert place.take() == expected
    assert place.read > 0
    assert place.take() == expected
    if damage != "folder":
        assert place.read == 0, "and is mended"


def test_an_index_that_says_what_the_store_does_not_have_costs_only_time(place, tmp_path):
    fill(place, 1500)
    (place.source / "large").write_bytes(b"x" * (1 << 20))
    settle()
    expected = place.take()
    for folder in ("packs", "index", "loose"):
        shutil.rmtree(place.root / folder)
    assert place.take() == expected
    assert place.read == 3000
    assert_whole(place, expected)


def test_a_file_that_the_store_lost_is_read_again(place):
    fill(place)
    (place.source / "large").write_bytes(b"x" * (1 << 20))
    settle()
    place.take()
    shutil.rmtree(place.root / "loose")
    (place.source / "new").write_bytes(b"")  # so that the tree is a new one
    settle()
    assert_whole(place, place.take())


def assert_whole(place, tree):
    with place.objects() as objects:
        for _, entry in walk(objects.read, tree.digest):
            objects.read(entry[3])


def test_where_no_index_can_be_kept_the_ingest_goes_on(place):
    fill(place)
    place.cache.parent.mkdir(parents=True)
    place.cache.write_bytes(b"in the way")
    assert place.take().digest == place.expected()
    place.cache.unlink()
    with faults.fail(2, 30, on={"mkdir"}) as fault:
        assert place.take().digest == place.expected()
    assert fault.fired
    assert place.take(cache=False).digest == place.expected()


@pytest.mark.parametrize("step", ["link_fd", "rename", "unlink", "touch"])
def test_an_index_that_cannot_be_put_in_place_is_passed_over(place, step):
    fill(place)
    place.take()
    index = os.listdir(place.cache)
    if step != "touch":
        (place.source / "new").write_bytes(b"")
        settle()
    for n in range(KEPT if step == "unlink" else 0):
        (place.cache / f"{n:032}").write_bytes(b"")
    with place.objects() as objects, objects.writer() as writer:
        tree = ingest(objects, writer, place.source, cache=place.cache).tree
        actions = [action for action, _ in writer._after_flush]
        writer._after_flush.clear()
        writer.flush()
        with faults.fail(1, 28, on={step}) as fault:
            for action in actions:
                action()
    assert fault.fired
    assert tree.digest == place.expected()
    assert set(index) <= set(os.listdir(place.cache))


def test_an_index_that_the_disk_has_no_room_for_is_passed_over(place, monkeypatch):
    fill(place)
    index = StatCache.write
    written = []

    class Full:
        def write(self, data):
            raise OSError(28, os.strerror(28))

    def write(self, data):
        written.append(data)
        self._new_file, real = Full(), self._new_file
        try:
            index(self, data)
        finally:
            self._new_file = real

    monkeypatch.setattr(StatCache, "write", write)
    assert place.take().digest == place.expected()
    assert written
    assert os.listdir(place.cache) == []


def test_the_folder_of_a_shared_store_gives_the_group_its_rights(place):
    place.root.mkdir()
    place.root.chmod(0o2775)
    fill(place, 1)
    old = os.umask(0o077)
    try:
        place.take()
    finally:
        os.umask(old)
    assert stat.S_IMODE(place.cache.stat().st_mode) == 0o2775
    (name,) = os.listdir(place.cache)
    assert stat.S_IMODE((place.cache / name).stat().st_mode) == 0o664
