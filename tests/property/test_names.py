"""Properties of names and specs."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cas import names
from cas.errors import RefusedError
from cas.names import Spec, parse_spec

segments = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(
    lambda name: not name.endswith(".")
)
resources = st.lists(segments, min_size=1, max_size=8).map("/".join)
components = st.binary(min_size=1, max_size=9).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)
paths = st.none() | st.lists(components, max_size=4).map(b"/".join)
numbers = st.none() | st.integers(1, 1 << 62)
prefixes = st.text("0123456789abcdef", min_size=6, max_size=64)
specs = st.one_of(
    st.builds(Spec, st.just("version"), resources, numbers, st.just(""), paths),
    st.builds(Spec, st.sampled_from(["seed", "tag"]), segments, st.none(), st.just(""), paths),
    st.builds(Spec, st.just("digest"), st.just(""), st.none(), prefixes, paths),
)


@given(specs)
def test_every_spec_is_read_back_from_its_text(spec):
    assert parse_spec(str(spec)) == spec


@given(st.text(max_size=30) | st.text("skeda@v12:/.tg", max_size=20))
@example("a@v1:b/")
def test_any_text_is_a_spec_that_writes_itself_or_refused_in_one_line(text):
    refusal = ""
    try:
        spec = parse_spec(text)
    except RefusedError as error:
        refusal = str(error)
    assert "\n" not in refusal
    if refusal:
        return
    assert parse_spec(str(spec)) == spec
    if spec.path is not None:
        assert os.fsencode(text).strip(b"/").endswith(spec.path)


@given(st.text(max_size=12) | st.text("a./-\0 \n", max_size=6))
@pytest.mark.parametrize(
    "check",
    [names.check_resource, names.check_seed, names.check_tag, names.check_part, names.check_label],
)
def test_no_name_that_is_taken_can_leave_its_directory(check, name):
    try:
        assert check(name) == name
    except RefusedError:
        return
    assert os.path.normpath(os.path.join("/base", name)) == f"/base/{name}"
    assert name.isprintable()
    assert name.isascii()
