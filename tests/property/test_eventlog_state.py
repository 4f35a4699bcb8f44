"""The state of a log is an ordered map, however its layers come to lie."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cas.backends import MemoryBackend
from cas.errors import RefusedError
from cas.eventlog import EventLog, blocks, compaction, segment, tiers, upkeep
from cas.eventlog.runs import after, live, merge
from cas.eventlog.tiers import FAN, crowded, plan, tier

KNOWN = 7
KEYS = st.binary(min_size=1, max_size=3) | st.sampled_from(
    [bytes([a, b]) for a in (0, 97, 255) for b in (0, 98, 255)]
)
VALUES = st.none() | st.binary(max_size=80) | st.integers(0, 900).map(lambda size: b"v" * size)
STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=12),
        st.sampled_from(["compact", "compact", "full", "reopen"]),
    ),
    max_size=25,
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(segment, "BLOCK", 150)
    monkeypatch.setattr(blocks, "_WORTH", 100)
    monkeypatch.setattr(segment, "KNOWN", KNOWN)
    monkeypatch.setattr(compaction, "KNOWN", KNOWN)
    monkeypatch.setattr(tiers, "_SMALLEST", 500)
    monkeypatch.setattr(upkeep, "AT_ONCE", 1000)
    monkeypatch.setattr(upkeep, "STEP", 300)
    monkeypatch.setattr(upkeep, "SHARE", 0)


def fold(state, event, position, index):
    if event["value"] is None:
        state.delete(event["key"])
    else:
        state.put(event["key"], event["value"])


def reference(model, prefix, start, reverse):
    return [
        (key, model[key])
        for key in sorted(model, reverse=reverse)
        if key.startswith(prefix) and (start is None or (key <= start if reverse else key >= start))
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=STEPS,
    looks=st.lists(
        st.tuples(st.binary(max_size=2), st.none() | KEYS, st.booleans()), min_size=3, max_size=3
    ),
)
def test_the_state_is_that_of_a_dict(steps, looks):
    backend = MemoryBackend()
    log = EventLog.create(backend, "t", fold, [{"type": "put", "key": b"k", "value": b"0"}])
    model = {b"k": b"0"}
    identities = [b"", next(iter(log.records())).identity]
    for step in steps:
        if step == "reopen":
            log = EventLog(backend, "t", fold)
        elif isinstance(step, str):
            log.compact(full=step == "full")
        else:
            events = [{"type": "put", "key": key, "value": value} for key, value in step]
            identities.append(log.append(lambda state, position: events).identity)  # noqa: B023
            for key, value in step:
                model.pop(key, None)
                if value is not None:
                    model[key] = value
        for prefix, start, reverse in looks:
            found = list(log.state.scan(prefix, start=start, reverse=reverse))
            assert found == reference(model, prefix, start, reverse)
        assert {key: log.state.get(key) for key in model} == model
        assert log.state.get(b"no such key") is None
    assert list(log.check()) == []
    assert log.position == len(identities) - 1
    for number in range(1, log.position + 1):
        known = log._current().identity(number)
        assert known == identities[number] or (known is None and number <= log.position - KNOWN)


@given(
    st.lists(st.dictionaries(st.binary(max_size=2), st.none() | st.binary(max_size=1)), max_size=5),
    st.integers(1, 4),
    st.booleans(),
)
def test_merging_layers_is_laying_dicts_over_each_other(layers, width, reverse):
    def runs(layer):
        keys = sorted(layer)
        starts = range(0, len(keys), width)
        for start in reversed(starts) if reverse else starts:
            part = keys[start : start + width]
            yield part, [layer[key] for key in part]

    laid = {}
    for layer in layers:
        laid.update(layer)
    merged = merge([runs(layer) for layer in reversed(layers)], reverse=reverse)
    expected = [(key, laid[key]) for key in sorted(laid, reverse=reverse) if laid[key] is not None]
    assert list(live(merged, reverse=reverse)) == expected


@given(st.binary(max_size=4))
def test_the_key_after_a_prefix_is_the_least_that_is_above_all_with_it(prefix):
    bound = after(prefix)
    if bound is None:
        assert prefix.strip(b"\xff") == b""
    else:
        assert prefix + b"\xff" * 9 < bound
        assert not bound.startswith(prefix)
        assert bound[:-1] + bytes([bound[-1] - 1]) == prefix[: len(bound)]


@given(st.lists(st.integers(500, 3000), min_size=1, max_size=300))
def test_segments_stay_few_and_bytes_are_rewritten_seldom(sizes):
    kept, written = [], 0
    for size in sizes:
        start = plan(kept, size)
        kept[start:] = [sum(kept[start:]) + size]
        written += kept[-1]
        levels = tier(sum(sizes)) + 1
        assert len(kept) <= (FAN - 1) * levels
    assert written <= sum(sizes) * (levels + 1)


@given(st.lists(st.integers(500, 3000), min_size=1, max_size=300), st.integers(0, 20_000))
def test_the_same_holds_where_large_merges_come_later(sizes, limit):
    kept, written = [], 0
    for size in sizes:
        start = plan(kept, size, limit)
        assert start == len(kept) or sum(kept[start:]) + size <= limit
        kept[start:] = [sum(kept[start:]) + size]
        written += kept[-1]
        while found := crowded(kept):
            start, stop, count = found
            assert count >= FAN
            kept[start:stop] = [sum(kept[start:stop])]
            written += kept[start]
        levels = tier(sum(sizes)) + 1
        assert len(kept) <= (FAN - 1) * levels
    assert written <= sum(sizes) * (levels + 1)


@given(st.lists(st.integers(0, 40_000), max_size=40), st.sets(st.integers(0, 39)))
def test_crowded_segments_are_neighbours_that_nobody_merges(sizes, busy):
    found = crowded(sizes, busy)
    if found is None:
        return
    start, stop, count = found
    assert stop - start >= count >= FAN
    assert max(map(tier, sizes[stop - count : stop])) == tier(sizes[stop - 1])
    assert not busy & set(range(start, stop))


@pytest.mark.parametrize(
    ("key", "value"), [(b"", b""), (b"k" * 1025, b""), (b"k", b"v" * (8 << 20 | 1))]
)
def test_keys_and_values_have_limits(key, value):
    def put(state, event, position, index):
        state.put(key, value)

    with pytest.raises(RefusedError):
        EventLog.create(MemoryBackend(), "t", put, [{"type": "any"}])


def test_identities_that_were_not_kept_leave_no_gap_behind(monkeypatch):
    log = EventLog.create(MemoryBackend(), "t", lambda *_: None, [{"type": "any"}])
    identities = [b"", b""]

    def append(count):
        for _ in range(count):
            identities.append(log.append(lambda state, position: [{"type": "any"}]).identity)

    append(3)
    log.compact()
    monkeypatch.setattr(segment, "KNOWN", 2)
    append(4)
    log.compact()
    monkeypatch.setattr(segment, "KNOWN", KNOWN)
    append(1)
    log.compact(full=True)
    known = {number: log._current().identity(number) for number in range(1, 10)}
    assert [number for number in known if known[number]] == [7, 8, 9]
    assert all(known[number] == identities[number] for number in (7, 8, 9))
