"""A log read with nothing but docs/format.md, BLAKE3, MessagePack and zstd."""

from __future__ import annotations

import msgpack
import pytest
import zstandard
from blake3 import blake3

from cas.backends import LocalBackend
from cas.digest import hash_bytes
from cas.eventlog import segment
from cas.refs import create_catalogue


def unseal(path, kind):
    content = path.read_bytes()
    assert blake3(content[:-32]).digest() == content[-32:]
    value = msgpack.unpackb(content[:-32])
    assert value[:2] == [kind, 1]
    return value[2:], content[-32:]


def block(content, offset, length, digest):
    stored = content[offset : offset + length]
    assert blake3(stored).digest() == digest
    plain = stored[1:]
    if stored[0] == 1:
        plain = zstandard.ZstdDecompressor().decompress(plain)
    return msgpack.unpackb(plain)


def leaves(content, depth, pointer):
    flat = block(content, *pointer)
    if depth == 0:
        yield from zip(flat[::2], flat[1::2], strict=True)
        return
    for place in range(0, len(flat), 4):
        inside = list(leaves(content, depth - 1, flat[place + 1 : place + 4]))
        assert inside[0][0] == flat[place]
        yield from inside


def read_snapshot(log, number):
    """Return position, digest, state and the identities of a snapshot, and the one before it."""
    fields, _ = unseal(log / "snapshots" / f"{number:020d}", "snapshot")
    sequence, previous, position, digest, _nonce, _at, segments = fields
    assert sequence == number
    state, identities, covered = {}, {}, 0
    for name, size, entries, _plain, first, last, depth, *pointers in segments:
        content = (log / "segments" / name).read_bytes()
        assert len(content) == size
        assert content[:8] == b"casseg\x00\x01"
        assert first == covered + 1
        covered = last
        pairs = list(leaves(content, depth, pointers[:3])) if entries else []
        assert len(pairs) == entries
        assert [key for key, _ in pairs] == sorted({key for key, _ in pairs})
        state.update(pairs)
        if pointers[4]:
            (known,) = block(content, *pointers[3:])
            for place in range(0, len(known), 16):
                number = last + 1 - len(known) // 16 + place // 16
                identities[number] = known[place : place + 16]
    assert covered == position
    state = {key: value for key, value in state.items() if value is not None}
    return position, digest, state, identities, previous


@pytest.mark.parametrize("block_size", [300, 32 << 10])
def test_a_log_can_be_read_from_its_specification(tmp_path, monkeypatch, block_size):
    monkeypatch.setattr(segment, "BLOCK", block_size)
    refs = create_catalogue(
        LocalBackend(tmp_path / "s", create=True), [{"type": "init", "store_id": "0" * 32}]
    )
    why = {"by": "me", "reason": "", "at": "2026"}
    for number in range(1, 140):
        manifest = b"manifest %d " % number * 20
        event = {
            "type": "version",
            "resource": "skills",
            "number": number,
            "digest": hash_bytes(manifest),
            "manifest": manifest,
        }
        tag = {"type": "tag", "name": f"t{number % 5}", "digest": event["digest"], "spec": "x"}
        untag = {"type": "tag-removed", "name": f"t{number % 5}"}
        events = [event, tag | why] + ([untag | why] if number % 3 == 0 else [])
        refs.publish(lambda _, events=events: events)

    log = tmp_path / "s" / "log" / "catalogue"
    numbers = sorted(int(path.name) for path in (log / "snapshots").iterdir())
    assert len(numbers) == 2
    position, digest, state, identities, previous = read_snapshot(log, numbers[1])
    assert previous == numbers[0]
    before, digest_before, *_ = read_snapshot(log, previous)
    assert {int(path.name) for path in (log / "records").iterdir()} == set(
        range(before + 1, refs.log.position + 1)
    )

    chain = digest_before
    for number in range(before + 1, refs.log.position + 1):
        fields, own = unseal(log / "records" / f"{number:020d}", "record")
        assert fields[0] == number
        assert fields[2] == chain
        assert identities.get(number, fields[1]) == fields[1]
        chain = own
        if number == position:
            assert own == digest
        if number > position:
            for event in fields[4]:
                if event["type"] == "version":
                    key = b"version\0skills\0" + event["number"].to_bytes(8, "big")
                    state[key] = b"\0" + event["digest"] + event["manifest"]
    assert chain == unseal(log / "head", "head")[0][1]
    assert unseal(log / "head", "head")[0][0] == refs.log.position.to_bytes(8, "big")

    found = {
        int.from_bytes(key[-8:], "big"): value
        for key, value in state.items()
        if key.startswith(b"version\0skills\0")
    }
    assert found == {
        ref.number: b"\0" + ref.digest + ref.manifest_bytes for ref in refs.versions("skills")
    }
    assert len(found) == 139
