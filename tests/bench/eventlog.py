"""The event log, measured: `python tests/bench/eventlog.py append|fair|size --work DIR…`.

- `append`: durable appends of one process in turns with SQLite (WAL, synchronous=FULL, one
  transaction each) and with the bare system calls that one record costs, all on the same disk; the
  median of the ratios of neighbouring rounds is what counts.
- `fair`: eight processes that append for some seconds, and the share of the slowest.
- `size`: 1,000,000 events over 100,000 entries of 1 KB: how long appends take, what is rewritten,
  what a fresh process needs to look one up, what is on disk.

Give a folder on every disk of interest. `--journaled DIR` makes and mounts an ext4 with a journal
in a file there (as root) and measures on it as well.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cas.backends import LocalBackend
from cas.eventlog import COMPACT_AFTER, EventLog
from cas.testing import mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENTRIES = 100_000
KEPT = 2 * COMPACT_AFTER
STATUSES = ("queued", "synthesizing", "draft_ready", "published", "failed")


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def rounded(values: list[float], digits: int = 2) -> dict[str, float]:
    """Median, 99th percentile and maximum, of milliseconds."""
    values = sorted(values)
    at = {"p50": len(values) // 2, "p99": len(values) * 99 // 100, "max": len(values) - 1}
    return {name: round(values[place], digits) for name, place in at.items()}


# ------------------------------------------------------------------ append
def put_fold(state, event, position, index):
    state.put(event["key"].encode(), event["value"])


class Ours:
    def __init__(self, folder: Path) -> None:
        self.backend = LocalBackend(folder / "log", create=True)
        first = [{"type": "put", "key": "a", "value": b""}]
        self.log = EventLog.create(self.backend, "bench", put_fold, first)
        self.count = 0
        self.milliseconds: list[float] = []

    def run(self, count: int) -> None:
        value = os.urandom(150)
        for _ in range(count):
            self.count += 1
            events = [{"type": "put", "key": f"k{self.count}", "value": value}]
            start = time.perf_counter()
            self.log.append(lambda state, position: events)  # noqa: B023
            self.milliseconds.append((time.perf_counter() - start) * 1e3)

    def close(self) -> None:
        del self.log  # with its open segments
        gc.collect()
        self.backend.close()


class Sqlite:
    def __init__(self, folder: Path) -> None:
        self.db = sqlite3.connect(folder / "db", isolation_level=None)
        self.db.execute("pragma journal_mode=wal")
        self.db.execute("pragma synchronous=full")
        self.db.execute("create table e (n integer primary key, k text, v blob)")

    def run(self, count: int) -> None:
        value = os.urandom(150)
        for number in range(count):
            self.db.execute("begin immediate")
            self.db.execute("insert into e (k, v) values (?, ?)", (f"k{number}", value))
            self.db.execute("commit")

    def close(self) -> None:
        self.db.close()


class Bare:
    """What the system takes for a record: written, synced, linked, synced; its folder; deleted."""

    def __init__(self, folder: Path) -> None:
        (folder / "bare/records").mkdir(parents=True)
        self.root = os.open(folder / "bare", os.O_RDONLY | os.O_DIRECTORY)
        self.records = os.open(folder / "bare/records", os.O_RDONLY | os.O_DIRECTORY)
        self.count = 0

    def run(self, count: int) -> None:
        content = os.urandom(300)
        for _ in range(count):
            self.count += 1
            fd = os.open(".", os.O_RDWR | os.O_TMPFILE, 0o444, dir_fd=self.root)
            os.write(fd, content)
            os.fsync(fd)
            at = self.records
            name = f"/proc/self/fd/{fd}"
            os.link(name, f"{self.count}", src_dir_fd=at, dst_dir_fd=at, follow_symlinks=True)
            os.fsync(fd)
            os.fsync(at)
            os.close(fd)
            if self.count > KEPT:
                os.unlink(f"{self.count - KEPT}", dir_fd=at)

    def close(self) -> None:
        os.close(self.records)
        os.close(self.root)


def append(folder: Path, rounds: int, each: int) -> None:
    """Take turns in short rounds, since a shared disk is not the same a second later."""
    with scratch(folder) as place:
        runners = {"sqlite": Sqlite(place), "ours": Ours(place), "bare": Bare(place)}
        spent: dict[str, list[float]] = {name: [] for name in runners}
        for _ in range(rounds + 1):
            for name, runner in runners.items():
                start = time.perf_counter()
                runner.run(each)
                spent[name].append((time.perf_counter() - start) / each * 1e3)
        ratios = {
            name: round(
                statistics.median(
                    theirs / mine
                    for theirs, mine in zip(spent["sqlite"][1:], spent[name][1:], strict=True)
                ),
                3,
            )
            for name in ("ours", "bare")
        }
        ours = runners["ours"]
        assert isinstance(ours, Ours)
        say(
            append=str(folder),
            ratio_to_sqlite=ratios,
            milliseconds={name: round(statistics.median(times[1:]), 3)
                          for name, times in spent.items()},
            one_append=rounded(ours.milliseconds),
        )  # fmt: skip
        for runner in runners.values():
            runner.close()


# ------------------------------------------------------------------ fair
WORKER = """
import sys, time
from cas.backends import LocalBackend
from cas.eventlog import EventLog

log = EventLog(LocalBackend(sys.argv[1]), "bench", lambda state, event, position, index: None)
log.refresh()
print("ready", flush=True)
sys.stdin.readline()
end = time.monotonic() + float(sys.argv[2])
times = []
while time.monotonic() < end:
    start = time.monotonic()
    log.append(lambda state, position: [{"type": "add"}])
    times.append(time.monotonic() - start)
print(len(times), max(times))
"""


def fair(folder: Path, seconds: float, processes: int = 8) -> None:
    with scratch(folder) as place:
        backend = LocalBackend(place / "log", create=True)
        EventLog.create(backend, "bench", lambda *_: None, [{"type": "add"}])
        backend.close()
        command = [sys.executable, "-c", WORKER, str(place / "log"), str(seconds)]
        workers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        said = []
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
        for worker in workers:
            said.append(worker.communicate()[0].split())
        counts = [int(count) for count, _ in said]
        say(
            fair=str(folder),
            appends_per_second=round(sum(counts) / seconds),
            slowest_of_fair_share=round(min(counts) * processes / sum(counts), 2),
            fastest_of_fair_share=round(max(counts) * processes / sum(counts), 2),
            longest_append_ms=round(max(float(longest) for _, longest in said) * 1e3, 1),
        )


# ------------------------------------------------------------------ size
def entry_fold(state, event, position, index):
    key = event["id"].encode()
    if event["type"] == "record":
        state.put(b"c/" + key, event["body"])
    else:
        body = state.get(b"c/" + key)
        state.put(b"c/" + key, event["status"].encode().ljust(12) + body[12:])
    trail = b"a/%s/%020d/%06d" % (key, position, index)
    state.put(trail, f"{event['type']} {event.get('status', '')} by worker 17".encode())


def events(total: int) -> Iterator[dict[str, object]]:
    """100,000 entries of 1 KB of words, then changes of their statuses at random."""
    chance = random.Random(1)
    words = [f"word{number}" for number in range(3000)]
    for number in range(ENTRIES):
        body = ("open".ljust(12) + " ".join(chance.choices(words, k=160))).encode()[:1024]
        yield {"type": "record", "id": f"c{number:06d}", "body": body}
    for number in range(total - ENTRIES):
        which = f"c{chance.randrange(ENTRIES):06d}"
        yield {"type": "status", "id": which, "status": STATUSES[number % 5]}


class Counting(LocalBackend):
    """Counts the bytes that are created."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, create=True)
        self.written = {"records": 0, "snapshots": 0, "segments": 0}

    def put_if_absent(self, key, source):
        size = len(source) if isinstance(source, bytes) else source.tell()
        self.written[key.split("/")[2]] += size
        return super().put_if_absent(key, source)

    def total(self) -> int:
        return sum(entry.size for entry in self.list("log/"))


def size(folder: Path, total: int, batch: int, single: int) -> None:
    """Write `total` events, the last `single` of them in records of their own."""
    with scratch(folder) as place:
        backend = Counting(place / "log")
        log = EventLog.create(backend, "bench", lambda *_: None, [{"type": "begin"}])
        log = EventLog(backend, "bench", entry_fold_but_first)
        stream = events(total)
        spent: dict[str, list[float]] = {"batches": [], "single": []}
        changed = 0

        def write(log: EventLog, many: list[dict[str, object]], kind: str) -> None:
            start = time.perf_counter()
            log.append(lambda state, position: many)
            spent[kind].append((time.perf_counter() - start) * 1e3)

        began = time.perf_counter()
        many: list[dict[str, object]] = []
        for number, event in enumerate(stream, 1):
            many.append(event)
            changed += 1024 + 60
            if number > total - single:
                write(log, many, "single")
                many = []
            elif len(many) == batch or number == total - single:
                write(log, many, "batches")
                many = []
        written = backend.written
        say(
            events=total,
            in_records_of=batch,
            seconds=round(time.perf_counter() - began),
            longest_ms={kind: rounded(times) for kind, times in spent.items() if times},
            written=written,
            rewritten_per_changed_byte=round(
                (written["segments"] + written["snapshots"]) / changed, 2
            ),
            segments=len(list(backend.list("log/bench/segments/"))),
            bytes=backend.total(),
            peak_mb=peak(),
        )  # fmt: skip
        look_in_a_process(place)
        log.compact(full=True)
        log.compact(full=True)
        compressed = compressed_alone(log)
        say(
            compacted_bytes=backend.total(),
            state_compressed_in_one_piece=compressed,
            ratio=round(backend.total() / compressed, 3),
            peak_mb=peak(),
        )
        look_in_a_process(place)
        del log
        gc.collect()
        backend.close()


def entry_fold_but_first(state, event, position, index):
    if event["type"] != "begin":
        entry_fold(state, event, position, index)


def compressed_alone(log: EventLog) -> int:
    import zstandard

    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    total = 0
    for key, value in log.state.scan(b""):
        total += len(compressor.compress(key + value))
    return total + len(compressor.flush())


def look_in_a_process(place: Path) -> None:
    subprocess.run([sys.executable, __file__, "look", "--work", str(place / "log")], check=True)


def look(folder: Path) -> None:
    """Look one entry up as a fresh process, then a thousand."""
    start = time.perf_counter()
    log = EventLog(Reads(folder), "bench", entry_fold_but_first)
    assert log.state.get(b"c/c050000") is not None
    cold = (time.perf_counter() - start) * 1e3
    cold_mb = peak()
    warm = timed(2000, lambda: log.state.get(b"c/c%06d" % random.randrange(ENTRIES)))
    change = {"type": "status", "id": "c012345", "status": "queued"}
    appends = timed(20, lambda: log.append(lambda state, position: [change]))
    before = Reads.count
    listed = timed(1, lambda: list(log.state.scan(b"a/c077777/")))
    say(
        cold_get_ms=round(cold, 1),
        cold_peak_mb=cold_mb,
        warm_get_ms=rounded(warm, 3),
        append_ms=rounded(appends),
        prefix_ms=rounded(listed, 3)["max"],
        prefix_reads=Reads.count - before,
    )


class Reads(LocalBackend):
    """Counts the reads of blocks."""

    count = 0

    def open(self, key):
        reader = super().open(key)
        real = reader.read_at

        def read_at(offset, length):
            Reads.count += 1
            return real(offset, length)

        reader.read_at = read_at
        return reader


def timed(count: int, call: Callable[[], object]) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


# ------------------------------------------------------------------ where
@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    place = folder / f"cas-bench-{os.getpid()}"
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("append", "fair", "size", "look"))
    parser.add_argument("--work", type=Path, nargs="*", default=[], help="folders, one a disk")
    parser.add_argument("--journaled", type=Path, help="folder for an image with a journal")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--each", type=int, default=64, help="appends in a round")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=100, help="events in a record")
    parser.add_argument("--single", type=int, default=20_000, help="the last ones, one a record")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folders = list(args.work)
        if args.journaled:
            args.journaled.mkdir(parents=True, exist_ok=True)
            mount = mounts.mounted("ext4", args.journaled, size=1 << 30)
            folders.append(stack.enter_context(mount).path)
        for folder in folders:
            if args.what == "append":
                append(folder, args.rounds, args.each)
            elif args.what == "fair":
                fair(folder, args.seconds)
            elif args.what == "size":
                size(folder, args.events, args.batch, args.single)
            else:
                look(folder)


if __name__ == "__main__":
    main()
