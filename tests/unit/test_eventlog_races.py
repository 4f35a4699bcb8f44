"""The rules of the event log, one by one: who stalls, loses an acknowledgement or dies, and where.

`tests/stateful/test_event_log.py` searches for what is not written down here.
"""

from __future__ import annotations

import pytest

from cas.backends import MemoryBackend
from cas.errors import DiskFullError, EnvironmentFailure, NotFoundError, OutcomeUnknownError
from cas.eventlog import EventLog, compaction, log, segment
from cas.eventlog.keys import Keys
from cas.eventlog.record import write_record
from cas.testing.stepping import Actor, Order, PowerCutBackend, SteppingBackend

KEYS = Keys("t")
RECORD = "/records/"
SNAPSHOT = "/snapshots/"
SEGMENT = "/segments/"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(log, "_PAUSE", 0)


def fold(state, event, position, index):
    key = event["token"].encode()
    state.put(key, (state.get(key) or b"") + b"%d;" % position)


def add(token):
    return lambda state, position: [{"type": "add", "token": token}]


@pytest.fixture
def disk():
    return PowerCutBackend(MemoryBackend())


@pytest.fixture
def backend(disk):
    backend = SteppingBackend(disk)
    EventLog.create(backend, "t", fold, [{"type": "add", "token": "first"}])
    return backend


def opened(backend):
    return EventLog(backend, "t", fold, compact_after=10_000)


def appending(backend, token):
    """An append of a process that has read the log before."""
    log_ = opened(backend)
    log_.refresh()
    return Actor(lambda: log_.append(add(token)))


def go_to(actor, method, place):
    """Let an actor go on until it stands before a call."""
    while actor.call is not None and not (actor.call[0] == method and place in actor.call[1]):
        actor.step()
    assert actor.call is not None, "it never came there"


def fill(backend, count, prefix="o"):
    log_ = opened(backend)
    for number in range(count):
        log_.append(add(f"{prefix}{number}"))
    return log_


def whole(backend):
    """Return the state as a cold process reads it, after checking every byte."""
    log_ = opened(backend)
    assert list(log_.check()) == []
    return dict(log_.state.scan(b""))


def test_a_lost_acknowledgement_is_found_out(backend):
    actor = appending(backend, "mine")
    go_to(actor, "put_if_absent", RECORD)
    actor.step(Order.LOSE)
    actor.finish()
    assert actor.result.position == 2
    assert whole(backend) == {b"first": b"1;", b"mine": b"2;"}


def test_a_retry_that_meets_its_own_record_is_acknowledged_once(backend):
    put = backend.put_if_absent
    backend.put_if_absent = lambda key, source: put(key, source) and put(key, source)
    assert opened(backend).append(add("mine")).position == 2
    assert whole(backend) == {b"first": b"1;", b"mine": b"2;"}


def test_a_writer_that_stalls_before_its_record_starts_over_when_compactions_went_past(backend):
    stale = opened(backend)
    stale.refresh()
    actor = appending(backend, "mine")
    go_to(actor, "put_if_absent", RECORD)
    for turn in range(2):
        fill(backend, 3, f"o{turn}").compact()
    assert KEYS.record(2) not in {entry.key for entry in backend.list("log/")}
    actor.step()
    # Its record 2 is there now, and nobody may take it for the log's.
    assert KEYS.record(2) in {entry.key for entry in backend.list("log/")}
    assert b"mine" not in whole(backend)
    assert stale.refresh() == 7
    assert stale.state.get(b"mine") is None
    actor.finish()
    assert actor.result.position == 8
    assert whole(backend)[b"mine"] == b"8;"


def test_a_writer_that_stalls_behind_its_record_finds_it_in_the_snapshot(backend):
    actor = appending(backend, "mine")
    go_to(actor, "put_if_absent", RECORD)
    actor.step()
    for turn in range(2):
        fill(backend, 3, f"o{turn}").compact()
    assert KEYS.record(2) not in {entry.key for entry in backend.list("log/")}
    actor.finish()
    assert actor.result.position == 2
    assert whole(backend)[b"mine"] == b"2;"


def test_a_lost_acknowledgement_is_found_out_behind_a_compaction(backend):
    actor = appending(backend, "mine")
    go_to(actor, "put_if_absent", RECORD)
    actor.step(Order.LOSE)
    for turn in range(2):
        fill(backend, 3, f"o{turn}").compact()
    actor.finish()
    assert actor.result.position == 2
    assert whole(backend)[b"mine"] == b"2;"


@pytest.mark.parametrize("stalls_before", [True, False])
def test_a_writer_that_was_overtaken_too_far_cannot_know(backend, monkeypatch, stalls_before):
    monkeypatch.setattr(segment, "KNOWN", 5)
    monkeypatch.setattr(compaction, "KNOWN", 5)
    actor = appending(backend, "mine")
    go_to(actor, "put_if_absent", RECORD)
    if not stalls_before:
        actor.step()
    for turn in range(4):
        fill(backend, 3, f"o{turn}").compact(full=True)
    actor.finish()
    assert isinstance(actor.error, OutcomeUnknownError)
    assert (b"mine" in whole(backend)) is not stalls_before


def test_a_record_is_acknowledged_only_when_it_survives_a_power_cut(backend, disk):
    actor = appending(backend, "mine")
    go_to(actor, "sync", RECORD)
    actor.step(Order.FAIL)  # the record is there, the directory's sync failed
    actor.finish()
    assert actor.result.position == 2
    disk.cut(lambda choices: None)
    assert whole(backend)[b"mine"] == b"2;"


def test_a_record_whose_sync_keeps_failing_is_of_unknown_outcome(backend, disk):
    actor = appending(backend, "mine")
    go_to(actor, "sync", RECORD)
    actor.step(Order.FAIL)
    go_to(actor, "settle", RECORD)
    actor.step(Order.FAIL)
    assert isinstance(actor.error, OutcomeUnknownError)
    disk.cut(lambda choices: choices[-1])
    assert b"mine" not in whole(backend)


def test_no_record_outlives_the_one_before_it(backend, disk):
    first, second = appending(backend, "one"), appending(backend, "two")
    go_to(first, "sync", RECORD)
    go_to(second, "sync", RECORD)
    first.kill()
    second.kill()
    # The second name reached the medium, the first did not, unless it was made to.
    disk.cut(lambda choices: choices[0] if b"two" in (choices[0] or b"") else choices[-1])
    assert whole(backend) == {b"first": b"1;", b"one": b"2;", b"two": b"3;"}


def test_no_snapshot_outlives_the_records_in_it(backend, disk):
    actor = appending(backend, "mine")
    go_to(actor, "sync", RECORD)
    assert opened(backend).compact()
    actor.kill()
    disk.cut(lambda choices: choices[-1])
    assert whole(backend)[b"mine"] == b"2;"


def test_the_hint_claims_no_more_than_is_durable(backend, disk):
    mine, other = appending(backend, "mine"), appending(backend, "other")
    go_to(mine, "put_if_absent", RECORD)
    mine.step()
    mine.step()  # its record is there and durable
    assert opened(backend).compact()
    go_to(other, "sync", RECORD)
    mine.finish()  # it reads on, since there is a snapshot, and sees the other record
    assert mine.result.position == 2
    other.kill()
    disk.cut(lambda choices: choices[0] if (choices[0] or b"")[1:6] == b"\xa4head" else choices[-1])
    assert b"mine" in whole(backend)


def test_the_hint_is_written_after_the_acknowledgement_and_not_waited_for(backend, disk):
    calls = []
    put, put_if_absent = disk.put, disk.put_if_absent
    disk.put = lambda key, content, *, durable: (
        calls.append((key, durable)) or put(key, content, durable=durable)
    )
    disk.put_if_absent = lambda key, source: calls.append(key) or put_if_absent(key, source)
    opened(backend).append(add("mine"))
    assert calls == [KEYS.record(2), (KEYS.head, False)]


def test_a_hint_that_cannot_be_written_is_no_failure(backend):
    actor = appending(backend, "mine")
    go_to(actor, "put", "head")
    actor.step(Order.FULL)
    assert actor.result.position == 2


def test_a_reader_that_compactions_overtake_starts_again(backend):
    for stop in range(30):
        fill(backend, 3, f"a{stop}").compact()
        fill(backend, 1, f"b{stop}")
        log_ = opened(backend)
        reader = Actor(lambda log_=log_: (log_.refresh(), dict(log_.state.scan(b""))))
        for _ in range(stop):
            reader.step()
        if reader.done:
            break
        fill(backend, 3, f"c{stop}").compact()
        fill(backend, 3, f"d{stop}").compact()
        before = opened(backend).refresh()
        reader.finish()
        assert reader.error is None
        position, state = reader.result
        assert position == before
        assert state == whole(backend)
    assert reader.done


def test_a_compaction_may_die_at_any_step():
    done = False
    stop = 0
    while not done:
        stop += 1
        backend = SteppingBackend(MemoryBackend())
        EventLog.create(backend, "t", fold, [{"type": "add", "token": "first"}])
        fill(backend, 4).compact()
        fill(backend, 4, "p")
        state = whole(backend)
        log_ = opened(backend)
        actor = Actor(lambda log_=log_, full=stop % 3 == 0: log_.compact(full=full))
        for _ in range(stop):
            actor.step()
        done = actor.done
        actor.kill()
        assert whole(backend) == state
        for _ in range(2):
            fill(backend, 1, "z").compact(full=True)
        assert len(list(backend.list(KEYS.segments))) <= 2
        assert len(list(backend.list(KEYS.snapshots))) == 2
        assert whole(backend).items() > state.items()
    assert stop > 20


def test_of_two_compactions_at_once_one_wins(backend):
    fill(backend, 5)
    state = whole(backend)
    logs = opened(backend), opened(backend)
    actors = [Actor(lambda log_=log_: log_.compact()) for log_ in logs]
    for actor in actors:
        go_to(actor, "put_if_absent", SNAPSHOT)
    for actor in actors:
        actor.finish()
    assert [actor.result for actor in actors] == [True, False]
    assert len(list(backend.list(KEYS.segments))) == 1
    assert whole(backend) == state
    assert dict(logs[1].state.scan(b"")) == state


def test_a_compaction_whose_number_was_given_and_deleted_deletes_nothing(backend):
    fill(backend, 5)
    log_ = opened(backend)
    stalled = Actor(log_.compact)
    go_to(stalled, "put_if_absent", SNAPSHOT)
    for turn in range(3):
        dying = Actor(fill(backend, 3, f"o{turn}").compact)
        go_to(dying, "list", SEGMENT)
        dying.kill()
    state = whole(backend)
    stalled.finish()
    assert stalled.result is False
    assert whole(backend) == state
    fill(backend, 1, "z").compact()
    assert len(list(backend.list(KEYS.snapshots))) == 2


def test_a_compaction_that_the_next_one_follows_at_once_deletes_nothing(backend):
    fill(backend, 5)
    quick = Actor(opened(backend).compact)
    go_to(quick, "put_if_absent", SNAPSHOT)
    quick.step()
    quick.step()
    fill(backend, 3, "a").compact()
    state = whole(backend)
    quick.finish()
    assert quick.result is False
    assert whole(backend) == state


def test_a_reader_takes_no_record_for_one_that_was_compacted_away(backend):
    fill(backend, 1)
    zombie = appending(backend, "zombie")
    go_to(zombie, "put_if_absent", RECORD)
    log_ = opened(backend)
    reader = Actor(lambda: (log_.refresh(), dict(log_.state.scan(b""))))
    go_to(reader, "get", KEYS.record(3))
    full = fill(backend, 3, "a")
    full.compact(full=True)
    full.compact(full=True)
    backend.delete(KEYS.head)
    zombie.step()
    reader.finish()
    assert reader.result == (5, whole(backend))
    zombie.finish()
    assert zombie.result.position == 6


def test_a_compaction_that_stalls_before_it_deletes_harms_no_later_one(backend):
    fill(backend, 5).compact()
    fill(backend, 5, "p")
    log_ = opened(backend)
    stalled = Actor(log_.compact)
    go_to(stalled, "delete", "")
    for turn in range(3):
        fill(backend, 3, f"o{turn}").compact(full=turn == 1)
    state = whole(backend)
    stalled.finish()
    assert whole(backend) == state


@pytest.mark.parametrize("place", [SEGMENT, SNAPSHOT])
@pytest.mark.parametrize("order", [Order.FULL, Order.FAIL, Order.LOSE])
def test_a_compaction_that_fails_does_not_fail_the_append_behind_it(backend, place, order):
    fill(backend, 3)
    log_ = EventLog(backend, "t", fold, compact_after=5)
    actor = Actor(lambda: log_.append(add("mine")))
    go_to(actor, "put_if_absent", place)
    actor.step(order)
    actor.finish()
    assert actor.result.position == 5
    assert whole(backend)[b"mine"] == b"5;"
    log_.append(add("more"))
    log_.compact()
    assert whole(backend)[b"more"] == b"6;"


def test_on_a_full_disk_nothing_is_appended(backend):
    actor = appending(backend, "mine")
    go_to(actor, "put_if_absent", RECORD)
    actor.step(Order.FULL)
    actor.finish()
    assert isinstance(actor.error, DiskFullError)
    assert not isinstance(actor.error, OutcomeUnknownError)
    assert whole(backend) == {b"first": b"1;"}


def test_a_look_that_fails_behind_an_uncertain_put_leaves_the_outcome_unknown(backend):
    actor = appending(backend, "mine")
    go_to(actor, "put_if_absent", RECORD)
    actor.step(Order.LOSE)
    go_to(actor, "get", RECORD)
    actor.step(Order.FAIL)
    assert isinstance(actor.error, OutcomeUnknownError)
    assert whole(backend)[b"mine"] == b"2;"


def test_a_failing_put_is_tried_again_where_it_may_be_under_way(backend):
    actor = appending(backend, "mine")
    go_to(actor, "put_if_absent", RECORD)
    actor.step(Order.FAIL)
    actor.finish()
    assert actor.result.position == 2
    assert whole(backend)[b"mine"] == b"2;"


def test_a_failing_read_before_anything_was_written_is_just_a_failure(backend):
    actor = appending(backend, "mine")
    actor.step(Order.FAIL)
    assert isinstance(actor.error, EnvironmentFailure)
    assert not isinstance(actor.error, OutcomeUnknownError)
    assert whole(backend) == {b"first": b"1;"}


def test_a_reader_takes_no_stray_record_in_the_place_of_one_that_is_gone_for_damage(backend):
    reader, writer = opened(backend), opened(backend)
    position = reader.refresh()
    for number in range(4):
        writer.append(add(str(number)))
        assert writer.compact()
    key = KEYS.record(position + 1)
    with pytest.raises(NotFoundError):
        backend.get(key)
    # A writer that stalled before the compactions puts it there, after a record nobody has now.
    stray, _ = write_record(position + 1, bytes(32), [{"type": "add", "token": "stray"}])
    assert backend.put_if_absent(key, stray)
    assert reader.refresh() == writer.position
    assert reader.state.get(b"stray") is None
    assert reader.state.get(b"3") is not None
