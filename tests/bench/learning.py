"""What learning costs, measured: `python tests/bench/learning.py --work DIR [--candidates N]`.

Builds a log of N candidates of 1 KB with 10 events each, in records of 200 events that hit
candidates in random order, then measures in processes of their own: a cold `get` and `claim` with
their memory, and warm ones; the bytes written and left over; durable claims a second beside SQLite
(WAL, synchronous=FULL, one transaction a claim), in turns, and from eight processes at once.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cas
from cas.backends import LocalBackend
from cas.learning.journal import of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORDS = ["look", "frame", "every", "skill", "prompt", "video", "question", "answer", "count"]
BATCH = 200
WARM = 200

COLD = """
import json, re, sys, time
began = time.perf_counter()
import cas
learning = cas.Store.open(sys.argv[1]).learning
if sys.argv[2] == "get":
    learning.get(sys.argv[3])
elif sys.argv[2] == "claim":
    learning.claim(sys.argv[3], "cold", 1, force=True)
elif sys.argv[2] == "next":
    learning.claim_next("cold", 1)
else:
    learning.list("rejected")
seconds = time.perf_counter() - began
peak = re.search(r"VmHWM:\\s*([0-9]+)", open("/proc/self/status").read())[1]
print(json.dumps([seconds, int(peak) / 1024]))
"""

RACER = """
import sys, time
import cas
learning = cas.Store.open(sys.argv[1]).learning
learning.refresh()
print("ready", flush=True)
sys.stdin.readline()
end, won = time.monotonic() + float(sys.argv[3]), 0
while time.monotonic() < end and learning.claim_next(sys.argv[2], 3600):
    won += 1
print(won)
"""


def candidate(number: int, draw: random.Random) -> cas.Candidate:
    """Return a candidate of about 1 KB, words and random digits."""
    return cas.Candidate(
        f"c-{number:06d}",
        draw.choice(["merge_skills", "improve_skill", "new_skill"]),
        reason=" ".join(draw.choices(WORDS, k=40)),
        extra={
            "evidence": " ".join(draw.choices(WORDS, k=80)),
            "run": f"{draw.getrandbits(512):x}",
        },
    )


class Written:
    """Counts the bytes that are put below the learning log, by what they are."""

    def __init__(self) -> None:
        """Begin to count."""
        self.bytes = {"records": 0, "snapshots": 0, "segments": 0}
        self._put = LocalBackend.put_if_absent
        counter = self

        def put(backend: LocalBackend, key: str, source: Any) -> bool:
            size = len(source) if isinstance(source, bytes) else source.tell()
            if key.startswith("log/learning/"):
                counter.bytes[key.split("/")[2]] += size
            return counter._put(backend, key, source)

        LocalBackend.put_if_absent = put  # type: ignore[method-assign]

    def stop(self) -> None:
        """Count no more."""
        LocalBackend.put_if_absent = self._put  # type: ignore[method-assign]


def lives(ids: list[str], draw: random.Random) -> Iterator[list[dict[str, Any]]]:
    """Give the events after the first of every candidate, in records, each round in new order."""
    rounds: list[tuple[str | None, dict[str, Any]]] = [
        (None, {}),
        ("draft_ready", {"draft_id": "d1", "draft_skill_name": "look"}),
        ("in_review", {}),
        ("approved", {}),
        ("rejected", {}),
        ("open", {"draft_id": None}),
        (None, {}),
        ("failed", {"last_error": "the draft does not load"}),
        ("open", {}),
    ]
    payload = b'{"by":"bench"}'
    now = time.time_ns()
    for to, fields in rounds:
        order = draw.sample(ids, len(ids))
        for start in range(0, len(order), BATCH):
            now += 10**6
            events = []
            for name in order[start : start + BATCH]:
                if to is None:
                    events.append(of("claimed", id=name, owner="worker-1", now=now, lease=10**9))
                else:
                    stays = to == "open" and not draw.randrange(50)
                    event = of("changed", id=name, now=now, to=None if stays else to)
                    event |= {"event_type": f"candidate_{to}", "payload": payload, "forced": True}
                    event["actor"] = draw.choice(["worker-1", "worker-2", "maria"])
                    if fields:
                        event["set"] = json.dumps(fields, separators=(",", ":")).encode()
                    events.append(event)
            yield events


def build(root: Path, count: int) -> None:
    """Make the log, and say what was written."""
    draw = random.Random(1)
    began = time.perf_counter()
    with cas.Store.init(root) as store:
        written = Written()
        learning = store.learning
        for start in range(0, count, BATCH):
            learning.record_all([candidate(n, draw) for n in range(start, start + BATCH)])
        recorded = time.perf_counter() - began
        for events in lives([f"c-{n:06d}" for n in range(count)], draw):
            learning._append_all(events)
        written.stop()
    seconds = time.perf_counter() - began
    appended = written.bytes["records"]
    rewritten = written.bytes["segments"] + written.bytes["snapshots"]
    print(f"built {count} candidates, {10 * count} events in {seconds:.0f} s ({recorded:.0f} s)")
    print(
        f"appended {appended / 1e6:.0f} MB, rewritten {rewritten / 1e6:.0f} MB: "
        f"{rewritten / appended:.2f} bytes for each byte appended"
    )


def on_disk(root: Path) -> int:
    """Return the bytes of the learning log."""
    return sum(path.stat().st_size for path in (root / "log/learning").rglob("*") if path.is_file())


def space(root: Path) -> None:
    """Compact to the least, and compare with what the state takes compressed by itself."""
    import zstandard

    before = on_disk(root)
    began = time.perf_counter()
    with cas.Store.open(root) as store:
        learning = store.learning
        learning.compact(full=True)
        learning.compact(full=True)
        seconds = time.perf_counter() - began
        after = on_disk(root)
        sizes = {}
        for name, prefixes in (
            ("rows, documents", (b"row\0", b"body\0", b"id\0")),
            ("audit", (b"audit\0",)),
            ("indexes", (b"status\0", b"kind\0", b"trail\0", b"lease\0")),
        ):
            packer = zstandard.ZstdCompressor(level=3).compressobj()
            size = 0
            for prefix in prefixes:
                for key, value in learning._state().scan(prefix):
                    size += len(packer.compress(key + value))
            sizes[name] = size + len(packer.flush())
    told = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items())
    least = sizes["rows, documents"] + sizes["audit"]
    print(f"on disk {before / 1e6:.1f} MB, compacted in {seconds:.1f} s to {after / 1e6:.1f} MB")
    print(f"compressed by themselves: {told}; {after / least:.2f} times rows, documents and audit")


def cold(root: Path, count: int) -> None:
    """Time single calls in processes of their own."""
    draw = random.Random(2)
    for what in ("get", "claim", "next", "list"):
        times, peak = [], 0.0
        for _ in range(5):
            name = f"c-{draw.randrange(count):06d}"
            command = [sys.executable, "-c", COLD, str(root), what, name]
            done = subprocess.run(command, capture_output=True, check=True, text=True)
            seconds, memory = json.loads(done.stdout)
            times.append(seconds)
            peak = max(peak, memory)
        print(f"cold {what}: {statistics.median(times) * 1000:.0f} ms, at most {peak:.0f} MB")


def warm(root: Path, count: int) -> None:
    """Time calls of one process that has the log open."""
    draw = random.Random(3)
    with cas.Store.open(root) as store:
        learning = store.learning
        learning.refresh()
        calls: dict[str, Callable[[str], Any]] = {
            "get": learning.get,
            "claim": lambda name: learning.claim(name, "warm", 1, force=True),
            "claim_next": lambda _name: learning.claim_next("warm", 3600),
            "audit": learning.audit,
        }
        for what, call in calls.items():
            times = []
            for _ in range(WARM):
                name = f"c-{draw.randrange(count):06d}"
                began = time.perf_counter()
                call(name)
                times.append(time.perf_counter() - began)
            times.sort()
            print(
                f"warm {what}: median {times[WARM // 2] * 1000:.2f} ms, "
                f"99 % {times[-WARM // 100] * 1000:.2f} ms"
            )


def sqlite_claims(path: Path, count: int) -> float:
    """Return SQLite's claims a second, each a transaction that is durable."""
    draw = random.Random(1)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE c (id TEXT PRIMARY KEY, status TEXT, owner TEXT, at REAL, body)")
        db.execute("CREATE TABLE audit (id TEXT, what TEXT, actor TEXT, at REAL, payload TEXT)")
        db.execute("CREATE INDEX s ON c (status)")
        db.execute("BEGIN")
        for number in range(count):
            made = candidate(number, draw)
            row = (made.candidate_id, "open", None, 0.0, json.dumps(made.to_dict()))
            db.execute("INSERT INTO c VALUES (?, ?, ?, ?, ?)", row)
        db.execute("COMMIT")
        began = time.perf_counter()
        for number in range(count):
            name, now = f"c-{number:06d}", time.time()
            db.execute("BEGIN IMMEDIATE")
            db.execute(
                "UPDATE c SET status='synthesizing', owner='w', at=? WHERE id=? AND status='open'",
                (now + 900, name),
            )
            db.execute("INSERT INTO audit VALUES (?, 'claimed', 'w', ?, '{}')", (name, now))
            db.execute("COMMIT")
        return count / (time.perf_counter() - began)


def own_claims(root: Path, count: int, at_once: int) -> float:
    """Return our claims a second, each record with `at_once` of them."""
    draw = random.Random(1)
    with cas.Store.init(root) as store:
        learning = store.learning
        learning.record_all(candidate(n, draw) for n in range(count))
        learning.compact()
        began = time.perf_counter()
        if at_once == 1:
            for number in range(count):
                learning.claim(f"c-{number:06d}", "w", 900)
        else:
            while learning.claim_many(at_once, "w", 900):
                pass
        return count / (time.perf_counter() - began)


def beside_sqlite(work: Path, count: int, rounds: int) -> None:
    """Compare claims a second, in turns."""
    ratios: dict[int, list[float]] = {1: [], 4: [], 20: []}
    rates: dict[int, list[float]] = {0: [], 1: [], 4: [], 20: []}
    for number in range(rounds):
        reference = sqlite_claims(work / f"sqlite-{number}.db", count)
        rates[0].append(reference)
        for at_once, found in ratios.items():
            rate = own_claims(work / f"claims-{number}-{at_once}", count, at_once)
            rates[at_once].append(rate)
            found.append(rate / reference)
    print(f"SQLite: {statistics.median(rates[0]):.0f} claims/s")
    for at_once, found in ratios.items():
        print(
            f"{at_once} a record: {statistics.median(rates[at_once]):.0f} claims/s, "
            f"{statistics.median(found):.2f} times SQLite"
        )


def race(work: Path, seconds: float) -> None:
    """Let eight processes claim, and compare what each got."""
    root = work / "race"
    draw = random.Random(1)
    with cas.Store.init(root) as store:
        store.learning.record_all(candidate(n, draw) for n in range(20000))
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(root), f"w{n}", str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(8)
    ]
    won = []
    for racer in racers:
        assert racer.stdout is not None
        racer.stdout.readline()
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    for racer in racers:
        won.append(int(racer.communicate()[0]))
    share = min(won) / (sum(won) / 8)
    print(f"eight processes: {sum(won) / seconds:.0f} claims/s, the least {share:.2f} of its share")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="a directory on the disk to test")
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--claims", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    work: Path = options.work
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    beside_sqlite(work, options.claims, options.rounds)
    race(work, 4.0)
    root = work / "store"
    build(root, options.candidates)
    cold(root, options.candidates)
    warm(root, options.candidates)
    space(root)
    cold(root, options.candidates)


if __name__ == "__main__":
    main()
