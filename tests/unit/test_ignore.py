"""`.casignore`: the corners of the grammar, one by one. The property test asks git itself."""

import pytest

from cas.ingest.ignore import Rules


def ignored(text: bytes, path: bytes, *, folder: bool = False) -> bool:
    return Rules(None, b"", text).ignores(path, path.rpartition(b"/")[2], is_folder=folder)


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        (b"*.pyc", b"a/b.pyc", True),
        (b"*.pyc", b"b.pyc.txt", False),
        (b"build", b"x/build", True),
        (b"/build", b"x/build", False),
        (b"/build", b"build", True),
        (b"a/b", b"a/b", True),
        (b"a/b", b"x/a/b", False),
        (b"a/*", b"a/b/c", False),
        (b"a/**", b"a/b/c", True),
        (b"a/**", b"a", False),
        (b"**/c", b"a/b/c", True),
        (b"**/c", b"c", True),
        (b"a/**/c", b"a/c", True),
        (b"a/**/c", b"a/x/y/c", True),
        (b"?", b"ab", False),
        (b"a?c", b"a/c", False),
        (b"[a-c]x", b"bx", True),
        (b"[!a-c]x", b"bx", False),
        (b"[[:digit:]]", b"7", True),
        (b"[", b"[", False),
        (b"\\[", b"[", True),
        (b"a\\", b"a\\", False),
        (b"# no", b"# no", False),
        (b"\\# yes", b"# yes", True),
        (b"\\!yes", b"!yes", True),
        (b"a ", b"a", True),
        (b"a\\ ", b"a ", True),
        (b"a\r", b"a", True),
        (b"\xef\xbb\xbfa", b"a", True),
        (b"\xff*", b"\xff\xfe", True),
        (b"new?line", b"new\nline", True),
        (b"", b"a", False),
        (b"!", b"a", False),
        (b"/", b"a", False),
        (b"*\n!keep", b"keep", False),
        (b"!keep\n*", b"keep", True),
    ],
)
def test_a_pattern_decides(text, path, expected):
    assert ignored(text, path) is expected


def test_a_slash_at_the_end_asks_for_a_folder():
    assert ignored(b"build/", b"build", folder=True)
    assert not ignored(b"build/", b"build")


def test_only_what_matches_itself_is_ignored_and_not_what_lies_below_a_match():
    text = b"*\n!*/\n!*.py"
    assert not ignored(text, b"d", folder=True)
    assert not ignored(text, b"d/a.py")
    assert ignored(text, b"d/a.txt")


def test_deeper_files_go_before_those_above_and_see_paths_from_their_folder():
    above = Rules(None, b"", b"*.log\n/sub/x")
    below = Rules(above, b"sub", b"!keep.log\n/y\n")
    assert not below.ignores(b"sub/keep.log", b"keep.log", is_folder=False)
    assert below.ignores(b"sub/other.log", b"other.log", is_folder=False)
    assert below.ignores(b"sub/x", b"x", is_folder=False)
    assert below.ignores(b"sub/y", b"y", is_folder=False)
    assert not below.ignores(b"sub/d/y", b"y", is_folder=False)
