"""The event log as one process uses it."""

from __future__ import annotations

import os
import threading

import pytest

from cas.backends import LocalBackend, MemoryBackend
from cas.backends.reader import LocalReader
from cas.errors import (
    ConflictError,
    DamagedLogError,
    EnvironmentFailure,
    NewerFormatError,
    RefusedError,
)
from cas.eventlog import COMPACT_AFTER, MAX_RECORD, EventLog, upkeep
from cas.eventlog.blocks import BLOCK
from cas.eventlog.keys import Keys
from cas.eventlog.sealed import FORMAT, seal

KEYS = Keys("t")


def fold(state, event, position, index):
    if event["type"] == "refused":
        raise RefusedError("the fold refuses")
    state.put(event["key"].encode(), event["value"])


def put(key, value=b""):
    return {"type": "put", "key": key, "value": value}


def created(backend, **options):
    return EventLog.create(backend, "t", fold, [put("first")], **options)


def test_a_log_is_made_once(tmp_path):
    backend = LocalBackend(tmp_path / "s", create=True)
    assert created(backend).position == 1
    with pytest.raises(ConflictError):
        created(backend)


def test_several_events_share_one_record():
    backend = MemoryBackend()
    log_ = created(backend)
    appended = log_.append(lambda state, position: [put("a", b"1"), put("b", b"2")])
    assert appended.position == log_.position == 2
    assert [event["key"] for event in appended.events] == ["a", "b"]
    (record,) = log_.records(after=1)
    assert [event["key"] for event in record.events] == ["a", "b"]
    assert record.identity == appended.identity


def test_what_decide_or_the_fold_refuses_is_not_written():
    backend = MemoryBackend()
    log_ = created(backend)

    def decide(state, position):
        raise ConflictError("refused")

    with pytest.raises(ConflictError):
        log_.append(decide)
    with pytest.raises(RefusedError, match="the fold refuses"):
        log_.append(lambda state, position: [put("a"), {"type": "refused"}])
    assert log_.append(lambda state, position: []).events == ()
    assert log_.state.get(b"a") is None
    assert [entry.key for entry in backend.list(KEYS.records)] == [KEYS.record(1)]


@pytest.mark.parametrize("event", [{}, {"type": 1}, {"type": "put", "key": "k", "value": object()}])
def test_what_is_no_event_is_refused(event):
    log_ = created(MemoryBackend())
    with pytest.raises(RefusedError):
        log_.append(lambda state, position: [event])
    assert log_.position == 1


def test_a_record_that_is_too_large_is_refused_at_the_door():
    log_ = created(MemoryBackend())
    with pytest.raises(RefusedError, match="fewer at a time"):
        log_.append(lambda state, position: [put("k", b"x" * MAX_RECORD)])
    log_.append(lambda state, position: [put("k", b"x" * (MAX_RECORD - 1000))])
    assert log_.position == 2


def test_decide_is_given_the_state_at_the_position_before_its_record():
    log_ = created(MemoryBackend())
    other = EventLog(log_._backend, "t", fold)
    seen = []

    def decide(state, position):
        seen.append((position, state.get(b"k"), list(state.scan(b"k"))))
        if position == 1:
            other.append(lambda state, position: [put("k", b"other")])
        return [put("mine")]

    assert log_.append(decide).position == 3
    assert seen == [(1, None, []), (2, b"other", [(b"k", b"other")])]


def test_a_decision_on_a_log_that_was_refreshed_meanwhile_is_made_again():
    log_ = created(MemoryBackend())
    other = EventLog(log_._backend, "t", fold)
    calls = []

    def decide(state, position):
        calls.append(position)
        if position == 1:
            other.append(lambda state, position: [put("other")])
        log_.refresh()
        return [put("mine")]

    assert log_.append(decide).position == 3
    assert calls == [1, 2]


def test_the_tail_is_compacted_by_itself():
    backend = MemoryBackend()
    log_ = created(backend)
    for number in range(3 * COMPACT_AFTER):
        log_.append(lambda state, position: [put(f"k{number}")])  # noqa: B023
    assert len(list(backend.list(KEYS.snapshots))) == 2
    assert len(list(backend.list(KEYS.records))) <= 2 * COMPACT_AFTER
    assert len(list(EventLog(backend, "t", fold).state.scan(b"k"))) == 3 * COMPACT_AFTER


def test_a_tail_of_large_records_is_compacted_sooner(monkeypatch):
    monkeypatch.setattr(upkeep, "COMPACT_BYTES", 20_000)
    backend = MemoryBackend()
    log_ = created(backend)
    for number in range(12):
        log_.append(lambda state, position: [put(f"k{number}", b"x" * 2000)])  # noqa: B023
    assert len(list(backend.list(KEYS.snapshots))) == 2


def test_a_full_compaction_leaves_one_segment_and_the_second_lets_the_rest_go():
    backend = MemoryBackend()
    log_ = created(backend, compact_after=3)
    for number in range(20):
        log_.append(lambda state, position: [put(f"k{number % 4}", b"x" * 2000)])  # noqa: B023
    log_.append(lambda state, position: [put("k0", b"y")])
    assert log_.compact(full=True)
    assert log_.compact(full=True)
    assert not log_.compact(full=True)
    assert not log_.compact()
    assert [entry.key for entry in backend.list(KEYS.records)] == []
    assert len(list(backend.list(KEYS.segments))) == 1
    assert list(log_.check()) == []
    assert len(dict(EventLog(backend, "t", fold).state.scan(b""))) == 5
    assert log_.append(lambda state, position: [put("more")]).position == 23


def test_a_scan_gives_what_was_there_when_it_was_asked_for():
    log_ = created(MemoryBackend())
    log_.append(lambda state, position: [put(f"k{number}", b"old") for number in range(9)])
    pairs = log_.state.scan(b"k")
    given = [next(pairs)]
    log_.append(lambda state, position: [put(f"k{number}", b"new") for number in range(12)])
    log_.compact(full=True)
    log_.compact(full=True)
    assert given + list(pairs) == [(b"k%d" % number, b"old") for number in range(9)]


def test_records_gives_what_is_still_there():
    backend = MemoryBackend()
    log_ = created(backend, compact_after=1000)
    for number in range(2, 31):
        log_.append(lambda state, position: [put(f"k{number}")])  # noqa: B023
        if number in (10, 20):
            log_.compact()
    assert [record.number for record in log_.records()] == list(range(11, 31))
    assert [record.number for record in log_.records(after=27)] == [28, 29, 30]
    assert list(log_.records(after=30)) == []


class ReadOnly(MemoryBackend):
    """A medium that cannot be written any more."""

    locked = False

    def put_if_absent(self, key, source):
        if self.locked:
            raise EnvironmentFailure("read-only file system", errno=30)
        return super().put_if_absent(key, source)

    def put(self, key, content, *, durable=True):
        if self.locked:
            raise EnvironmentFailure("read-only file system", errno=30)
        super().put(key, content, durable=durable)

    def settle(self, keys):
        if self.locked:
            raise EnvironmentFailure("read-only file system", errno=30)

    def delete(self, key):
        if self.locked:
            raise EnvironmentFailure("read-only file system", errno=30)
        super().delete(key)


def test_a_log_on_a_read_only_medium_can_be_read_and_checked():
    backend = ReadOnly()
    log_ = created(backend, compact_after=5)
    for number in range(23):
        log_.append(lambda state, position: [put(f"k{number}")])  # noqa: B023
    backend.delete(KEYS.head)
    backend.locked = True
    log_ = EventLog(backend, "t", fold)
    assert log_.refresh() == 24
    assert len(list(log_.state.scan(b"k"))) == 23
    assert list(log_.check()) == []
    with pytest.raises(EnvironmentFailure):
        log_.append(lambda state, position: [put("x")])


def test_a_newer_format_is_refused_by_name():
    backend = MemoryBackend()
    log_ = created(backend)
    head = backend.get(KEYS.head)
    body = seal("record", 2, b"i" * 16, b"d" * 32, "", [])
    assert body[8] == FORMAT
    from cas.digest import raw_hash

    newer = body[:8] + b"\x02" + body[9:-32]
    backend.put(KEYS.record(2), newer + raw_hash(newer))
    with pytest.raises(NewerFormatError):
        log_.refresh()
    assert backend.get(KEYS.head) == head


def test_threads_may_share_a_log(tmp_path):
    log_ = created(LocalBackend(tmp_path / "s", create=True), compact_after=10)
    errors = []

    def work(which):
        try:
            for number in range(25):
                event = put(f"{which}.{number}", b"v")
                log_.append(lambda state, position, event=event: [event])
                log_.state.get(b"first")
                list(log_.state.scan(b"1."))
        except Exception as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert log_.position == 101
    assert len(list(log_.state.scan(b""))) == 101


@pytest.mark.parametrize("size", [160, 2400, 4090, 16372])
def test_segments_stay_few_however_large_each_addition_is(size):
    backend = MemoryBackend()
    log_ = created(backend, compact_after=2)
    for number in range(200):
        event = put(f"k{number:05d}", b"x" * size)
        log_.append(lambda state, position, event=event: [event])
    assert len(log_._current().layers.segments) <= 9
    assert list(log_.check()) == []


def test_a_tail_of_many_events_is_compacted_sooner(monkeypatch):
    monkeypatch.setattr(upkeep, "COMPACT_EVENTS", 100)
    backend = MemoryBackend()
    log_ = created(backend)
    for number in range(10):
        events = [put(f"k{number}.{index}") for index in range(30)]
        log_.append(lambda state, position, events=events: events)
    assert len(list(backend.list(KEYS.snapshots))) == 2


def test_a_prefix_reads_only_the_blocks_that_hold_it(tmp_path, monkeypatch):
    backend = LocalBackend(tmp_path / "s", create=True)
    log_ = created(backend)
    for part in range(30):
        events = [put(f"{part:02d}/{number:03d}", os.urandom(200)) for number in range(200)]
        log_.append(lambda state, position, events=events: events)
    log_.compact(full=True)
    log_ = EventLog(backend, "t", fold)
    log_.refresh()
    reads = []
    read_at = LocalReader.read_at
    monkeypatch.setattr(
        LocalReader, "read_at", lambda *args: reads.append(args[2]) or read_at(*args)
    )
    assert len(list(log_.state.scan(b"07/"))) == 200
    blocks_below = 200 * 220 // BLOCK + 2
    assert len(reads) <= blocks_below + 2
    assert sum(reads) < log_._current().layers.segments[0].info.size / 8
    del reads[:]
    assert next(log_.state.scan(b"", reverse=True))[0] == b"first"
    assert log_.state.get(b"29/150") is not None
    assert len(reads) <= 4


def test_something_else_in_the_place_of_the_next_record_is_damage(tmp_path, monkeypatch):
    monkeypatch.setattr("cas.eventlog.log._PAUSE", 0)
    backend = LocalBackend(tmp_path / "s", create=True)
    log_ = created(backend)
    (tmp_path / "s/log/t/records/00000000000000000002").mkdir()
    with pytest.raises(DamagedLogError, match="cannot be read"):
        log_.append(lambda state, position: [put("a")])


def test_a_log_that_is_closed_or_let_go_holds_nothing_open(tmp_path):
    backend = LocalBackend(tmp_path / "s", create=True)
    log_ = created(backend)
    for number in range(2 * COMPACT_AFTER):
        log_.append(lambda state, position, number=number: [put(f"k{number}")])

    def held():
        found = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        return [
            at for fd in found if os.path.lexists(fd) and "/segments/" in (at := os.readlink(fd))
        ]

    assert held()
    log_.close()
    assert not held()
    assert log_.state.get(b"k0") == b""
    assert held()
    del log_
    assert not held()
