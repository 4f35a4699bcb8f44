"""Objects come back as they were put, or not at all, whatever they are and whatever is damaged."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cas.backends import LocalBackend, MemoryBackend
from cas.digest import hash_bytes
from cas.errors import CasError, DamagedError
from cas.objects import ObjectStore
from cas.objects.compression import Compressor, Decompressor
from cas.objects.entries import ENTRY, RAW, in_memory
from cas.objects.pack import Covered, pack_key
from cas.objects.table import Run, Table, write_table
from cas.testing.damage import cut, flip
from cas.testing.objects import check_holds, check_sound, contents

SMALL = {"loose_threshold": 5_000, "pack_target": 30_000}


@pytest.fixture(scope="module")
def root():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def fresh(root):
    return LocalBackend(tempfile.mkdtemp(dir=root), create=True)


def add(store, objects):
    with store.writer() as writer:
        expected = {writer.put(content): content for content in objects}
        writer.flush()
    return expected


@given(content=contents())
@example(content=b"a" * 95)
@example(content=b"a" * 96)
@example(content=bytes(range(256)) * 100)
def test_compression_gives_back_what_it_was_given(content):
    stored, encoding = Compressor().encode(content)
    assert len(stored) <= len(content)
    if encoding == RAW:
        assert stored == content
    else:
        assert len(stored) * 10 <= len(content) * 9
        assert Decompressor().decode(stored, len(content)) == content


@given(
    stored=st.one_of(
        st.binary(max_size=200), contents(500).map(lambda c: Compressor().encode(c)[0])
    ),
    size=st.integers(0, 1 << 40),
    flips=st.lists(st.tuples(st.integers(0, 199), st.integers(1, 255)), max_size=3),
)
def test_decompression_of_anything_gives_bytes_or_an_error_of_ours(stored, size, flips):
    damaged = bytearray(stored)
    for offset, mask in flips:
        if offset < len(damaged):
            damaged[offset] ^= mask
    decompressor = Decompressor()
    try:
        assert isinstance(decompressor.decode(bytes(damaged), size), bytes)
    except DamagedError:
        pass
    for encoding in range(4):
        decompressor.decode_all(bytes(damaged), 0, [(0, len(damaged), size, encoding)])


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "local"])
@given(batches=st.lists(st.lists(contents(), max_size=12), min_size=1, max_size=4), data=st.data())
@settings(max_examples=25)
def test_what_is_put_comes_back_and_is_stored_once(root, memory, batches, data):
    backend = MemoryBackend() if memory else fresh(root)
    store = ObjectStore(backend, **SMALL)
    expected = {}
    for batch in batches:
        expected |= add(store, batch)
        if data.draw(st.booleans()):
            store = ObjectStore(backend, **SMALL)
        if data.draw(st.booleans()):
            store.tidy()
    assert store.count() == len(expected)
    check_holds(store, expected)
    check_sound(store)
    backend.close()


@given(objects=st.lists(contents(4_000), min_size=1, max_size=8), data=st.data())
@settings(max_examples=40)
def test_no_damage_to_a_pack_ever_gives_wrong_bytes_or_goes_unseen(root, objects, data):
    backend = fresh(root)
    store = ObjectStore(backend, loose_threshold=1 << 20)
    expected = add(store, objects)
    ((pack, size),) = store.packs()
    path = backend.path(pack_key(pack))
    if data.draw(st.booleans()):
        flip(path, data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, 255)))
    else:
        cut(path, data.draw(st.integers(0, size - 1)))
    if data.draw(st.booleans()):
        for entry in list(backend.list("index/")):
            backend.delete(entry.key)
    damaged = ObjectStore(backend)
    assert damaged.check_pack(pack).findings
    lost = 0
    for digest, content in expected.items():
        for read in (
            damaged.read,
            lambda d: b"".join(damaged.stream(d)),
            lambda d: next(damaged.read_many([d]))[1],
            lambda d: damaged.open(d).read(),
        ):
            try:
                assert read(digest) == content
            except DamagedError:
                lost += 1
    assert lost <= 4 * len(expected)
    backend.close()


@given(content=st.binary(max_size=3_000))
@settings(max_examples=60)
def test_any_bytes_in_the_place_of_packs_tables_and_proofs_give_only_errors_of_ours(root, content):
    backend = fresh(root)
    expected = add(ObjectStore(backend), [b"an object", os.urandom(1 << 20)])
    for prefix in ("packs/", "index/", "cache/"):
        for entry in list(backend.list(prefix)):
            kept = backend.get(entry.key)
            backend.put(entry.key, content + kept[len(content) :] if content else kept[:-1])
    store = ObjectStore(backend)
    for digest, wanted in expected.items():
        try:
            assert store.read(digest) == wanted
        except DamagedError:
            pass
    for check in (store.check_tables, lambda: [store.check_pack(p) for p, _ in store.packs()]):
        check()
    try:
        with store.writer() as writer:
            writer.put(b"another")
            writer.flush()
        store.tidy()
        assert store.read(hash_bytes(b"another")) == b"another"
    except CasError:
        pytest.fail("a damaged pack stands in the way of a new one")
    backend.close()


ANY_DIGEST = st.binary(min_size=32, max_size=32)
ALIKE = st.binary(min_size=12, max_size=12).map(lambda tail: bytes(20) + tail)


@given(
    digests=st.lists(st.sets(ANY_DIGEST | ALIKE, max_size=60), min_size=1, max_size=5),
    strangers=st.lists(ANY_DIGEST | ALIKE, max_size=20),
)
def test_a_table_finds_exactly_what_its_packs_hold(digests, strangers):
    backend = MemoryBackend()
    runs = []
    for number, held in enumerate(digests):
        index = b"".join(
            ENTRY.pack(digest, 0, 24 + place, 1, 1, 0, 0, 0)
            for place, digest in enumerate(sorted(held))
        )
        covered = Covered(hash_bytes(b"%d" % number), 1000, len(held), len(held))
        runs.append(Run(in_memory(index), (covered,)))
    keep = frozenset(run.packs[0].digest for run in runs)
    table = Table.open(backend, write_table(backend, runs, keep))
    again = Table.open(backend, write_table(backend, [Run(table.entries, table.packs)], keep))
    assert again.digest == table.digest
    assert table.sound()
    assert list(table.check_buckets()) == []
    for _ in range(2):
        for digest in [*strangers, *set().union(*digests)]:
            found = {place.pack for place in table.find_all(digest)}
            assert found == {
                run.packs[0].digest
                for run, held in zip(runs, digests, strict=True)
                if digest in held
            }
        table.load()
