"""Merging by pieces: no append does much, whoever dies, loses or stalls over it."""

from __future__ import annotations

import os

import pytest

from cas.backends import MemoryBackend
from cas.eventlog import EventLog, blocks, compaction, log, merging, segment, tiers, upkeep
from cas.eventlog.keys import DIGITS, Keys
from cas.eventlog.snapshot import read_snapshot
from cas.eventlog.tiers import FAN
from cas.testing.stepping import Actor, Order, SteppingBackend

KEYS = Keys("t")
SNAPSHOT = "/snapshots/"
SEGMENT = "/segments/"
EVERY = 4
"""Records after which these logs make a snapshot."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Make segments of a few records so large that they are not merged at once."""
    monkeypatch.setattr(segment, "BLOCK", 400)
    monkeypatch.setattr(blocks, "_WORTH", 100)
    monkeypatch.setattr(tiers, "_SMALLEST", 500)
    monkeypatch.setattr(upkeep, "AT_ONCE", 600)
    monkeypatch.setattr(upkeep, "STEP", 3000)
    monkeypatch.setattr(upkeep, "SHARE", 0)
    monkeypatch.setattr(log, "_PAUSE", 0)


def fold(state, event, position, index):
    key = event["key"].encode()
    if event["type"] == "delete":
        state.delete(key)
    else:
        state.put(key, event["value"])


def put(key, size=250):
    return {"type": "put", "key": key, "value": os.urandom(size)}


def opened(backend):
    return EventLog(backend, "t", fold, compact_after=EVERY)


@pytest.fixture
def backend():
    backend = SteppingBackend(MemoryBackend())
    EventLog.create(backend, "t", fold, [put("first")])
    return backend


def fill(log_, count, name="k"):
    for _ in range(count):
        event = put(f"{name}{log_.position}")
        log_.append(lambda state, position, event=event: [event])


def fill_until(log_, holds, name="k"):
    """Append until something holds."""
    for _ in range(400):
        if holds():
            return
        fill(log_, 1, name)
    raise AssertionError("it never came to that")


def running(log_):
    return log_._upkeep._merges


def segments(backend):
    newest = max(int(entry.key[-DIGITS:]) for entry in backend.list(KEYS.snapshots))
    return read_snapshot(backend, KEYS, newest).segments


def publish_small(log_):
    """Make a snapshot that merges nothing."""
    view = log_._current()
    log_._adopt(compaction.compact(log_._loader, view, limit=0))


def whole(backend):
    """Return the state as a cold process reads it, after checking every byte."""
    log_ = opened(backend)
    assert list(log_.check()) == []
    return dict(log_.state.scan(b""))


def with_a_merge(backend):
    """Return a log whose process has begun a merge, not of the oldest segments alone."""
    log_ = opened(backend)
    fill_until(log_, lambda: len(running(log_)) == 1)
    return log_


def test_no_append_of_a_living_process_merges_more_than_a_piece(backend, monkeypatch):
    added = []
    add = segment.SegmentWriter.add

    def counting(writer, run):
        added.append(sum(map(segment.weight, *run)))
        add(writer, run)

    monkeypatch.setattr(segment.SegmentWriter, "add", counting)
    monkeypatch.setattr(upkeep, "DELETIONS", 3)
    log_ = opened(backend)
    most = deletions = 0
    for _ in range(1500):
        added.clear()
        files = {entry.key for entry in backend.list("log/")}
        fill(log_, 1)
        deletions = max(deletions, len(files - {entry.key for entry in backend.list("log/")}))
        most = max(most, sum(added))
    tail = EVERY * 300
    assert most <= max(tail + upkeep.AT_ONCE, upkeep.STEP + 2 * segment.BLOCK)
    assert deletions <= upkeep.DELETIONS
    assert len(segments(backend)) <= 2 * FAN * 4
    assert max(info.last - info.first for info in segments(backend)) > 500
    assert len(whole(backend)) == 1501


def test_a_log_stays_small_though_every_process_appends_once(backend):
    state = whole(backend)
    for number in range(300):
        log_ = opened(backend)
        event = put(f"k{number}")
        log_.append(lambda state, position, event=event: [event])
        state[event["key"].encode()] = event["value"]
    assert len(segments(backend)) <= 2 * FAN * 3
    assert max(info.last - info.first for info in segments(backend)) > 60
    assert len(list(backend.list("log/"))) < upkeep.LITTER + 60
    assert whole(backend) == state


@pytest.mark.parametrize("too_many", [False, True])
def test_a_merge_that_other_snapshots_overtake_comes_after_a_few(backend, too_many):
    log_ = with_a_merge(backend)
    merge = running(log_)[0]
    fill_until(log_, lambda: merge.is_placed)
    assert len(running(log_)) == 1
    other = EventLog(backend, "t", fold)
    for turn in range(merging.AHEAD if too_many else merging.AHEAD - 1):
        fill(other, 1, f"o{turn}")
        publish_small(other)
    state = whole(backend)
    log_.refresh()
    assert (merge.places(log_._current()) is None) is too_many
    fill(log_, 2)
    assert (merge._merged in segments(backend)) is not too_many
    assert whole(backend).items() >= state.items()


def test_a_merge_that_another_process_made_is_dropped(backend):
    log_ = with_a_merge(backend)
    state = whole(backend)
    other = opened(backend)
    other.compact(full=True)
    held = len(list(backend.list(KEYS.segments)))
    fill(log_, EVERY + 1)
    assert running(log_) == []
    assert len(list(backend.list(KEYS.segments))) <= held + 2
    assert whole(backend).items() >= state.items()


def test_a_merge_part_of_which_another_process_made_is_dropped(backend, monkeypatch):
    log_ = with_a_merge(backend)
    place = running(log_)[0].places(log_._current())[1]
    other = EventLog(backend, "t", fold)
    fill(other, 1, "o")
    monkeypatch.setattr(compaction, "plan", lambda *_: place)
    assert other.compact()
    state = whole(backend)
    fill(log_, 2 * EVERY)
    assert whole(backend).items() >= state.items()


def test_a_process_may_die_at_any_step_of_a_merge():
    stop = 0
    published = False
    while not published:
        stop += 1
        backend = SteppingBackend(MemoryBackend())
        EventLog.create(backend, "t", fold, [put("first")])
        log_ = with_a_merge(backend)
        merge = running(log_)[0]
        state = whole(backend)
        actor = Actor(lambda log_=log_: fill(log_, 2 * EVERY, "m"))
        for _ in range(stop):
            actor.step()
        published = merge.is_placed and merge not in running(log_)
        actor.kill()
        found = whole(backend)
        assert found.items() >= state.items()
        other = opened(backend)
        fill(other, 2 * FAN * EVERY, "o")
        other.compact(full=True)
        other.compact(full=True)
        assert whole(backend).items() >= found.items()
    assert stop > 20


@pytest.mark.parametrize("order", [Order.FAIL, Order.FULL, Order.LOSE])
@pytest.mark.parametrize("place", [SEGMENT, SNAPSHOT])
def test_a_merge_that_fails_fails_no_append_and_takes_nothing_away(backend, place, order):
    log_ = with_a_merge(backend)
    merge = running(log_)[0]
    if place == SNAPSHOT:
        fill_until(log_, lambda: merge.is_placed)
    else:
        fill_until(log_, lambda: merge._whole)
    actor = Actor(lambda: fill(log_, 1, "mine"))
    while not (actor.call[0] == "put_if_absent" and place in actor.call[1]):
        actor.step()
    actor.step(order)
    actor.finish()
    assert actor.error is None
    assert running(log_) == []
    fill(log_, 60)
    assert len([key for key in whole(backend) if key.startswith(b"mine")]) == 1


def test_on_a_full_disk_a_merge_gives_its_space_to_the_append(backend):
    log_ = with_a_merge(backend)
    state = whole(backend)
    actor = Actor(lambda: fill(log_, 1, "mine"))
    while not (actor.call[0] == "put_if_absent" and "/records/" in actor.call[1]):
        actor.step()
    actor.step(Order.FULL)
    actor.finish()
    assert actor.error is None
    assert running(log_) == []
    assert len(whole(backend)) == len(state) + 1


@pytest.mark.parametrize("count", [1, merging.AHEAD - 1, merging.AHEAD, 3 * merging.AHEAD])
def test_a_merge_that_stalls_before_it_is_published_harms_no_snapshot(backend, count):
    log_ = with_a_merge(backend)
    merge = running(log_)[0]
    fill_until(log_, lambda: merge.is_placed)
    actor = Actor(lambda: fill(log_, 1, "mine"))
    while not (actor.call[0] == "put_if_absent" and SNAPSHOT in actor.call[1]):
        actor.step()
    other = opened(backend)
    for turn in range(count):
        fill(other, 1, f"o{turn}")
        other.compact(full=turn % 3 == 2)
    state = whole(backend)
    actor.finish()
    assert actor.error is None
    assert whole(backend) == state
    for turn in range(3):
        fill(log_, EVERY, f"l{turn}")
        fill(other, EVERY, f"p{turn}")
    assert whole(backend).items() >= state.items()


def test_keys_deleted_in_the_segments_of_a_merge_stay_deleted(backend):
    log_ = opened(backend)
    large = [put(f"old{number}", 3000) for number in range(1, 21)]
    log_.append(lambda state, position: large)
    log_.compact(full=True)
    for number in range(1, 21):
        gone = {"type": "delete", "key": f"old{number}"}
        log_.append(lambda state, position, gone=gone: [gone, put(f"new{position}")])
    fill_until(log_, lambda: segments(backend)[1].last >= FAN * EVERY)
    assert segments(backend)[0].last == 2
    assert not [key for key in whole(backend) if key.startswith(b"old")]


def test_a_damaged_segment_stops_its_merge_and_no_append(backend):
    log_ = with_a_merge(backend)
    damaged = segments(backend)[1]
    key = KEYS.segment(damaged.name)
    content = bytearray(backend.get(key))
    content[len(content) // 3] ^= 1
    backend.put(key, bytes(content))
    log_ = opened(backend)
    fill(log_, 4 * FAN * EVERY, "more")
    assert [finding.location for finding in log_.check()] == [key]
    assert damaged in segments(backend)


def test_what_a_process_leaves_of_a_merge_goes_with_later_snapshots(backend):
    log_ = with_a_merge(backend)
    merge = running(log_)[0]
    fill_until(log_, lambda: merge.is_placed)
    left = KEYS.segment(merge._merged.name)
    other = opened(backend)
    for turn in range(merging.AHEAD + 1):
        assert left in {entry.key for entry in backend.list(KEYS.segments)} or turn > 1
        fill(other, 1, f"o{turn}")
        other.compact()
    assert left not in {entry.key for entry in backend.list(KEYS.segments)}
    whole(backend)
