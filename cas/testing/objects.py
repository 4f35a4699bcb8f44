"""Objects to store, and what must hold for any store of objects."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import SearchStrategy

    from cas.objects import ObjectStore


def sample(count: int, *, seed: int = 1, largest: int = 3000) -> list[bytes]:
    """Return up to `count` different objects, text and noise in turns, always the same ones.

    Args:
        count: How many, about.
        seed: Of the noise.
        largest: Most bytes of one.
    """
    noise = random.Random(seed)
    made = []
    for number in range(count):
        size = noise.randrange(largest)
        text = f"{seed}.{number} a line of text\n".encode()
        made.append(noise.randbytes(size) if number % 2 else text * (size // 16))
    return list(dict.fromkeys(made))


def contents(largest: int = 20_000) -> SearchStrategy[bytes]:
    """Objects of all sizes: empty, tiny, compressible or not, many of them equal."""
    size = st.one_of(st.integers(0, 40), st.integers(0, largest))
    text = st.builds(lambda number, size: (b"%d text " % number * size)[:size], st.integers(), size)
    noise = st.builds(
        lambda seed, size: random.Random(seed).randbytes(size), st.integers(0, 9), size
    )
    return st.one_of(st.binary(max_size=50), text, noise)


def check_holds(store: ObjectStore, expected: Mapping[bytes, bytes]) -> None:
    """See that a store gives back, in every way, what it is said to hold.

    Args:
        store: The store.
        expected: Digest → object.

    Raises:
        AssertionError: It does not.
    """
    digests = list(expected)
    assert all(store.has_many(digests))
    assert dict(store.read_many(digests)) == dict(expected)
    for digest, content in expected.items():
        assert store.read(digest) == content
        assert store.info(digest).size == len(content)
        with store.open(digest) as file:
            assert file.read() == content


def check_sound(store: ObjectStore) -> None:
    """See that every pack, loose object and table proves right.

    Raises:
        AssertionError: One does not.
    """
    for pack, _ in store.packs():
        assert store.check_pack(pack).findings == ()
        assert store.check_pack(pack, quick=True).findings == ()
    for digest, _ in store.loose_objects():
        assert store.check_loose([digest]).findings == ()
    assert store.check_tables().findings == ()
