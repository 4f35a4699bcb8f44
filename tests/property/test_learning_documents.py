"""Documents: whatever is accepted is read back as it was, and equal documents have equal bytes."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cas.errors import RefusedError
from cas.learning.document import checked, decode_document, encode_document

NUMBERS = st.integers() | st.floats() | st.integers(min_value=1 << 600, max_value=1 << 700)


def values(text, numbers):
    return st.recursive(
        st.none() | st.booleans() | numbers | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=12,
    )


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)


def finite(value):
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    return all(map(finite, value)) if isinstance(value, list) else True


@given(values(ANY_TEXT, NUMBERS))
def test_what_is_accepted_is_read_back_exactly(value):
    refused = ""
    try:
        encoded = encode_document(value, "it")
    except RefusedError as error:
        refused = str(error)
    if refused:
        assert not finite(value) or "same text" in refused
        return
    read = decode_document(encoded)
    assert repr(read) == repr(sorted_out(checked(value, "it")))
    assert encode_document(read, "it") == encoded


def sorted_out(value):
    if isinstance(value, dict):
        return {key: sorted_out(value[key]) for key in sorted(value)}
    return [*map(sorted_out, value)] if isinstance(value, list) else value


@given(
    values(st.text(max_size=8), st.integers() | st.floats(allow_nan=False, allow_infinity=False))
)
def test_what_is_json_already_stays_as_it_is(value):
    assert repr(decode_document(encode_document(value, "it"))) == repr(sorted_out(value))


def test_the_largest_integer_is_read_where_python_limits_digits_most():
    code = (
        "from cas.learning.document import *\n"
        "n = -(1 << MAX_INTEGER_BITS) + 1\n"
        "assert decode_document(encode_document(n, 'it')) == n\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "int_max_str_digits=640", "-c", code], check=False, timeout=60
    )
    assert done.returncode == 0
    with pytest.raises(RefusedError, match="bits"):
        encode_document(1 << 2048, "it")
