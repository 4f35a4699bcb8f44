import io

import pytest

from cas.fs import CLOCK_GRAIN_NS as GRAIN_NS
from cas.statindex import (
    COARSE_NS,
    MAX_RUN,
    End,
    Run,
    StatIndexReader,
    StatIndexWriter,
    position,
    trusted,
)


def digest(n: int) -> bytes:
    return n.to_bytes(32, "big")


def written(*entries: tuple[bytes, bytes, str]) -> bytes:
    sink = io.BytesIO()
    writer = StatIndexWriter(sink)
    for n, (folder, name, kind) in enumerate(entries):
        writer.add(folder, name, kind, (n, n + 1, n + 2, 7, n), digest(n), at_ns=1000 + n)
    writer.finish()
    return sink.getvalue()


SMALL = (
    (b"", b"a", "f"),
    (b"", b"m", "d"),
    (b"m", b"x", "x"),
    (b"m", b"y", "d"),
    (b"m/y", b"deep", "f"),
    (b"m", b"z", "l"),
    (b"", b"m-", "f"),
    (b"", b"n", "f"),
)


def test_entries_come_back_in_walk_order_with_everything_that_was_added():
    reader = StatIndexReader(io.BytesIO(written(*SMALL)))
    got = [(run.folder, e) for run in reader.runs() for e in run.entries()]
    assert [(f, e.name, e.type) for f, e in got] == list(SMALL)
    assert [e.digest for _, e in got] == [digest(n) for n in range(len(SMALL))]
    assert [(e.size, e.mtime_ns, e.ctime_ns, e.dev, e.ino) for _, e in got] == [
        (n, n + 1, n + 2, 7, n) for n in range(len(SMALL))
    ]
    assert reader.damaged == 0


def test_a_run_keeps_the_earliest_clock_of_its_entries():
    reader = StatIndexReader(io.BytesIO(written(*SMALL)))
    assert [run.at_ns for run in reader.runs()] == [1000, 1002, 1004, 1005, 1006]


def test_folders_nest_in_a_walk_that_descends_between_entries():
    reader = StatIndexReader(io.BytesIO(written(*SMALL)))
    seen = []

    def walk(folder: bytes) -> None:
        for entry in reader.entries(folder):
            path = folder + b"/" + entry.name if folder else entry.name
            seen.append(path)
            if entry.type == "d":
                walk(path)

    walk(b"")
    assert seen == [b"a", b"m", b"m/x", b"m/y", b"m/y/deep", b"m/z", b"m-", b"n"]


def test_a_folder_that_nobody_asks_for_is_passed_over():
    reader = StatIndexReader(io.BytesIO(written(*SMALL)))
    assert [e.name for e in reader.entries(b"")] == [b"a", b"m", b"m-", b"n"]


def test_a_folder_that_the_index_does_not_have_is_empty_and_loses_nothing():
    reader = StatIndexReader(io.BytesIO(written(*SMALL)))
    names = []
    for entry in reader.entries(b""):
        names.append(entry.name)
        assert list(reader.entries(b"a")) == []
        assert list(reader.entries(entry.name + b"/none")) == []
    assert names == [b"a", b"m", b"m-", b"n"]


def test_next_run_stops_at_the_name_that_is_asked_for():
    reader = StatIndexReader(io.BytesIO(written(*SMALL)))
    assert reader.next_run(b"", b"Z") is None
    run = reader.next_run(b"", b"b")
    assert run is not None
    assert run.names == [b"a", b"m"]
    assert reader.next_run(b"", b"b") is None
    run = reader.next_run(b"", b"zz")
    assert run is not None
    assert run.names == [b"m-", b"n"]
    assert reader.next_run(b"", b"zz") is None


def with_ends() -> bytes:
    """A folder "d" with "d/e" in it, between two files, and the ends of all three."""
    sink = io.BytesIO()
    writer = StatIndexWriter(sink)
    for n, (folder, name) in enumerate([(b"", b"a"), (b"d", b"b"), (b"d/e", b"c")]):
        writer.add(folder, name, "f", (n,) * 5, digest(n))
    writer.append(End(b"d/e", 1, 2, digest(10)))
    writer.append(Run(b"d", 7, [b"f"], "f", [1, 1, 1, 1, 1], digest(3)))
    writer.append(End(b"d", 3, 4, digest(11)))
    writer.add(b"", b"z", "f", (9,) * 5, digest(4))
    writer.append(End(b"", 5, 6, digest(12)))
    writer.finish()
    return sink.getvalue()


def test_the_end_of_a_folder_comes_after_everything_in_it():
    reader = StatIndexReader(io.BytesIO(with_ends()))
    assert reader.next_run(b"", b"a").names == [b"a"]
    assert reader.next_run(b"d", b"b").names == [b"b"]
    assert reader.next_run(b"d/e", b"c").names == [b"c"]
    assert reader.next_run(b"d/e", b"zz") is None
    assert reader.end(b"d/e") == End(b"d/e", 1, 2, digest(10))
    assert reader.next_run(b"d", b"f").names == [b"f"]
    assert reader.end(b"d") == End(b"d", 3, 4, digest(11))
    assert reader.next_run(b"", b"z").names == [b"z"]
    assert reader.end(b"") == End(b"", 5, 6, digest(12))
    assert (reader.taken, reader.passed, reader.damaged) == (8, 0, 0)


def test_what_is_passed_over_on_the_way_to_an_end_is_counted():
    reader = StatIndexReader(io.BytesIO(with_ends()))
    assert reader.end(b"d") == End(b"d", 3, 4, digest(11))
    assert (reader.taken, reader.passed) == (6, 5)
    assert reader.end(b"e") is None
    assert (reader.taken, reader.passed) == (6, 5)
    assert reader.next_run(b"", b"z").names == [b"z"]


def test_a_folder_that_became_a_longer_name_is_passed_over():
    reader = StatIndexReader(io.BytesIO(with_ends()))
    assert reader.next_run(b"d-", b"b") is None
    assert reader.end(b"d-") is None
    assert reader.passed == 6
    assert reader.next_run(b"", b"z").names == [b"z"]


def test_entries_and_runs_leave_ends_out():
    assert [run.names for run in StatIndexReader(io.BytesIO(with_ends())).runs()] == [
        *([b"a"], [b"b"], [b"c"], [b"f"], [b"z"])
    ]
    reader = StatIndexReader(io.BytesIO(with_ends()))
    assert [entry.name for entry in reader.entries(b"")] == [b"a", b"z"]
    reader = StatIndexReader(io.BytesIO(with_ends()))
    assert [entry.name for entry in reader.entries(b"d")] == [b"b", b"f"]


def test_items_copied_to_another_index_make_the_same_one():
    sink = io.BytesIO()
    writer = StatIndexWriter(sink)
    for item in StatIndexReader(io.BytesIO(with_ends())).items():
        writer.append(item)
    writer.finish()
    assert sink.getvalue() == with_ends()


def test_long_folders_are_cut_into_runs():
    entries = [(b"", b"%06d" % n, "f") for n in range(2 * MAX_RUN + 5)]
    reader = StatIndexReader(io.BytesIO(written(*entries)))
    assert [len(run.names) for run in reader.runs()] == [MAX_RUN, MAX_RUN, 5]


def test_position_orders_a_folder_before_what_it_holds_and_by_bytes_of_names():
    ordered = [(b"", b"a"), (b"a", b"b"), (b"a/b", b"c"), (b"a", b"b-"), (b"", b"a-")]
    assert sorted(set(ordered), key=lambda p: position(*p)) == ordered


@pytest.mark.parametrize("data", [b"", b"CAS", b"not an index at all", b"CASSTAT\x02" + bytes(99)])
def test_what_is_no_index_reads_as_empty_and_damaged(data):
    reader = StatIndexReader(io.BytesIO(data))
    assert list(reader.runs()) == []
    assert reader.damaged == 1


def test_every_flipped_bit_and_every_cut_is_noticed_and_never_gives_a_wrong_entry():
    data = written(*SMALL, *((b"q", b"%05d" % n, "f") for n in range(1500)))
    whole = {(r.folder, e) for r in StatIndexReader(io.BytesIO(data)).runs() for e in r.entries()}
    for at in [*range(60), *range(60, len(data), 997), len(data) - 1]:
        for bad in (data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], data[:at]):
            reader = StatIndexReader(io.BytesIO(bad))
            got = {(r.folder, e) for r in reader.runs() for e in r.entries()}
            assert got <= whole
            assert reader.damaged


def test_a_block_that_is_missing_or_comes_twice_is_noticed():
    data = written(*((b"", b"%05d" % n, "f") for n in range(3000)))
    blocks, at = [], 8
    while at < len(data):
        size = 36 + int.from_bytes(data[at : at + 4], "big")
        blocks.append(data[at : at + size])
        at += size
    assert len(blocks) == 4
    for order in ([0, 2, 3], [0, 1, 1, 2, 3], [0, 1, 3], [3]):
        reader = StatIndexReader(io.BytesIO(data[:8] + b"".join(blocks[i] for i in order)))
        list(reader.runs())
        assert reader.damaged


def test_a_change_in_the_tick_of_the_look_is_not_trusted():
    now = 1_700_000_000_123_456_789
    assert trusted(now - GRAIN_NS, now - GRAIN_NS, now)
    assert not trusted(now - GRAIN_NS + 1, 5, now)
    assert not trusted(0, now - GRAIN_NS + 1, now)
    assert not trusted(0, now + 5, now)


def test_whole_seconds_are_taken_for_a_coarse_clock():
    second = 1_700_000_000 * 10**9
    assert not trusted(second, second, second + COARSE_NS - 1)
    assert trusted(second, second, second + COARSE_NS)


@pytest.mark.parametrize("mtime", [5, 10**18 - GRAIN_NS, 10**18 - GRAIN_NS + 1, 10**18])
@pytest.mark.parametrize("behind", [0, 1, GRAIN_NS - 1, GRAIN_NS, COARSE_NS - 1, COARSE_NS, 10**10])
def test_a_run_is_settled_when_all_its_entries_are_trusted(mtime, behind):
    at = 10**18
    run = Run(b"", at, [b"a", b"b"], "ff", [1, 5, 5, 1, 1, 1, mtime, at - behind, 1, 2], bytes(64))
    assert run.settled() == all(trusted(e.mtime_ns, e.ctime_ns, e.at_ns) for e in run.entries())
