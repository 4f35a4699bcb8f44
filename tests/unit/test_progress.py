"""Progress is told, but not too often."""

from __future__ import annotations

from cas import progress
from cas.progress import Meter


def test_a_meter_tells_at_most_once_an_interval_and_always_the_end(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    told: list[tuple[object, ...]] = []
    meter = Meter(lambda *args: told.append(args), "ingest", total_files=1000, total_bytes=None)
    for _ in range(1000):
        meter.add(1, 10)
        clock[0] += progress.INTERVAL / 10
    meter.finish()
    assert 80 <= len(told) <= 102
    assert told[0] == ("ingest", 1, 10, 1000, None)
    assert told[-1] == ("ingest", 1000, 10_000, 1000, None)


def test_a_meter_without_listener_counts():
    meter = Meter(None, "verify")
    meter.add(2, 3)
    meter.add(bytes_=4, files=0)
    meter.finish()
    assert (meter.files, meter.bytes) == (2, 7)
