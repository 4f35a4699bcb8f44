"""Every damage to a pack, a loose object or a table is found, and said by what it hits."""

from __future__ import annotations

import errno
import random
import tracemalloc

import pytest
import zstandard

from cas import fs
from cas.backends import LocalBackend
from cas.digest import hash_bytes, raw_hash
from cas.errors import CasError, CorruptObjectError, NewerFormatError
from cas.objects import Checked, ObjectStore
from cas.objects.entries import BLOB, ENTRY, RAW, ZSTD
from cas.objects.loose import loose_key
from cas.objects.pack import END, FORMAT, MAGIC, TRAILER, pack_key
from cas.testing.damage import cut, flip
from cas.testing.objects import check_sound, sample


@pytest.fixture
def backend(tmp_path):
    backend = LocalBackend(tmp_path / "store", create=True)
    yield backend
    backend.close()


def fill(backend, objects):
    with ObjectStore(backend).writer() as writer:
        digests = [writer.put(content) for content in objects]
        writer.flush()
    (pack,) = ObjectStore(backend).packs()
    return digests, *pack


def test_a_sound_store_has_no_findings_and_counts_everything(backend):
    objects = sample(300)
    _, pack, size = fill(backend, objects)
    store = ObjectStore(backend)
    assert store.check_pack(pack) == Checked(len(objects), sum(map(len, objects)), size, ())
    assert store.check_pack(pack, quick=True) == Checked(0, 0, 0, ())
    check_sound(store)


def test_any_flipped_bit_of_a_pack_is_found_and_attributed(backend):
    objects = sample(20, largest=200)
    digests, pack, size = fill(backend, objects)
    store = ObjectStore(backend)
    path = backend.path(pack_key(pack))
    owners = {}
    for digest in digests:
        place = store.index.locate(digest)
        owners |= dict.fromkeys(range(place.offset, place.offset + place.stored), digest)
    for offset in range(size):
        flip(path, offset, 1 << offset % 8)
        checked = ObjectStore(backend).check_pack(pack)
        assert checked.findings, f"a flip at {offset} is not found"
        hit = owners.get(offset)
        assert {finding.digest for finding in checked.findings} == {hit}
        assert checked.objects == len(digests) - (hit is not None)
        flip(path, offset, 1 << offset % 8)
    check_sound(ObjectStore(backend))


@pytest.mark.parametrize("tables", [True, False])
def test_a_pack_cut_anywhere_is_found_and_the_rest_still_counted(backend, tables):
    objects = sample(20, largest=200)
    _, pack, size = fill(backend, objects)
    if not tables:
        for entry in list(backend.list("index/")):
            backend.delete(entry.key)
    whole = backend.get(pack_key(pack))
    for left in [*range(0, size, 41), size - 1]:
        backend.delete(pack_key(pack))
        backend.put(pack_key(pack), whole[:left])
        for quick in (True, False):
            checked = ObjectStore(backend).check_pack(pack, quick=quick)
            kinds = {finding.kind for finding in checked.findings}
            assert kinds == ({"truncated"} if tables else {"corrupt"})
            assert checked.findings[0].location == pack_key(pack)
        if tables:
            lost = [finding for finding in checked.findings if finding.digest]
            assert len(lost) + checked.objects == len(objects)


def test_a_pack_that_is_gone_is_missing_with_what_it_held(backend):
    digests, pack, _ = fill(backend, sample(20))
    backend.delete(pack_key(pack))
    store = ObjectStore(backend)
    assert [finding.kind for finding in store.check_pack(pack).findings] == ["missing"]
    for quick in (True, False):
        findings = store.check_tables(quick=quick).findings
        assert {finding.digest for finding in findings} == set(digests)
        assert {finding.kind for finding in findings} == {"missing"}


def test_a_medium_that_fails_is_unreadable_not_corrupt(backend, monkeypatch):
    objects = sample(300, largest=20_000)
    digests, pack, _ = fill(backend, objects)
    store = ObjectStore(backend)
    bad = store.index.locate(digests[7])
    real = fs.pread

    def pread(fd, length, offset):
        if offset < bad.offset + bad.stored and offset + length > bad.offset:
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, length, offset)

    monkeypatch.setattr(fs, "pread", pread)
    checked = store.check_pack(pack)
    assert [(f.kind, f.digest) for f in checked.findings] == [("unreadable", digests[7])]
    assert checked.objects == len(objects) - 1


def test_a_loose_object_is_proven_whole(backend):
    content = random.Random(1).randbytes(1 << 20)
    with ObjectStore(backend).writer() as writer:
        digest = writer.put(content)
        writer.flush()
    store = ObjectStore(backend)
    assert store.check_loose([digest]) == Checked(1, len(content), len(content), ())
    path = backend.path(loose_key(digest))
    flip(path, 700_000)
    (finding,) = store.check_loose([digest]).findings
    assert (finding.kind, finding.digest, finding.location) == (
        "corrupt",
        digest,
        loose_key(digest),
    )
    flip(path, 700_000)
    cut(path, len(content) - 1)
    assert [finding.kind for finding in store.check_loose([digest]).findings] == ["corrupt"]
    backend.delete(loose_key(digest))
    assert [finding.kind for finding in store.check_loose([digest]).findings] == ["missing"]


def test_of_several_loose_objects_each_is_proven(backend):
    contents = [random.Random(n).randbytes(1 << 20) for n in range(4)]
    with ObjectStore(backend).writer() as writer:
        digests = [writer.put(content) for content in contents]
        writer.flush()
    store = ObjectStore(backend)
    assert store.check_loose(digests) == Checked(4, 4 << 20, 4 << 20, ())
    flip(backend.path(loose_key(digests[1])), 7)
    backend.delete(loose_key(digests[2]))
    checked = store.check_loose(digests)
    assert [(f.kind, f.digest) for f in checked.findings] == [
        ("corrupt", digests[1]),
        ("missing", digests[2]),
    ]
    assert (checked.objects, checked.bytes, checked.read) == (2, 2 << 20, 2 << 20)


def test_any_flipped_bit_of_a_table_is_found_and_does_no_harm(backend):
    objects = sample(40, largest=300)
    digests, _, _ = fill(backend, objects)
    (table,) = backend.list("index/")
    path = backend.path(table.key)
    for offset in range(table.size):
        flip(path, offset, 1 << offset % 8)
        store = ObjectStore(backend)
        assert [store.read(digest) for digest in digests] == objects
        assert all(ObjectStore(backend).has_many(digests))
        findings = ObjectStore(backend).check_tables().findings
        assert {(f.kind, f.location) for f in findings} == {("corrupt", table.key)}
        flip(path, offset, 1 << offset % 8)


def test_a_table_cut_anywhere_is_found_and_does_no_harm(backend):
    objects = sample(40, largest=300)
    digests, _, _ = fill(backend, objects)
    (table,) = backend.list("index/")
    whole = backend.get(table.key)
    for left in [*range(0, table.size, 37), table.size - 1]:
        backend.put(table.key, whole[:left])
        store = ObjectStore(backend)
        assert all(store.has_many(digests))
        assert [content for _, content in store.read_many(digests)] == objects
        for quick in (True, False):
            (finding,) = ObjectStore(backend).check_tables(quick=quick).findings
            assert finding.location == table.key


def test_a_writer_over_a_damaged_table_still_stores_once(backend):
    objects = sample(40, largest=300)
    fill(backend, objects)
    (table,) = backend.list("index/")
    flip(backend.path(table.key), 70)
    with ObjectStore(backend).writer() as writer:
        for content in objects:
            writer.put(content)
        writer.flush()
        assert writer.new_objects == 0


# --- hostile packs -----------------------------------------------------------------------------


def forge(backend, stored, rows, *, count=None, version=FORMAT, zero=0):
    """Put a pack with any index in place, all its checksums right."""
    header = MAGIC + bytes(16)
    index = b"".join(ENTRY.pack(*row) for row in rows)
    end = TRAILER.pack(
        len(rows) if count is None else count, 24 + len(stored), version, zero, bytes(32), END
    )
    checksum = raw_hash(header + index + end[:24])
    content = header + stored + index + end[:24] + checksum + END
    digest = hash_bytes(content)
    backend.put(pack_key(digest), content)
    return digest


NAME = hash_bytes(b"abc")
FIRST, SECOND = sorted((NAME, hash_bytes(b"abd")))

HOSTILE = {
    "a raw object larger than what is stored": [(NAME, 0, 24, 3, 4, RAW, BLOB, 0)],
    "an object of exabytes": [(NAME, 0, 24, 3, 1 << 60, ZSTD, BLOB, 0)],
    "an object outside the pack": [(NAME, 0, 1 << 40, 3, 3, RAW, BLOB, 0)],
    "an object at the end of all offsets": [(NAME, 0, (1 << 64) - 1, 3, 3, RAW, BLOB, 0)],
    "stored bytes beyond the end": [(NAME, 0, 24, (1 << 32) - 1, 3, RAW, BLOB, 0)],
    "an unknown encoding": [(NAME, 0, 24, 3, 3, 9, BLOB, 0)],
    "a chunk list that is none": [(NAME, 0, 24, 3, 3, 2, BLOB, 0)],
    "a chunk list of exabytes": [(NAME, 0, 24, 3, 1 << 62, 2, BLOB, 0)],
    "a frame that is none": [(NAME, 0, 24, 3, 3, ZSTD, BLOB, 0)],
}


@pytest.mark.parametrize("rows", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_pack_gives_only_errors_of_ours(backend, rows):
    pack = forge(backend, b"abc", rows)
    store = ObjectStore(backend)
    for ask in (store.read, store.open, lambda d: list(store.stream(d)), store.prove):
        with pytest.raises(CasError):
            ask(NAME)
    with pytest.raises(CasError):
        list(store.read_many([NAME]))
    checked = store.check_pack(pack)
    assert checked.findings
    assert checked.objects == 0


AGAINST_THE_RULES = {
    "unsorted": [(SECOND, 0, 24, 3, 3, RAW, BLOB, 0), (FIRST, 0, 27, 3, 3, RAW, BLOB, 0)],
    "an object twice": [(NAME, 0, 24, 3, 3, RAW, BLOB, 0), (NAME, 0, 27, 3, 3, RAW, BLOB, 0)],
    "an overlap": [(FIRST, 0, 24, 3, 3, RAW, BLOB, 0), (SECOND, 0, 24, 3, 3, RAW, BLOB, 0)],
    "a gap": [(NAME, 0, 27, 3, 3, RAW, BLOB, 0)],
    "bytes of no object": [],
    "an ordinal": [(NAME, 1, 24, 6, 6, RAW, BLOB, 0)],
    "no zeros at the end": [(NAME, 0, 24, 6, 6, RAW, BLOB, 7)],
    "an unknown kind": [(NAME, 0, 24, 6, 6, RAW, 9, 0)],
}


@pytest.mark.parametrize("rows", AGAINST_THE_RULES.values(), ids=AGAINST_THE_RULES.keys())
def test_an_index_against_the_rules_is_found(backend, rows):
    pack = forge(backend, b"abcabc", rows)
    for quick in (True, False):
        assert ObjectStore(backend).check_pack(pack, quick=quick).findings


@pytest.mark.parametrize("count", [2, 1 << 20, 1 << 63])
def test_a_count_of_entries_that_cannot_be_is_found(backend, count):
    pack = forge(backend, b"abc", HOSTILE["a frame that is none"], count=count)
    store = ObjectStore(backend)
    assert store.check_pack(pack).findings
    assert not store.has(NAME)


def test_a_newer_pack_is_refused_not_guessed_at(backend):
    forge(backend, b"abc", [(NAME, 0, 24, 3, 3, RAW, BLOB, 0)], version=FORMAT + 1)
    with pytest.raises(NewerFormatError):
        ObjectStore(backend).read(NAME)


def test_a_zstd_frame_that_claims_to_be_huge_takes_no_memory(backend):
    frame = zstandard.ZstdCompressor().compress(bytes(256 << 20))
    for size in (256 << 20, 50):
        pack = forge(backend, frame, [(NAME, 0, 24, len(frame), size, ZSTD, BLOB, 0)])
        tracemalloc.start()
        with pytest.raises(CorruptObjectError):
            ObjectStore(backend).read(NAME)
        assert ObjectStore(backend).check_pack(pack).findings
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
        tracemalloc.stop()
        backend.delete(pack_key(pack))


def test_a_sound_pack_under_the_name_of_another_is_found(backend):
    _, pack, _ = fill(backend, [b"one"])
    with ObjectStore(backend).writer() as writer:
        digest = writer.put(b"two")
        writer.flush()
    other = next(found for found, _ in ObjectStore(backend).packs() if found != pack)
    content = backend.get(pack_key(pack))
    backend.delete(pack_key(other))
    backend.put(pack_key(other), content)
    (finding,) = ObjectStore(backend).check_pack(other).findings
    assert (finding.kind, finding.location) == ("corrupt", pack_key(other))
    with pytest.raises(CorruptObjectError):
        ObjectStore(backend).read(digest)
