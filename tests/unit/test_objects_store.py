"""What the object store promises to those who read and write through it."""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path

import pytest

from cas.backends import LocalBackend, MemoryBackend
from cas.codec import encode
from cas.digest import hash_bytes
from cas.errors import CorruptObjectError, MissingObjectError, RefusedError
from cas.objects import BLOB, TREE, VERSION, ObjectStore
from cas.objects.entries import CHUNKS
from cas.objects.loose import loose_key
from cas.objects.pack import PackBuilder, pack_key
from cas.testing.damage import flip
from cas.testing.objects import sample

SMALL = {"loose_threshold": 10_000, "pack_target": 64_000}


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


def store_all(backend, objects, **options):
    with ObjectStore(backend, **(options or SMALL)).writer() as writer:
        digests = [writer.put(data) for data in objects]
        writer.flush()
    return digests


def test_what_was_put_comes_back_from_another_instance(backend):
    objects = [b"", b"x", *sample(200), random.Random(5).randbytes(50_000), b"long " * 9000]
    digests = store_all(backend, objects)
    assert digests == [hash_bytes(data) for data in objects]
    reader = ObjectStore(backend, **SMALL)
    assert [reader.read(digest) for digest in digests] == objects
    assert all(reader.has_many(digests))
    for digest, data in zip(digests, objects, strict=True):
        with reader.open(digest) as file:
            assert file.read() == data
            file.seek(len(data) // 2)
            assert file.read(10) == data[len(data) // 2 :][:10]
        assert b"".join(reader.stream(digest)) == data
        assert reader.info(digest).size == len(data)


def test_read_many_keeps_the_order_asked_for(backend):
    objects = [*sample(300), random.Random(2).randbytes(30_000)]
    digests = store_all(backend, objects)
    asked = digests + digests[:20]
    random.Random(3).shuffle(asked)
    found = list(ObjectStore(backend, **SMALL).read_many(iter(asked)))
    assert [digest for digest, _ in found] == asked
    assert all(hash_bytes(data) == digest for digest, data in found)


def test_nothing_is_visible_before_it_is_flushed(backend):
    with ObjectStore(backend).writer() as writer:
        digest = writer.put(b"not yet")
        assert writer.known(digest)
        assert not ObjectStore(backend).has(digest)
        writer.flush()
    assert ObjectStore(backend).has(digest)


def test_a_writer_left_without_flush_leaves_nothing(backend):
    with ObjectStore(backend).writer() as writer:
        digest = writer.put(b"dropped")
    assert not ObjectStore(backend).has(digest)
    assert list(backend.list("packs/")) == []


def test_equal_content_is_stored_once(backend):
    objects = [*sample(50), random.Random(4).randbytes(20_000)]
    store_all(backend, objects)
    before = ObjectStore(backend).totals()
    with ObjectStore(backend, **SMALL).writer() as writer:
        for data in objects + objects:
            writer.put(data)
        writer.flush()
        assert (writer.new_objects, writer.new_bytes, writer.stored_bytes) == (0, 0, 0)
    assert ObjectStore(backend).totals() == before
    assert before.objects == len(objects)
    assert before.bytes == sum(map(len, objects))


def test_a_missing_object_is_said_by_its_digest(backend):
    digest = hash_bytes(b"never stored")
    reader = ObjectStore(backend)
    for ask in (reader.read, reader.info, reader.open, reader.prove, lambda d: [*reader.stream(d)]):
        with pytest.raises(MissingObjectError, match=str(digest)):
            ask(digest)
    assert not reader.has(digest)


def test_an_open_store_finds_what_others_add_later(backend):
    reader = ObjectStore(backend)
    digest = hash_bytes(b"later")
    assert not reader.has(digest)
    store_all(backend, [b"later"])
    assert reader.read(digest) == b"later"


def test_an_object_over_the_limit_is_refused_before_it_is_read(backend):
    digests = store_all(backend, [b"y" * 5000, b"z" * 20_000])
    reader = ObjectStore(backend)
    for digest in digests:
        with pytest.raises(RefusedError, match="at most 4999"):
            reader.read(digest, max_bytes=4999)


def test_digests_are_found_by_their_beginning(backend):
    objects = [*sample(400), random.Random(8).randbytes(11_000)]
    digests = store_all(backend, objects)
    reader = ObjectStore(backend)
    for digest in digests:
        assert digest in reader.find(digest.hex()[:7])
    assert reader.find(digests[0].hex()) == [digests[0]]
    prefix = digests[0].hex()[:2]
    expected = sorted(d for d in digests if d.hex().startswith(prefix))
    assert reader.find(prefix, limit=100) == expected
    with pytest.raises(RefusedError):
        reader.find("x" * 6)


def test_large_objects_are_files_of_their_own_and_manifests_are_not(local):
    data = random.Random(1).randbytes(30_000)
    with ObjectStore(local, **SMALL).writer() as writer:
        blob = writer.put(data)
        tree = writer.put(data[1:], TREE)
        writer.flush()
    reader = ObjectStore(local)
    path = reader.loose_path(blob)
    assert path is not None
    assert path.read_bytes() == data
    assert reader.info(blob).location == loose_key(blob)
    assert reader.loose_path(tree) is None
    assert reader.info(tree).kind == TREE
    assert reader.open_loose(tree) is None


def test_a_loose_object_is_proven_until_it_is_touched(local):
    data = random.Random(1).randbytes(30_000)
    (digest,) = store_all(local, [data])
    reader = ObjectStore(local)
    assert reader.proven(digest)
    path = reader.loose_path(digest)
    st = path.stat()
    path.chmod(0o644)
    path.write_bytes(data[:-1] + b"!")
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
    assert not reader.proven(digest)
    with pytest.raises(CorruptObjectError, match=str(digest)):
        reader.open(digest)
    with pytest.raises(CorruptObjectError):
        reader.prove(digest)
    with pytest.raises(CorruptObjectError):
        reader.read(digest)


def test_a_lost_proof_costs_only_time(local):
    data = random.Random(1).randbytes(30_000)
    (digest,) = store_all(local, [data])
    for entry in list(local.list("cache/")):
        local.delete(entry.key)
    reader = ObjectStore(local)
    assert not reader.proven(digest)
    path = reader.loose_path(digest)
    os.utime(path, ns=(1, 1))
    time.sleep(0.03)  # a proof is not taken while the stat is as young as the clock's grain
    with reader.open(digest) as file:
        assert file.read() == data
    assert reader.proven(digest)


def test_a_corrupt_proof_is_not_believed(local):
    (digest,) = store_all(local, [random.Random(1).randbytes(30_000)])
    (proof,) = local.list("cache/proofs/")
    for offset in range(proof.size):
        content = bytearray(local.get(proof.key))
        content[offset] ^= 1
        local.put(proof.key, bytes(content))
        assert not ObjectStore(local).proven(digest)
        content[offset] ^= 1
        local.put(proof.key, bytes(content))


def test_deleting_the_index_costs_only_time(backend):
    objects = [*sample(100), random.Random(4).randbytes(20_000)]
    digests = store_all(backend, objects)
    for entry in list(backend.list("index/")):
        backend.delete(entry.key)
    reader = ObjectStore(backend, **SMALL)
    assert all(reader.has_many(digests))
    assert [reader.read(digest) for digest in digests] == objects
    with reader.writer() as writer:
        for data in objects:
            writer.put(data)
        assert writer.new_objects == 0
        writer.flush()
    reader.tidy()
    assert list(backend.list("index/"))
    assert [data for _, data in ObjectStore(backend).read_many(digests)] == objects


def test_the_other_copy_is_read_when_one_is_corrupt(local):
    objects = sample(30)
    one, two = ObjectStore(local), ObjectStore(local)
    with one.writer() as first, two.writer() as second:
        digests = [first.put(data) for data in objects]
        for data in objects:
            second.put(data)
        first.flush()
        second.flush()
    packs = list(local.list("packs/"))
    assert len(packs) == 2
    for offset in range(24, packs[0].size - 30 * 64 - 64, 50):
        flip(local.path(packs[0].key), offset, 0xFF)
    assert [ObjectStore(local).read(digest) for digest in digests] == objects


def test_a_corrupt_object_names_digest_and_place(local):
    (digest,) = store_all(local, [b"some text, but not much of it"])
    (pack,) = local.list("packs/")
    flip(local.path(pack.key), 30, 1)
    with pytest.raises(CorruptObjectError) as caught:
        ObjectStore(local).read(digest)
    assert caught.value.facts == {"digest": str(digest), "location": f"{pack.key}:24"}


def chunked(backend, chunks, wrong=()):
    """Store an object as a list of chunks, as a later version of the writer will."""
    whole = b"".join(chunks)
    rows = [[hash_bytes(chunk), len(chunk)] for chunk in chunks]
    builder = PackBuilder(backend.stage())
    for digest, chunk in {hash_bytes(chunk): chunk for chunk in chunks}.items():
        builder.add(digest, chunk, len(chunk), 0, BLOB)
    stored = encode([*rows, *wrong])
    builder.add(hash_bytes(whole), stored, len(whole), CHUNKS, BLOB)
    with builder.staging as staging:
        covered, _ = builder.seal()
        backend.put_if_absent(pack_key(covered.digest), staging)
    return hash_bytes(whole), whole, covered.digest


def test_a_chunk_list_reads_like_any_object(backend):
    rng = random.Random(6)
    chunks = [rng.randbytes(rng.randrange(1, 5000)) for _ in range(20)]
    chunks.append(chunks[3])
    digest, whole, pack = chunked(backend, chunks)
    reader = ObjectStore(backend)
    assert reader.read(digest) == whole
    assert b"".join(reader.stream(digest)) == whole
    assert list(reader.read_many([digest])) == [(digest, whole)]
    assert reader.info(digest).size == len(whole)
    with reader.open(digest) as file:
        for _ in range(50):
            at = rng.randrange(len(whole))
            file.seek(at)
            assert file.read(700) == whole[at : at + 700]
        file.seek(0)
        assert file.read() == whole
    checked = reader.check_pack(pack)
    assert checked.findings == ()
    assert checked.objects == 21


def test_a_chunk_list_that_does_not_add_up_is_corrupt(backend):
    digest, whole, pack = chunked(backend, [b"a" * 10, b"b" * 20], wrong=[[hash_bytes(b""), 1]])
    reader = ObjectStore(backend)
    for ask in (reader.read, reader.open, lambda d: list(reader.stream(d))):
        with pytest.raises(CorruptObjectError):
            ask(digest)
    (finding,) = reader.check_pack(pack).findings
    assert finding.digest == digest
    assert len(whole) == 30


def test_kinds_are_kept_as_hints(backend):
    with ObjectStore(backend).writer() as writer:
        digest = writer.put(b"a manifest", VERSION)
        writer.flush()
    assert ObjectStore(backend).info(digest).kind == VERSION


def test_a_read_only_store_is_read(local, tmp_path):
    data = random.Random(1).randbytes(30_000)
    digests = store_all(local, [b"small", data])
    for entry in list(local.list("cache/")):
        local.delete(entry.key)
    for path in [tmp_path / "store", *Path(tmp_path / "store").rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        reader = ObjectStore(local)
        assert reader.read(digests[0]) == b"small"
        with reader.open(digests[1]) as file:
            assert file.read() == data
        reader.tidy()
    finally:
        for path in [tmp_path / "store", *Path(tmp_path / "store").rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)


def test_only_what_is_not_shown_to_have_its_size_is_left_to_be_asked_for(backend):
    objects = sample(300, seed=5)
    store_all(backend, objects)
    with contextlib.closing(ObjectStore(backend, **SMALL)) as store:
        items = sorted({hash_bytes(data) + len(data).to_bytes(8) for data in objects})
        wrong = [item[:32] + (int.from_bytes(item[32:]) + 1).to_bytes(8) for item in items[::7]]
        absent = [hash_bytes(b"absent %d" % n) + (3).to_bytes(8) for n in range(5)]
        for item in items:  # tables are taken into memory when they are used
            store.sizes([item[:32]])
        asked = sorted([*items, *wrong, *absent])
        assert sorted(store.unlike(asked)) == sorted([*wrong, *absent])
        assert store.unlike([]) == []
