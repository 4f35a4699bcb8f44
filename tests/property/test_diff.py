"""Differences between any two states, against a plain comparison of their files."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cas.backends import MemoryBackend
from cas.catalogue import textdiff
from cas.catalogue.diff import diff_trees
from cas.catalogue.textdiff import unified
from cas.objects import ObjectStore
from cas.testing.strategies import trees
from cas.testing.trees import put_model


def flat(model, prefix=b""):
    """Return what stands at each path: files, links, and directories with nothing in them."""
    found = {}
    for name, node in model.items():
        path = prefix + name
        if not isinstance(node, dict):
            found[path] = node
        elif node:
            found |= flat(node, path + b"/")
        else:
            found[path] = {}
    return found


def names(model, prefix=b""):
    """Return the paths of all directories."""
    found = set()
    for name, node in model.items():
        if isinstance(node, dict):
            found |= {prefix + name} | names(node, prefix + name + b"/")
    return found


@given(a=trees(), b=trees(), mixed=st.booleans())
def test_a_diff_is_what_comparing_every_file_finds(a, b, mixed):
    if mixed:
        b = a | b
    objects = ObjectStore(MemoryBackend())
    old, new = put_model(objects, a), put_model(objects, b)
    found = diff_trees(objects.read, old.digest, new.digest)

    one, other = flat(a), flat(b)
    gone = {p for p in one.keys() - other.keys() if one[p] != {} or p not in names(b)}
    came = {p for p in other.keys() - one.keys() if other[p] != {} or p not in names(a)}
    assert {c.path for c in found.changed} == {
        p for p in one.keys() & other.keys() if one[p] != other[p]
    }
    assert {c.path for c in found.removed} | {r.old_path for r in found.renamed} == gone
    assert {c.path for c in found.added} | {r.path for r in found.renamed} == came
    for rename in found.renamed:
        assert one[rename.old_path][1] == other[rename.path][1] != b""
    pairable = content(one, gone) & content(other, came)
    assert len(found.renamed) == sum(pairable.values())


def content(state, paths):
    return Counter(
        (node[0] == "symlink", node[1])
        for node in (state[path] for path in paths)
        if node != {} and node[1]
    )


LINES = st.sampled_from([b"a", b"b", b"x\r", b"\xff", b"", "ü\u2028".encode(), b"-", b"+", b"@@"])
TEXTS = st.builds(
    lambda lines, end: b"".join(line + b"\n" for line in lines) + end,
    st.lists(st.one_of(LINES, st.integers(0, 60).map(lambda n: b"%d" % n)), max_size=40),
    st.sampled_from([b"", b"tail"]),
)


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
@given(old=TEXTS, new=TEXTS, edits=st.lists(st.integers(0, 40), max_size=4), small=st.booleans())
def test_patch_makes_the_new_text_of_the_old_one(old, new, edits, small):
    if edits:
        lines = old.split(b"\n")
        for at in edits:
            lines[at % len(lines)] = b"new %d" % at
        new = b"\n".join(lines)
    if old == new:
        assert list(unified(old, new, "f", "f")) == []
        return
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        if small:  # take the ways that only long texts take
            patched.setattr(textdiff, "_SMALL", 0)
            patched.setattr(textdiff, "_MAX_WORK", 10)
        text = "".join(line + "\n" for line in unified(old, new, "f", "f"))
        path = Path(folder, "f")
        path.write_bytes(old)
        subprocess.run(
            ["patch", "-s", "-f", "f"],
            cwd=folder,
            input=text.encode("utf-8", "surrogateescape"),
            check=True,
            capture_output=True,
        )
        assert (path.read_bytes() if path.exists() else b"") == new
