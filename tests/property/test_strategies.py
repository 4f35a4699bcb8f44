"""The generated trees are what they say, and the disk gives them back."""

from __future__ import annotations

import os

import pytest
from hypothesis import find, given

from cas.testing.strategies import count_files, entry_names, materialise, read_back, trees


@given(name=entry_names())
def test_names_can_be_made(name):
    assert 1 <= len(name) <= 255
    assert b"\0" not in name
    assert b"/" not in name
    assert name not in (b".", b"..")


@given(model=trees())
def test_a_tree_comes_back_from_the_disk(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("tree")
    materialise(model, folder)
    assert read_back(folder) == model
    files = sum(
        len(files) + sum(map(os.path.islink, (os.path.join(top, d) for d in folders)))
        for top, folders, files in os.walk(os.fsencode(folder))
    )
    assert count_files(model) == files


@pytest.mark.parametrize(
    "has",
    [
        lambda node: node == {},
        lambda node: node == ("file", b""),
        lambda node: isinstance(node, tuple) and node[0] == "exec" and node[1],
        lambda node: node == ("symlink", b"."),
        lambda node: isinstance(node, dict) and any(isinstance(n, dict) for n in node.values()),
        lambda node: isinstance(node, dict) and any(b"\xff" in name for name in node),
    ],
)
def test_what_is_odd_comes_up(has):
    def anywhere(model):
        return any(
            has(node) or (isinstance(node, dict) and anywhere(node)) for node in model.values()
        )

    assert find(trees(), anywhere)


def test_another_kind_of_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ValueError, match="fifo"):
        read_back(tmp_path)
