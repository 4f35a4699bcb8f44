"""Properties of canonical MessagePack."""

from __future__ import annotations

import struct

from hypothesis import assume, example, given
from hypothesis import strategies as st

from cas import codec
from cas.digest import Digest, hash_bytes
from cas.errors import FormatError

texts = st.text(st.characters(codec="utf-8"), max_size=40)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.binary(max_size=300)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(texts, inner, max_size=20),
    max_leaves=40,
)


def same(a, b) -> bool:
    """Equal in type too: 1, 1.0 and True are three values, 0.0 and -0.0 two."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return struct.pack(">d", a) == struct.pack(">d", b)
    return a == b


@given(values)
def test_what_is_encoded_decodes_to_the_same(value):
    assert same(codec.decode(codec.encode(value)), value)
    assert same(codec.decode_trusted(codec.encode(value)), value)


def shuffled(value, draw):
    """An equal value whose maps were filled in another order."""
    if isinstance(value, list):
        return [shuffled(item, draw) for item in value]
    if isinstance(value, dict):
        keys = draw(st.permutations(list(value)))
        return {key: shuffled(value[key], draw) for key in keys}
    return value


@given(values, st.data())
def test_equal_values_have_equal_encodings(value, data):
    assert codec.encode(shuffled(value, data.draw)) == codec.encode(value)


@given(st.binary(max_size=60))
@example(b"\xcf\x00\x00\x00\x01\x00\x00\x00\x00")
@example(b"\xd3\xff\xff\xff\xff\x7f\xff\xff\xff")
def test_bytes_that_decode_are_the_encoding_of_their_value(data):
    try:
        value = codec.decode(data)
    except FormatError:
        return
    assert codec.encode(value) == data


@given(values, st.data())
def test_a_change_of_one_byte_is_another_value_or_refused(value, data):
    encoded = codec.encode(value)
    at = data.draw(st.integers(0, len(encoded) - 1))
    changed = bytearray(encoded)
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        other = codec.decode(bytes(changed))
    except FormatError:
        return
    assert not same(other, value)


@given(values, st.data())
def test_no_cut_or_longer_encoding_is_taken(value, data):
    encoded = codec.encode(value)
    for other in (encoded[: data.draw(st.integers(0, len(encoded) - 1))], encoded + b"\x00"):
        try:
            codec.decode(other)
        except FormatError:
            continue
        raise AssertionError(other)


@given(st.lists(st.integers() | texts | st.binary(max_size=9) | st.none(), max_size=9))
def test_the_fast_path_gives_the_same_bytes(row):
    assume(all(not isinstance(item, int) or -(1 << 63) <= item < 1 << 64 for item in row))
    assert codec.encode_plain([row, tuple(row)]) == codec.encode([row, row])
    assert codec.decode_rows(codec.encode([row]), max_bytes=1 << 20) == (tuple(row),)


@given(st.binary(max_size=100))
def test_a_digest_survives_its_text_and_the_codec(content):
    digest = hash_bytes(content)
    assert Digest.parse(str(digest)) == digest
    assert Digest(codec.decode(codec.encode(digest))) == digest
