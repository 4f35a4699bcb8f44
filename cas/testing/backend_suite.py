"""What every backend must do. Subclass `BackendSuite` and give it a `backend` fixture.

class TestMine(BackendSuite):
    @pytest.fixture
    def backend(self):
        return MyBackend()
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from cas.backends.protocol import Missing
from cas.errors import FormatError, NameRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.backends.protocol import Backend

BAD_KEYS = [
    "",
    "/",
    "a/",
    "/a",
    "a//b",
    ".",
    "..",
    "a/../b",
    ".a",
    "a b",
    "a\n",
    "é",
    "tmp",
    "tmp/a",
]
CONTENTS = [b"", b"x", bytes(range(256)) * 40, b"y" * (3 << 20)]


class BackendSuite:
    """The conformance test; every test gets a fresh, empty backend."""

    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        """Yield an empty backend; to be overridden."""
        raise NotImplementedError

    # --- put_if_absent ---

    @pytest.mark.parametrize("content", CONTENTS, ids=len)
    def test_a_new_value_comes_back(self, backend: Backend, content: bytes) -> None:
        """Bytes in, bytes out."""
        assert backend.put_if_absent("a/b", content) is True
        assert backend.get("a/b") == content
        with backend.open("a/b") as reader:
            assert reader.size == len(content)
            assert reader.read_at(0, reader.size) == content

    @pytest.mark.parametrize("content", CONTENTS, ids=len)
    def test_a_staged_value_comes_back(self, backend: Backend, content: bytes) -> None:
        """Bytes in by pieces, bytes out."""
        with backend.stage() as staging:
            half = len(content) // 2
            staging.write(content[:half])
            assert staging.tell() == half
            staging.write(memoryview(bytearray(content[half:])))
            assert staging.tell() == len(content)
            assert staging.read_at(half, 10) == content[half : half + 10]
            assert backend.put_if_absent("a/b", staging) is True
            assert staging.read_at(0, 10) == content[:10]
        assert backend.get("a/b") == content

    def test_an_existing_value_is_not_touched(self, backend: Backend) -> None:
        """The second one loses, in either form."""
        assert backend.put_if_absent("k", b"first") is True
        before = list(backend.list(""))
        assert backend.put_if_absent("k", b"second") is False
        with backend.stage() as staging:
            staging.write(b"third")
            assert backend.put_if_absent("k", staging) is False
            assert staging.read_at(0, 5) == b"third"
        assert backend.get("k") == b"first"
        assert list(backend.list("")) == before

    def test_a_loser_can_place_its_staging_elsewhere(self, backend: Backend) -> None:
        """A refused staging is still whole."""
        backend.put_if_absent("k1", b"first")
        with backend.stage() as staging:
            staging.write(b"second")
            assert backend.put_if_absent("k1", staging) is False
            assert backend.put_if_absent("k2", staging) is True
        assert backend.get("k2") == b"second"

    def test_of_many_at_once_one_wins(self, backend: Backend) -> None:
        """Each key has one winner, and its value."""
        for round_ in range(20):
            key = f"race/{round_}"
            start = threading.Barrier(4)
            won: list[bytes] = []

            def run(number: int, key: str = key, start: threading.Barrier = start) -> None:
                content = b"%d" % number * 1000
                start.wait()
                if backend.put_if_absent(key, content):
                    won.append(content)  # noqa: B023 - all threads end within the round

            threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [backend.get(key)] == won

    def test_a_discarded_staging_leaves_nothing(self, backend: Backend) -> None:
        """Neither early nor at the end of its block."""
        staging = backend.stage()
        staging.write(b"x" * 100_000)
        staging.discard()
        staging.discard()
        with backend.stage() as staging:
            staging.write(b"x")
        assert list(backend.list("")) == []

    # --- put ---

    def test_put_replaces_whole(self, backend: Backend) -> None:
        """Longer or shorter, the last one counts."""
        for content in (b"one", b"", b"longer than before", b"x"):
            backend.put("k", content)
            assert backend.get("k") == content
            backend.put("k", content * 2, durable=False)
            assert backend.get("k") == content * 2

    def test_an_open_reader_keeps_its_value(self, backend: Backend) -> None:
        """Neither replacing nor deleting reaches it."""
        backend.put("k", b"old")
        with backend.open("k") as reader:
            backend.put("k", b"newer")
            assert reader.read_at(0, 10) == b"old"
        with backend.open("k") as reader:
            backend.delete("k")
            assert reader.read_at(0, 10) == b"newer"

    # --- reading ---

    def test_a_missing_key_is_said(self, backend: Backend) -> None:
        """Also one that is the beginning of another."""
        backend.put("a/b", b"x")
        for key in ("a", "b", "a/b/c", "a/c"):
            with pytest.raises(Missing):
                backend.get(key)
            with pytest.raises(FileNotFoundError):
                backend.open(key)

    def test_ranges_are_read(self, backend: Backend) -> None:
        """Short at the end, empty behind it."""
        backend.put("k", b"0123456789")
        with backend.open("k") as reader:
            assert reader.read_at(3, 4) == b"3456"
            assert reader.read_at(8, 4) == b"89"
            assert reader.read_at(10, 4) == b""
            assert reader.read_at(99, 4) == b""
            assert reader.read_at(0, 0) == b""
            reader.close()
            reader.close()

    def test_a_value_over_the_limit_is_refused(self, backend: Backend) -> None:
        """The limit itself is fine."""
        backend.put("k", b"12345")
        assert backend.get("k", max_bytes=5) == b"12345"
        with pytest.raises(FormatError):
            backend.get("k", max_bytes=4)

    # --- list and delete ---

    def test_a_listing_is_sorted_and_whole(self, backend: Backend) -> None:
        """By key, through all depths, with sizes."""
        keys = ["a.b", "a/b", "a/b.c", "a-b/c", "a/c/d", "aa", "B", "a/c/d0", "b/1", "b/10", "b/2"]
        for key in keys:
            backend.put(key, key.encode())
        found = list(backend.list(""))
        assert [entry.key for entry in found] == sorted(keys)
        assert [entry.size for entry in found] == [len(key) for key in sorted(keys)]

    def test_a_listing_stays_below_its_prefix(self, backend: Backend) -> None:
        """A prefix is a whole segment."""
        for key in ("a/x", "a/y/z", "ab/x", "b"):
            backend.put(key, b"")
        assert [entry.key for entry in backend.list("a/")] == ["a/x", "a/y/z"]
        assert [entry.key for entry in backend.list("a/y/")] == ["a/y/z"]
        assert list(backend.list("c/")) == []
        assert list(backend.list("a/x/")) == []

    def test_keys_may_go_while_they_are_listed(self, backend: Backend) -> None:
        """What stays is seen once."""
        for number in range(20):
            backend.put(f"d/{number:02}", b"x")
        seen = []
        for entry in backend.list("d/"):
            seen.append(entry.key)
            backend.delete(f"d/{len(seen) + 9:02}")
        assert seen[:10] == [f"d/{number:02}" for number in range(10)]
        assert sorted(set(seen)) == seen

    def test_delete_removes_and_forgives(self, backend: Backend) -> None:
        """A deleted key is free again."""
        backend.put("a/k", b"x")
        backend.delete("a/k")
        backend.delete("a/k")
        backend.delete("never/there")
        assert list(backend.list("")) == []
        assert backend.put_if_absent("a/k", b"y") is True

    # --- the rest ---

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_a_bad_key_is_refused(self, backend: Backend, key: str) -> None:
        """By every method."""
        for method in (backend.get, backend.open, backend.delete):
            with pytest.raises(NameRefusedError):
                method(key)
        with pytest.raises(NameRefusedError):
            backend.put(key, b"")
        with pytest.raises(NameRefusedError):
            backend.put_if_absent(key, b"")
        assert list(backend.list("")) == []

    @pytest.mark.parametrize("prefix", ["a", "/", "../", "a//", "tmp/", " /"])
    def test_a_bad_prefix_is_refused(self, backend: Backend, prefix: str) -> None:
        """At once, not when the listing is walked."""
        with pytest.raises(NameRefusedError):
            backend.list(prefix)

    def test_the_clock_is_that_of_the_values(self, backend: Backend) -> None:
        """A value's time lies between the clock before and after."""
        before = backend.now_ns()
        backend.put("k", b"x")
        after = backend.now_ns()
        (entry,) = backend.list("")
        assert before <= entry.modified_ns <= after

    def test_settling_is_possible_for_any_key(self, backend: Backend) -> None:
        """Also for one that has gone since."""
        backend.put("a/b/c", b"x")
        backend.put("k", b"x", durable=False)
        backend.settle(["a/b/c", "k"])
        backend.settle([])
        backend.delete("k")
        backend.settle(["k", "never/there"])

    def test_closing_twice_is_fine(self, backend: Backend) -> None:
        """And harmless."""
        backend.close()
        backend.close()
