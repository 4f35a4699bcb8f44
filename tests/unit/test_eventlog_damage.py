"""A log whose files are cut, changed or gone: said by check, and never read as if it were whole."""

from __future__ import annotations

import pytest
import zstandard

from cas.backends import LocalBackend, MemoryBackend
from cas.codec import encode
from cas.digest import raw_hash
from cas.errors import DamagedLogError, OutcomeUnknownError
from cas.eventlog import EventLog, blocks, segment
from cas.eventlog.keys import Keys
from cas.eventlog.sealed import seal, unseal

KEYS = Keys("t")
RECORDS = 23


def fold(state, event, position, index):
    if event["value"] is None:
        state.delete(event["key"].encode())
    else:
        state.put(event["key"].encode(), event["value"])


def put(key, value):
    return {"type": "put", "key": key, "value": value}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(segment, "BLOCK", 200)
    monkeypatch.setattr(blocks, "_WORTH", 100)


def fill(backend):
    """Make a log with two snapshots, four segments, and records before and after the newest."""
    log = EventLog.create(backend, "t", fold, [put("k00", b"first")], compact_after=1000)
    for number in range(2, RECORDS + 1):
        key, value = f"k{number % 15:02d}", b"%d " % number * 20
        log.append(lambda state, position, key=key, value=value: [put(key, value)])
        if number in (5, 10, 15, 20):
            log.compact()
    return dict(log.state.scan(b""))


def opened(backend):
    return EventLog(backend, "t", fold, compact_after=1000)


def damage(content):
    """Give what may become of a file; None stands for its loss."""
    yield None
    yield content[:-1]
    yield content[: len(content) // 2]
    yield b""
    step = max(len(content) // 12, 1)
    for place in range(0, len(content), step):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        yield bytes(flipped)


def files(backend):
    return [entry.key for entry in backend.list("log/") if entry.key != KEYS.head]


def read(backend):
    """Return the whole state, or else the position that the error names."""
    log = opened(backend)
    try:
        found = dict(log.state.scan(b""))
    except DamagedLogError as error:
        return error.facts.get("position")
    else:
        return found if log.position == RECORDS else "cut short"


@pytest.fixture
def whole():
    backend = MemoryBackend()
    return backend, fill(backend)


def test_a_whole_log_has_no_findings_and_these_files(whole):
    backend, state = whole
    assert list(opened(backend).check()) == []
    assert dict(opened(backend).state.scan(b"")) == state
    assert len(list(backend.list(KEYS.records))) == 8
    assert len(list(backend.list(KEYS.snapshots))) == 2
    assert len(list(backend.list(KEYS.segments))) == 4


def test_any_damage_is_found_and_never_read_over(whole):
    backend, state = whole
    for key in files(backend):
        content = backend.get(key)
        for damaged in damage(content):
            backend.delete(key)
            if damaged is not None:
                backend.put(key, damaged)
            findings = list(opened(backend).check())
            assert [f for f in findings if f.location == key], (key, damaged, findings)
            if key.startswith(KEYS.records):
                assert int(key[-20:]) in {finding.position for finding in findings}
            assert read(backend) in (
                state,
                int(key[-20:]) if key.startswith(KEYS.records) else None,
            )
        backend.put(key, content)
    assert list(opened(backend).check()) == []


def test_a_damaged_record_of_the_tail_is_named_by_reading(whole):
    backend, _ = whole
    for number in (21, 22, 23):
        content = backend.get(KEYS.record(number))
        for damaged in damage(content):
            backend.delete(KEYS.record(number))
            if damaged is not None:
                backend.put(KEYS.record(number), damaged)
            with pytest.raises(DamagedLogError, match=f"record {number}") as caught:
                opened(backend).refresh()
            assert caught.value.facts["position"] == number
            with pytest.raises(DamagedLogError):
                opened(backend).append(lambda state, position: [put("x", b"x")])
        backend.put(KEYS.record(number), content)


def test_without_a_hint_a_gap_is_found_all_the_same(whole):
    backend, _ = whole
    backend.delete(KEYS.head)
    backend.delete(KEYS.record(22))
    with pytest.raises(DamagedLogError) as caught:
        opened(backend).refresh()
    assert caught.value.facts["position"] == 22


@pytest.mark.parametrize("hint", [None, b"", b"garbage", b"x" * 90])
def test_a_missing_or_garbled_hint_is_no_damage(whole, hint):
    backend, state = whole
    backend.delete(KEYS.head)
    if hint is not None:
        backend.put(KEYS.head, hint)
    log = opened(backend)
    assert dict(log.state.scan(b"")) == state
    assert list(log.check()) == []
    assert log.append(lambda state, position: [put("x", b"x")]).position == RECORDS + 1


def test_a_lost_tail_is_behind_its_hint(whole):
    backend, _ = whole
    for number in (23, 22, 21):
        backend.delete(KEYS.record(number))
        log = opened(backend)
        with pytest.raises(DamagedLogError) as caught:
            log.refresh()
        assert caught.value.facts["position"] == number
        assert number in {finding.position for finding in log.check()}


def test_a_running_process_notices_that_the_next_record_is_lost(whole):
    backend, _ = whole
    log, other = opened(backend), opened(backend)
    log.refresh()
    other.append(lambda state, position: [put("x", b"x")])
    backend.delete(KEYS.record(RECORDS + 1))
    with pytest.raises(DamagedLogError):
        log.append(lambda state, position: [put("y", b"y")])


def test_an_empty_log_is_damage(whole):
    backend, _ = whole
    for entry in list(backend.list("log/")):
        backend.delete(entry.key)
    with pytest.raises(DamagedLogError, match="empty"):
        opened(backend).refresh()
    assert [finding.position for finding in opened(backend).check()] == [1]


def test_an_edited_record_breaks_the_chain_behind_it(whole):
    backend, _ = whole
    number, identity, previous, at, events = unseal(backend.get(KEYS.record(22)), "record", 5)
    events[0]["value"] = b"forged"
    backend.put(KEYS.record(22), seal("record", number, identity, previous, at, events))
    with pytest.raises(DamagedLogError) as caught:
        opened(backend).refresh()
    assert caught.value.facts["position"] == 23
    assert {finding.position for finding in opened(backend).check()} == {23}


def test_an_edited_last_record_is_not_the_acknowledged_one(whole):
    backend, _ = whole
    number, identity, previous, at, events = unseal(backend.get(KEYS.record(23)), "record", 5)
    events[0]["value"] = b"forged"
    backend.put(KEYS.record(23), seal("record", number, identity, previous, at, events))
    with pytest.raises(DamagedLogError, match="acknowledged"):
        opened(backend).refresh()
    assert {finding.position for finding in opened(backend).check()} == {23}


def test_a_damaged_newest_snapshot_is_replaced_by_the_one_before_until_the_next(whole):
    backend, state = whole
    backend.put(KEYS.snapshot(4), b"damaged")
    log = opened(backend)
    assert dict(log.state.scan(b"")) == state
    log.append(lambda state, position: [put("new", b"new")])
    assert log.compact()
    log.append(lambda state, position: [put("newer", b"newer")])
    assert log.compact()
    state |= {b"new": b"new", b"newer": b"newer"}
    assert dict(opened(backend).state.scan(b"")) == state
    assert list(log.check()) == []


def test_both_snapshots_damaged_is_said(whole):
    backend, _ = whole
    backend.put(KEYS.snapshot(4), b"damaged")
    backend.put(KEYS.snapshot(3), b"damaged")
    with pytest.raises(DamagedLogError, match="snapshot 4"):
        opened(backend).refresh()
    assert len(list(opened(backend).check())) == 2


def test_a_first_snapshot_that_is_damaged_leaves_all_records():
    backend = MemoryBackend()
    log = EventLog.create(backend, "t", fold, [put("a", b"1")])
    log.append(lambda state, position: [put("b", b"2")])
    log.compact()
    backend.put(KEYS.snapshot(1), b"damaged")
    assert dict(opened(backend).state.scan(b"")) == {b"a": b"1", b"b": b"2"}
    backend.delete(KEYS.record(1))
    with pytest.raises(DamagedLogError, match="snapshot 1"):
        opened(backend).refresh()


def test_a_segment_damaged_while_it_is_in_use_is_read_from_the_snapshot_before(tmp_path):
    backend = LocalBackend(tmp_path / "s", create=True)
    state = fill(backend)
    log = opened(backend)
    assert log.position == RECORDS
    newest = max(entry.key for entry in backend.list(KEYS.segments))
    path = backend.path(newest)
    path.chmod(0o644)
    content = path.read_bytes()
    path.write_bytes(b"\x00" * len(content))
    assert log.state.get(b"k01") == state[b"k01"]
    assert dict(log.state.scan(b"")) == state
    log.append(lambda state, position: [put("x", b"x")])
    oldest = backend.path(min(entry.key for entry in backend.list(KEYS.segments)))
    oldest.chmod(0o644)
    oldest.write_bytes(b"\x00" * oldest.stat().st_size)
    fresh = opened(backend)
    with pytest.raises(DamagedLogError, match="segment"):
        dict(fresh.state.scan(b""))
    assert fresh.state.get(b"x") == b"x"


def test_a_record_whose_event_cannot_be_folded_is_named():
    backend = MemoryBackend()
    log = EventLog.create(backend, "t", lambda *_: None, [{"type": "any"}])
    log.append(lambda state, position: [{"type": "put", "key": "", "value": b"x"}])

    def strict(state, event, position, index):
        if event["type"] == "put":
            fold(state, event, position, index)

    with pytest.raises(DamagedLogError) as caught:
        EventLog(backend, "t", strict).refresh()
    assert caught.value.facts["position"] == 2
    assert [finding.position for finding in EventLog(backend, "t", strict).check()] == [2]


def test_a_record_that_vanishes_after_it_was_created_is_of_unknown_outcome(whole):
    backend, _ = whole
    log = opened(backend)
    log.refresh()
    create = backend.put_if_absent

    def create_and_lose(key, source):
        create(key, source)
        backend.delete(key)
        raise OSError(5, "lost")

    backend.put_if_absent = create_and_lose
    with pytest.raises(OutcomeUnknownError):
        log.append(lambda state, position: [put("x", b"x")])


def forge(backend, depth, *flats):
    """Replace a log's state by a segment of crafted blocks, each a child of the next."""
    backend.put(KEYS.segment("s"), b"".join(flats))
    log = EventLog(backend, "t", fold)
    record = next(iter(log.records()))
    offset = sum(map(len, flats[:-1]))
    root = [offset, len(flats[-1]), raw_hash(flats[-1])]
    size = sum(map(len, flats))
    info = ["s", size, 1, 1, 1, 1, depth, *root, 0, 0, b""]
    backend.put(
        KEYS.snapshot(1),
        seal("snapshot", 1, 0, 1, record.digest, b"n" * 16, "", [info]),
    )
    backend.delete(KEYS.record(1))


@pytest.mark.parametrize(
    ("depth", "flat"),
    [
        (0, [1, b"v"]),
        (0, [b"k", "text"]),
        (0, [b"k"]),
        (0, []),
        (0, {"k": "v"}),
        (1, [b"k", 0, 5]),
        (1, [b"k", "0", 5, b"d" * 32]),
        (1, [b"k", -9, 5, b"d" * 32]),
        (1, [b"k", 0, 1 << 62, b"d" * 32]),
        (1, [b"k", 0, 5, b"d" * 32]),
        (99, [b"k", 0, 5, b"d" * 32]),
    ],
)
def test_crafted_segments_are_refused(depth, flat):
    backend = MemoryBackend()
    EventLog.create(backend, "t", fold, [put("a", b"1")])
    forge(backend, depth, b"\x00" + encode(flat))
    for look in (
        lambda log: log.state.get(b"k"),
        lambda log: list(log.state.scan(b"")),
        lambda log: list(log.state.scan(b"", reverse=True)),
    ):
        with pytest.raises(DamagedLogError):
            look(opened(backend))
    assert list(opened(backend).check())


def test_a_block_that_claims_to_be_huge_is_refused():
    backend = MemoryBackend()
    EventLog.create(backend, "t", fold, [put("a", b"1")])
    packed = zstandard.ZstdCompressor().compress(bytes(30 << 20))
    forge(backend, 0, b"\x01" + packed)
    with pytest.raises(DamagedLogError, match="claims"):
        opened(backend).state.get(b"k")
