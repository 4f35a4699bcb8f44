"""`.casignore` decides as git does with the same text in its place."""

import os
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cas.ingest.listing import Listing
from cas.ingest.walk import Chunk, Walk
from cas.workspace.handles import Handles

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")

SEGMENTS = [
    *("a", "b", "ab", "a b", "*", "?", "a*", "*b", "**", "a**", "**b", "***"),
    *("[ab]", "[!a]", "[^a-]", "[a-b]", "[b-a]", "[a-b-c]", "[]a]", "[\\]a]", "[[:alpha:]]"),
    *("[[:x:]]", "[", "[a", "]", "\\a", "a\\", "a ", "é", "?é"),
]
NAMES = ["a", "b", "ab", "a b", "c", "é", "-", "]"]


@st.composite
def patterns(draw):
    text = "/".join(draw(st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3)))
    text = draw(st.sampled_from(["", "", "", "/"])) + text
    text += draw(st.sampled_from(["", "", "/"]))
    return draw(st.sampled_from(["", "", "!"])) + text


def folders():
    files = st.none()
    rules = st.lists(patterns(), min_size=1, max_size=4)

    def folder(below):
        return st.tuples(
            st.dictionaries(st.sampled_from(NAMES), below, min_size=1, max_size=4),
            st.one_of(st.none(), rules),
        )

    return folder(st.recursive(files, folder, max_leaves=12))


def make(path, folder):
    entries, rules = folder
    os.mkdir(path)
    for name, below in entries.items():
        if below is None:
            with open(f"{path}/{name}", "w", encoding="utf-8"):
                pass
        else:
            make(f"{path}/{name}", below)
    if rules is not None:
        with open(f"{path}/.casignore", "w", encoding="utf-8") as file:
            file.write("\n".join(rules) + "\n")


def taken_by_git(path, git):
    listed = subprocess.run(
        [
            *("git", f"--git-dir={git}", f"--work-tree={path}", "ls-files", "-z"),
            *("--others", "--exclude-per-directory=.casignore"),
        ],
        cwd=path,
        capture_output=True,
        check=True,
    ).stdout
    return sorted(listed.split(b"\0")[:-1])


def taken_by_us(path):
    root = os.open(path, os.O_RDONLY)
    try:
        with Handles(root) as handles:
            walk = Walk(handles, os.fsencode(path), index=None, ignore=True)
            return sorted(
                os.path.join(event.folder, name)
                for event in walk.events()
                if isinstance(event, Chunk)
                for name in event.names
            )
    finally:
        os.close(root)


@pytest.fixture(scope="module")
def git(tmp_path_factory):
    path = tmp_path_factory.mktemp("git") / "empty.git"
    subprocess.run(["git", "init", "-q", "--bare", path], check=True)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return str(tmp_path_factory.mktemp("ignore") / "tree")


@given(folder=folders())
def test_the_same_files_are_left_out(git, place, folder):
    make(place, folder)
    try:
        assert taken_by_us(place) == taken_by_git(place, git)
    finally:
        shutil.rmtree(place)


@given(names=st.sets(st.sampled_from(["X", "X-wal", "Y-journal", "Z-wal-wal", "-wal", "d"])))
def test_a_listing_notes_what_has_a_side_file(place, names):
    os.mkdir(place)
    try:
        for name in names:
            with open(f"{place}/{name}", "w", encoding="utf-8"):
                pass
        fd = os.open(place, os.O_RDONLY)
        try:
            live = Listing(fd).live
        finally:
            os.close(fd)
        sides = ("-wal", "-journal")
        assert live == {n[: -len(s)].encode() for n in names for s in sides if n.endswith(s)}
    finally:
        shutil.rmtree(place)
