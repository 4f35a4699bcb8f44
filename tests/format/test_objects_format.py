"""Packs, index tables and loose objects, read by what docs/format.md says and nothing else."""

import random
import struct

import msgpack
import pytest
import zstandard
from blake3 import blake3

from cas.backends import LocalBackend
from cas.objects import BLOB, TREE, ObjectStore

TEXT = b"the same words again and again\n" * 50
NOISE = random.Random(1).randbytes(5000)
LARGE = random.Random(2).randbytes(1 << 20)


def digest(data):
    return blake3(data).digest()


@pytest.fixture
def root(tmp_path):
    objects = ObjectStore(LocalBackend(tmp_path / "store", create=True))
    for data, kind in ((TEXT, BLOB), (NOISE, BLOB), (b"", TREE), (LARGE, BLOB)):
        with objects.writer() as writer:
            writer.put(data, kind)
            writer.flush()
    objects.close()
    return tmp_path / "store"


def parse_pack(path):
    """Give digest, encoding, kind and content of what is in a pack."""
    data = path.read_bytes()
    assert path.name == digest(data).hex() + ".pack"
    assert data[:8] == b"CASPACK\x01"
    count, at, version, zero, checksum, magic = struct.unpack(">QQII32s8s", data[-64:])
    assert (version, zero, magic) == (1, 0, b"CASPEND\x01")
    index = data[at:-64]
    assert len(index) == 60 * count
    assert checksum == digest(data[:24] + index + data[-64:-40])
    rows = list(struct.iter_unpack(">32sIQIQBBH", index))
    assert [row[0] for row in rows] == sorted({row[0] for row in rows})
    for name, ordinal, offset, stored, size, encoding, kind, zero in rows:
        assert (ordinal, zero) == (0, 0)
        content = data[offset : offset + stored]
        if encoding == 1:
            content = zstandard.ZstdDecompressor().decompress(content)
        assert (digest(content), len(content)) == (name, size)
        yield name, encoding, kind, content


def parse_table(path):
    """Give digest and pack of each entry, looked up through the fan-out."""
    data = path.read_bytes()
    assert path.name == digest(data).hex() + ".idx"
    assert data[:8] == b"CASINDX\x01"
    count, packs, bits, version, checksum, magic = struct.unpack(">QQII32s8s", data[-64:])
    assert (version, magic) == (1, b"CASIEND\x01")
    packs_at = 8 + 60 * count
    slots_at = packs_at + 56 * packs
    listed = data[packs_at:slots_at]
    assert checksum == digest(listed + data[-64:-40])
    names = [row[0] for row in struct.iter_unpack(">32sQQQ", listed)]
    slots = list(struct.iter_unpack(">Q8s", data[slots_at:-64]))
    assert len(slots) == 1 << bits
    start = 0
    for number, (stop, total) in enumerate(slots):
        bucket = data[8 + 60 * start : 8 + 60 * stop]
        assert total == digest(struct.pack(">QQQ", number, start, stop) + bucket)[:8]
        for row in struct.iter_unpack(">32sIQIQBBH", bucket):
            assert int.from_bytes(row[0]) >> (256 - bits) == number
            yield row[0], names[row[1]]
        start = stop
    assert start == count


def test_packs_are_as_the_page_says(root):
    found = {}
    for path in (root / "packs").iterdir():
        for name, encoding, kind, content in parse_pack(path):
            found[name] = (encoding, kind, content)
    assert found == {
        digest(TEXT): (1, 0, TEXT),
        digest(NOISE): (0, 0, NOISE),
        digest(b""): (0, 1, b""),
    }


def test_tables_are_as_the_page_says(root):
    packed = {
        (name, bytes.fromhex(path.stem))
        for path in (root / "packs").iterdir()
        for name, *_ in parse_pack(path)
    }
    tabled = {pair for path in (root / "index").iterdir() for pair in parse_table(path)}
    assert tabled == packed


def test_loose_objects_and_proofs_are_as_the_page_says(root):
    name = digest(LARGE)
    path = root / "loose" / name.hex()[:2] / name.hex()
    assert path.read_bytes() == LARGE
    st = path.stat()
    proof = (root / "cache/proofs" / name.hex()[:2] / name.hex()).read_bytes()
    fields = struct.pack(
        ">8sQQQqq",
        b"CASPROF\x01",
        *(st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns),
    )
    assert proof == fields + digest(name + fields)


def test_a_chunk_list_written_by_the_page_is_read(tmp_path):
    objects = ObjectStore(LocalBackend(tmp_path / "store", create=True))
    pieces = [NOISE[:2000], NOISE[2000:]]
    with objects.writer() as writer:
        for piece in pieces:
            writer.put(piece)
        writer.flush()
    chunks = msgpack.packb([[digest(piece), len(piece)] for piece in pieces])
    head = b"CASPACK\x01" + bytes(16)
    index = struct.pack(">32sIQIQBBH", digest(NOISE), 0, 24, len(chunks), len(NOISE), 2, 0, 0)
    sealed = struct.pack(">QQII", 1, 24 + len(chunks), 1, 0)
    data = head + chunks + index + sealed + digest(head + index + sealed) + b"CASPEND\x01"
    (tmp_path / "store/packs" / f"{digest(data).hex()}.pack").write_bytes(data)
    assert ObjectStore(LocalBackend(tmp_path / "store")).read(digest(NOISE)) == NOISE
