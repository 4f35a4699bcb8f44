"""Small packs and tables are merged in passing, and nobody notices but by the time it saves."""

from __future__ import annotations

import math

import pytest

from cas import locking
from cas.backends import LocalBackend, MemoryBackend
from cas.errors import CorruptObjectError, MissingObjectError
from cas.objects import ObjectStore
from cas.objects.merging import FAN
from cas.objects.pack import pack_key
from cas.testing.damage import cut, flip
from cas.testing.objects import check_holds, check_sound, sample


@pytest.fixture(params=["local", "memory"])
def backend(request, tmp_path):
    if request.param == "memory":
        yield MemoryBackend()
        return
    backend = LocalBackend(tmp_path / "store", create=True)
    yield backend
    backend.close()


@pytest.fixture
def local(tmp_path):
    backend = LocalBackend(tmp_path / "store", create=True)
    yield backend
    backend.close()


def add(store, objects):
    with store.writer() as writer:
        digests = [writer.put(content) for content in objects]
        writer.flush()
    return dict(zip(digests, objects, strict=True))


def keys(backend, prefix):
    return [entry.key for entry in backend.list(prefix)]


def test_many_adds_leave_a_logarithmic_number_of_packs_and_tables():
    backend = MemoryBackend()
    store = ObjectStore(backend)
    expected = {}
    most = {"packs/": 0, "index/": 0}
    for number in range(600):
        expected |= add(store, [b"object %d" % number, b"another %d" % number])
        store.tidy()
        for prefix in most:
            most[prefix] = max(most[prefix], len(keys(backend, prefix)))
    assert most["packs/"] <= 2 * FAN
    assert most["index/"] <= FAN + math.log2(len(expected))
    fresh = ObjectStore(backend)
    assert fresh.count() == len(expected)
    check_holds(fresh, expected)
    check_sound(fresh)


def test_packs_near_their_target_are_left_alone(backend):
    store = ObjectStore(backend, pack_target=20_000)
    for seed in range(20):
        add(store, sample(20, seed=seed))
    large = {digest for digest, size in store.packs() if size >= 5_000}
    store.tidy()
    assert large <= {digest for digest, _ in store.packs()}


def test_merging_many_packs_seals_at_the_target(backend):
    store = ObjectStore(backend, pack_target=40_000)
    expected = {}
    for seed in range(2 * FAN):
        expected |= add(store, sample(8, seed=seed))
    store.tidy()
    sizes = [size for _, size in store.packs()]
    assert len(sizes) < FAN
    assert max(sizes) < 60_000
    check_holds(ObjectStore(backend), expected)


def test_an_open_store_reads_on_after_its_packs_were_merged_away(backend):
    store = ObjectStore(backend)
    expected = {}
    readers = []
    for number in range(FAN):
        expected |= add(store, [b"object %d" % number])
        readers.append((ObjectStore(backend), dict(expected)))
    before = keys(backend, "packs/")
    store.tidy()
    assert not set(before) & set(keys(backend, "packs/"))
    for reader, known in readers:
        check_holds(reader, known)
        assert reader.check_tables().findings == ()


def test_a_writer_whose_pack_was_merged_away_settles_on_the_new_one(backend):
    store = ObjectStore(backend)
    expected = {}
    for number in range(FAN):
        expected |= add(store, [b"object %d" % number])
    with ObjectStore(backend).writer() as writer:
        assert all(writer.known(digest) for digest in expected)
        store.tidy()
        writer.flush()
    check_holds(ObjectStore(backend), expected)


def test_what_a_writer_relied_on_and_is_gone_is_an_error_once(backend):
    store = ObjectStore(backend)
    (digest,) = add(store, [b"relied on"])
    with store.writer() as writer:
        writer.put(b"relied on")
        (key,) = keys(backend, "packs/")
        backend.delete(key)
        with pytest.raises(MissingObjectError, match=str(digest)):
            writer.flush()
    with store.writer() as writer:
        writer.put(b"relied on")
        writer.flush()
    check_holds(ObjectStore(backend), {digest: b"relied on"})


def test_what_a_writer_relied_on_and_was_cut_is_an_error(local):
    store = ObjectStore(local)
    add(store, [b"relied on"])
    with store.writer() as writer:
        writer.put(b"relied on")
        (key,) = keys(local, "packs/")
        cut(local.path(key), 50)
        with pytest.raises(CorruptObjectError, match=key):
            writer.flush()


def test_a_writer_that_relies_on_nothing_does_not_look(backend):
    store = ObjectStore(backend)
    add(store, [b"known"])
    with store.writer(relied=False) as writer:
        writer.put(b"known")
        for key in keys(backend, "packs/"):
            backend.delete(key)
        writer.flush()


def test_a_damaged_pack_is_left_for_verify_and_the_others_are_merged(local):
    store = ObjectStore(local)
    expected = {}
    for number in range(FAN + 2):
        expected |= add(store, [b"object %d" % number])
    key = keys(local, "packs/")[3]
    flip(local.path(key), 26)
    store.tidy()
    assert key in keys(local, "packs/")
    assert len(keys(local, "packs/")) == 2
    bad = [digest for digest in expected if not readable(store, digest)]
    assert len(bad) == 1
    (finding,) = store.check_pack(next(d for d, _ in store.packs() if pack_key(d) == key)).findings
    assert finding.digest == bad[0]


def readable(store, digest):
    try:
        store.read(digest)
    except CorruptObjectError:
        return False
    return True


def add_copies(backend):
    """Store one large pack, and `FAN` small ones that hold copies of a part of it."""
    copied = [b"copy %d " % number * 20 for number in range(FAN)]
    writers = [ObjectStore(backend).writer() for _ in range(FAN)]
    expected = add(ObjectStore(backend), [*copied, *sample(30)])
    for number, writer in enumerate(writers):
        with writer:
            for content in (b"new %d" % number, copied[number]):
                expected[writer.put(content)] = content
            writer.flush()
    return expected


def test_merging_drops_copies_of_what_lies_in_a_pack_that_stays(backend):
    expected = add_copies(backend)
    store = ObjectStore(backend, pack_target=20_000)
    assert store.count() == len(expected) + FAN
    store.tidy()
    assert store.count() == len(expected)
    check_holds(ObjectStore(backend), expected)


def test_a_corrupt_copy_in_a_pack_that_stays_replaces_no_good_one(local):
    expected = add_copies(local)
    large = max(local.list("packs/"), key=lambda entry: entry.size)
    for offset in range(24, 200, 7):
        flip(local.path(large.key), offset)
    store = ObjectStore(local, pack_target=20_000)
    store.tidy()
    assert store.count() > len(expected)
    check_holds(ObjectStore(local), expected)


def test_a_merge_that_another_process_is_at_is_left_to_it(local):
    store = ObjectStore(local)
    for number in range(FAN):
        add(store, [b"object %d" % number])
    before = keys(local, "")
    local.make_directories(["locks"])
    with locking.exclusive(local.path("locks/merge"), 0):
        store.tidy()
        assert [key for key in keys(local, "") if not key.startswith("locks/")] == before
    store.tidy()
    assert len(keys(local, "packs/")) == 1


def test_packs_that_no_table_covers_get_one(backend):
    store = ObjectStore(backend)
    expected = {}
    for number in range(4):
        expected |= add(store, [b"object %d" % number])
    for key in keys(backend, "index/"):
        backend.delete(key)
    assert len(list(ObjectStore(backend).uncovered())) == 4
    ObjectStore(backend).tidy()
    assert len(keys(backend, "index/")) == 1
    assert list(ObjectStore(backend).uncovered()) == []
    check_holds(ObjectStore(backend), expected)


def test_a_damaged_table_is_replaced(local):
    store = ObjectStore(local)
    expected = add(store, sample(50))
    (key,) = keys(local, "index/")
    for offset in (local.path(key).stat().st_size - 60, 100):
        flip(local.path(key), offset)
        fresh = ObjectStore(local)
        assert all(fresh.has_many(expected))
        flip(local.path(key), offset)
    flip(local.path(key), local.path(key).stat().st_size - 60)
    ObjectStore(local).tidy()
    check_holds(ObjectStore(local), expected)
    check_sound(ObjectStore(local))


def test_tables_of_packs_that_are_gone_are_cleared_away(backend):
    store = ObjectStore(backend)
    expected = {}
    for number in range(FAN):
        expected |= add(store, [b"object %d" % number])
    tables = {key: backend.get(key) for key in keys(backend, "index/")}
    store.tidy()
    for key, content in tables.items():
        backend.put(key, content)
    store.tidy()
    assert not tables.keys() & set(keys(backend, "index/"))
    check_holds(ObjectStore(backend), expected)


def test_tidying_a_tidy_store_changes_nothing(backend):
    store = ObjectStore(backend)
    for number in range(3 * FAN):
        add(store, [b"object %d" % number])
    store.tidy()
    before = keys(backend, "")
    store.tidy()
    assert keys(backend, "") == before
