"""The grammar of names and specs."""

from __future__ import annotations

import pytest

from cas import names
from cas.errors import NameRefusedError, RefusedError
from cas.names import Spec, parse_spec

GOOD = ["a", "skills", "A-b_c.d", "0", "x" * 100, "v1.2..3", "a" + "-" * 99]
BAD = [
    "", ".", "..", "...", ".a", "-a", "_a", "a.", "a/", "/a", "a b", " a", "a ", "a\n", "a\0", "ä",
    "a@b", "a:b", "x" * 101, "x" * 300, "../../x", "a\\b", "٣", "a\ud800", None, 5, b"a",
]  # fmt: skip
ONE_SEGMENT = [names.check_seed, names.check_tag, names.check_part]


@pytest.mark.parametrize("check", [*ONE_SEGMENT, names.check_resource])
@pytest.mark.parametrize("name", GOOD)
def test_names_in_the_grammar_are_taken_as_they_are(check, name):
    assert check(name) == name


@pytest.mark.parametrize("check", [*ONE_SEGMENT, names.check_resource])
@pytest.mark.parametrize("name", BAD)
def test_names_outside_the_grammar_are_refused_in_one_line(check, name):
    with pytest.raises(NameRefusedError, match=r"^[ -~]+$") as caught:
        check(name)
    assert len(str(caught.value)) < 300


def test_only_resources_have_segments():
    assert names.check_resource("questions/generated") == "questions/generated"
    assert names.check_resource("/".join("abcdefgh"))
    for name in ("/".join("abcdefghi"), "a//b", "a/../b", "a/.", "/".join(["x" * 70] * 3)):
        with pytest.raises(NameRefusedError):
            names.check_resource(name)
    for check in ONE_SEGMENT:
        with pytest.raises(NameRefusedError):
            check("a/b")


@pytest.mark.parametrize("label", ["v2", "skills-v2", "-x", "(a) b", "~", "a.b.", "a" * 100])
def test_labels_are_printable_names_of_folders(label):
    assert names.check_label(label) == label


@pytest.mark.parametrize(
    "label",
    [
        "",
        ".",
        "..",
        ".hidden",
        "...",
        "a/b",
        " a",
        "a ",
        " ",
        "a\tb",
        "ä",
        "a" * 101,
        "a\n",
        "\x7f",
        None,
    ],
)
def test_other_labels_are_refused(label):
    with pytest.raises(NameRefusedError):
        names.check_label(label)


@pytest.mark.parametrize("run", ["20260101_120000", "läuf 1", "a/b", "..", "x" * 200])
def test_run_ids_are_free_text(run):
    assert names.check_run_id(run) == run


@pytest.mark.parametrize("run", ["", "a\n", "\0", "\x85", "x" * 201, "\udcff", None, 3])
def test_run_ids_without_end_or_with_control_characters_are_refused(run):
    with pytest.raises(NameRefusedError):
        names.check_run_id(run)


@pytest.mark.parametrize("name", [b"a", b"...", b"\xff\n", b" ", b"-rf", b"x" * 255])
def test_entry_names_are_what_a_filesystem_allows(name):
    assert names.check_entry_name(name) == name


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/", b"a\0", b"x" * 256])
def test_other_entry_names_are_refused(name):
    with pytest.raises(NameRefusedError):
        names.check_entry_name(name)


def test_text_is_limited_and_valid():
    assert names.check_text("line\nline é", "description") == "line\nline é"
    assert names.check_text("", "description") == ""
    for text in ("a\0b", "\udcff", "x" * (names.MAX_TEXT + 1), "é" * (names.MAX_TEXT // 2 + 1), 5):
        with pytest.raises(NameRefusedError, match="description"):
            names.check_text(text, "description")
    with pytest.raises(NameRefusedError, match="3 bytes; at most 2"):
        names.check_text("abc", "reason", max_bytes=2)


SPECS = {
    "skills@v3": Spec("version", "skills", 3, "", None),
    "skills@latest": Spec("version", "skills", None, "", None),
    "questions/generated@v12": Spec("version", "questions/generated", 12, "", None),
    "skills@v3:a/b.md": Spec("version", "skills", 3, "", b"a/b.md"),
    "skills@v3:a:b@c": Spec("version", "skills", 3, "", b"a:b@c"),
    "skills@latest:": Spec("version", "skills", None, "", b""),
    "seed:initial": Spec("seed", "initial", None, "", None),
    "seed:initial:skills/v1": Spec("seed", "initial", None, "", b"skills/v1"),
    "tag:prod": Spec("tag", "prod", None, "", None),
    "seed@v1": Spec("version", "seed", 1, "", None),
    "tag@latest:x": Spec("version", "tag", None, "", b"x"),
    "abcdef": Spec("digest", "", None, "abcdef", None),
    "0123456789": Spec("digest", "", None, "0123456789", None),
    "f" * 64 + ":x": Spec("digest", "", None, "f" * 64, b"x"),
    "skills@v1:\udcff": Spec("version", "skills", 1, "", b"\xff"),
    "abcdef@v1": Spec("version", "abcdef", 1, "", None),
}


@pytest.mark.parametrize("text", SPECS)
def test_specs_are_read_and_written(text):
    assert parse_spec(text) == SPECS[text]
    assert str(SPECS[text]) == text
    assert SPECS[text].base == text.partition(":")[0] or text.startswith(("seed:", "tag:"))


def test_slashes_around_a_path_are_dropped():
    assert parse_spec("skills@v1:/a/b/") == parse_spec("skills@v1:a/b")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("skills", "did you mean skills@latest?"),
        ("abc", "6 or more digits; or did you mean abc@latest?"),
        ("ABCDEF", "lowercase"),
        ("f" * 65, "did you mean"),
        ("skills@3", "skills@v1 or skills@latest"),
        ("skills@v0", "skills@v1 or skills@latest"),
        ("skills@v01", "skills@v1 or skills@latest"),
        ("skills@v9999999999999999999", "skills@v1"),
        ("skills@V1", "skills@v1 or skills@latest"),
        ("skills@", "skills@v1 or skills@latest"),
        ("@v1", "not a resource name"),
        ("a@b@v1", "not a resource name"),
        ("../x@v1", "not a resource name"),
        ("seed:", "not a seed name"),
        ("seed:a/b", "not a seed name"),
        ("tag:..", "not a tag name"),
        ("", "use RESOURCE@vN"),
        ("a b", "use RESOURCE@vN"),
        ("skills@v1:a/../b", "not a path"),
        ("skills@v1:..", "not a path"),
        ("skills@v1:a//b", "not a path"),
        ("skills@v1:./a", "not a path"),
        ("skills@v1:a\0", "not a spec"),
        ("skills@v1\n", "skills@v1"),
        ("skills@v1:\ud800", "not a path"),
        (None, "not a spec"),
    ],
)
def test_what_is_no_spec_is_refused_with_a_hint(text, hint):
    with pytest.raises(RefusedError) as caught:
        parse_spec(text)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)
