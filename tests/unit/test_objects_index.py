"""Looking objects up through tables that are too large to be held, and packs without a table."""

from contextlib import closing

import pytest

from cas.backends import LocalBackend
from cas.digest import hash_bytes
from cas.objects import ObjectStore, index


@pytest.fixture
def objects(tmp_path):
    with (
        closing(LocalBackend(tmp_path / "store", create=True)) as backend,
        closing(ObjectStore(backend)) as objects,
    ):
        yield objects


def put(objects, contents):
    with objects.writer() as writer:
        digests = [writer.put(content) for content in contents]
        writer.flush()
    return digests


@pytest.mark.parametrize("whole", [0, 1 << 30])
def test_every_bucket_of_a_table_is_found_however_much_of_it_is_held(objects, monkeypatch, whole):
    monkeypatch.setattr(index, "WHOLE_LIMIT", whole)
    digests = put(objects, [b"%d" % n for n in range(3000)])
    for _ in range(2):
        assert all(objects.index.locate(digest) for digest in digests)
        for n in range(3000):
            assert objects.index.locate(hash_bytes(b"not %d" % n)) is None
    assert objects.index.damaged == {}
    assert [table.loaded for table in objects.index.tables] == [whole > 0]


def test_a_pack_is_not_asked_itself_once_there_is_a_table_of_it(objects, tmp_path):
    put(objects, [b"a"])
    (table,) = (tmp_path / "store" / "index").iterdir()
    content = table.read_bytes()
    table.unlink()
    objects.index.refresh()
    assert len(objects.index.runs) == 1
    table.write_bytes(content)
    objects.index.add(bytes.fromhex(table.stem))
    assert objects.index.runs == ()
    assert objects.index.locate(hash_bytes(b"a")) is not None
