"""Canonical MessagePack: what is taken, what is refused, and at what cost."""

from __future__ import annotations

import resource
import subprocess
import sys

import msgpack
import pytest

from cas import codec
from cas.errors import FormatError, RefusedError


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        1 << 64, -(1 << 63) - 1, float("nan"), float("inf"), float("-inf"), "\ud800", {"\udfff": 1},
        {1: 2}, {b"k": 1}, {Text("k"): 1}, Text("t"), {"k": object()}, [set()], 1j, range(3),
        bytearray(b"x"), memoryview(b"x"), msgpack.Timestamp(1), msgpack.ExtType(1, b""),
    ],
)  # fmt: skip
def test_other_values_are_refused(value):
    with pytest.raises(RefusedError):
        codec.encode(value)


def test_depth_is_limited_both_ways():
    value: object = 0
    for _ in range(codec.MAX_DEPTH):
        value = [value]
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(RefusedError, match="too deep"):
        codec.encode([value])
    with pytest.raises(FormatError, match="deeper"):
        codec.decode(b"\x91" + codec.encode(value))
    with pytest.raises(FormatError, match="deeper"):
        codec.decode(b"\x81\xa1k" + codec.encode(value))
    with pytest.raises(FormatError, match="deeper"):
        codec.decode_trusted(b"\x91" + codec.encode(value))


def test_keys_are_in_the_order_of_their_utf8_bytes():
    keys = ["", "a", "aa", "b", "é", "\uffff", "\U00010000"]
    assert sorted(keys, key=str.encode) == keys
    data = codec.encode(dict.fromkeys(reversed(keys), 1))
    assert list(codec.decode(data)) == keys


NOT_CANONICAL = {
    "nothing": b"",
    "two values": b"\x01\x01",
    "cut short": b"\x92\x01",
    "long integer": b"\xcc\x01",
    "signed where unsigned is meant": b"\xd0\x01",
    "unsigned 64 for a small one": b"\xcf" + bytes(7) + b"\x01",
    "float32": b"\xca\x3f\x80\x00\x00",
    "not a number": b"\xcb\x7f\xf8" + bytes(6),
    "infinite": b"\xcb\xff\xf0" + bytes(6),
    "infinite in a list": b"\x91\xcb\x7f\xf0" + bytes(6),
    "infinite in a map": b"\x81\xa1k\xcb\x7f\xf0" + bytes(6),
    "long text header": b"\xd9\x01a",
    "long bytes header": b"\xc5\x00\x01a",
    "long list header": b"\xdc\x00\x01\x01",
    "long map header": b"\xde\x00\x01\xa1a\x01",
    "text that is not UTF-8": b"\xa1\xff",
    "a surrogate": b"\xa3\xed\xa0\x80",
    "keys out of order": b"\x82\xa1b\x01\xa1a\x01",
    "a key twice": b"\x82\xa1a\x01\xa1a\x02",
    "a key that is bytes": b"\x81\xc4\x01a\x01",
    "a key that is a number": b"\x81\x01\x01",
    "a key that is a list": b"\x81\x90\x01",
    "an extension": b"\xd4\x01\x01",
    "a timestamp": b"\xd6\xff" + bytes(4),
    "a 64-bit timestamp": b"\xd7\xff" + bytes(8),
    "a 96-bit timestamp": b"\xc7\x0c\xff" + bytes(12),
    "a timestamp of the wrong size": b"\xc7\x01\xff\x00",
    "the unused byte": b"\xc1",
    "a list longer than the bytes": b"\xdd\xff\xff\xff\xff",
    "a map longer than the bytes": b"\xdf\xff\xff\xff\xff",
    "bytes longer than the bytes": b"\xc6\xff\xff\xff\xff",
    "a thousand lists": b"\x91" * 1000 + b"\x01",
    "a million lists": b"\x91" * 1_000_000,
}


@pytest.mark.parametrize("name", NOT_CANONICAL)
def test_bytes_that_are_not_canonical_are_refused(name):
    with pytest.raises(FormatError):
        codec.decode(NOT_CANONICAL[name])


# Depth and numbers that are not finite are left to those who use the fast path.
LEFT_TO_CALLER = ("infinite", "not a number", "a thousand lists")


@pytest.mark.parametrize(
    "name", [name for name in NOT_CANONICAL if not name.startswith(LEFT_TO_CALLER)]
)
def test_the_fast_path_for_rows_refuses_them_too(name):
    with pytest.raises(FormatError):
        codec.decode_rows(NOT_CANONICAL[name], max_bytes=1 << 20)


def test_the_fast_path_for_rows_takes_no_map():
    with pytest.raises(FormatError, match="map"):
        codec.decode_rows(codec.encode([{"a": 1}]), max_bytes=100)
    assert codec.decode_rows(codec.encode([[1, "a"], [b"b", None]]), max_bytes=100) == (
        (1, "a"),
        (b"b", None),
    )


def test_more_bytes_than_allowed_are_not_looked_at():
    with pytest.raises(FormatError, match="limit"):
        codec.decode(codec.encode(b"x" * 100), max_bytes=99)


def test_trusted_bytes_are_not_compared_but_still_parsed():
    assert codec.decode_trusted(b"\xcc\x01") == 1
    for name in ("nothing", "two values", "an extension", "a list longer than the bytes"):
        with pytest.raises(FormatError):
            codec.decode_trusted(NOT_CANONICAL[name])


def test_plain_values_encode_alike():
    value = ["tree", 1, -5, None, True, b"\x00", ["x", 1 << 40]]
    assert codec.encode_plain(value) == codec.encode(value) == codec.encode_plain(tuple(value))
    for refused in (1 << 64, object(), "\ud800"):
        with pytest.raises(RefusedError):
            codec.encode_plain([refused])
    assert codec.decode(codec.encode_plain(value)) == value


def test_lengths_that_are_only_claimed_take_no_memory():
    # Nested lists that each claim as many items as there are bytes: 4 GiB if they were believed.
    script = (
        "import resource, sys\n"
        "from cas import codec\n"
        "from cas.errors import FormatError\n"
        "size = 1 << 20\n"
        "data = b'\\x91' * 8 + (b'\\xdd' + size.to_bytes(4, 'big')) * 500\n"
        "data += b'\\x01' * (size - len(data))\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "try:\n"
        "    codec.decode(data)\n"
        "except FormatError:\n"
        "    sys.exit(7)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_AS)
    assert subprocess.run([sys.executable, "-c", script]).returncode == 7
