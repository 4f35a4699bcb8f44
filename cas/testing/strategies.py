"""Directory trees for Hypothesis: as plain models, on the disk, and back."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Literal

from hypothesis import strategies as st

from cas import fs

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

File = tuple[Literal["file", "exec", "symlink"], bytes]
"""A file with its content, or a symlink with what it holds."""

Model = dict[bytes, "File | Model"]
"""A directory: names to files and further directories."""

_ODD_NAMES = [
    b"a",
    b"A",
    b"a b",
    b"-rf",
    b"--help",
    b".hidden",
    b"...",
    b"..a",
    b"a.",
    b"x:y",
    b"new\nline",
    b"tab\t",
    b"back\\slash",
    b"'quoted\"",
    b"$(id)",
    b"*?[",
    b"\x01\x7f",
    b"\xff\xfe",
    b"\xc3",
    b"meta.json",
    b"con",
    b"v1",
    b"v10",
    b"v2",
    b"n" * 255,
    "é".encode(),
    "e\u0301".encode(),
    "🙂".encode(),
    "\u202eevil".encode(),
]

_ODD_TARGETS = [b".", b"..", b"/", b"a", b"../../outside", b"/etc/passwd", b"gone\xff", b"x" * 1000]


def entry_names() -> SearchStrategy[bytes]:
    """Names that a directory entry may have: any bytes but NUL and "/", not "." and ".."."""
    anything = st.lists(
        st.integers(1, 255).filter(lambda byte: byte != 0x2F), min_size=1, max_size=20
    ).map(bytes)
    return st.one_of(st.sampled_from(_ODD_NAMES), anything).filter(
        lambda name: name not in (b".", b"..")
    )


def contents(max_size: int = 200) -> SearchStrategy[bytes]:
    """Contents of files; empty ones and equal ones come up often."""
    return st.one_of(
        st.sampled_from([b"", b"x", b"same", b"line\n" * 20, bytes(100)]),
        st.binary(max_size=max_size),
    )


def link_targets() -> SearchStrategy[bytes]:
    """What symlinks may hold; most of it leads nowhere."""
    return st.one_of(st.sampled_from(_ODD_TARGETS), entry_names())


def files(max_size: int = 200) -> SearchStrategy[File]:
    """Files, executable files and symlinks."""
    return st.one_of(
        st.tuples(st.just("file"), contents(max_size)),
        st.tuples(st.just("exec"), contents(max_size)),
        st.tuples(st.just("symlink"), link_targets()),
    )


def trees(max_leaves: int = 20, max_size: int = 200) -> SearchStrategy[Model]:
    """Directory trees, empty directories and the empty tree among them.

    Args:
        max_leaves: About how many files a tree has at most.
        max_size: Most bytes of one file.
    """

    def directory(children: SearchStrategy[File | Model]) -> SearchStrategy[Model]:
        return st.dictionaries(entry_names(), children, max_size=6)

    node: SearchStrategy[File | Model] = st.recursive(
        files(max_size), directory, max_leaves=max_leaves
    )
    return directory(node)


def materialise(model: Model, path: str | bytes | os.PathLike[str]) -> None:
    """Write a model into a directory, which is made if it does not exist."""
    top = os.fsencode(path)
    os.makedirs(top, exist_ok=True)
    for name, node in model.items():
        at = os.path.join(top, name)
        if isinstance(node, dict):
            materialise(node, at)
            continue
        kind, content = node
        if kind == "symlink":
            os.symlink(content, at)
            continue
        with open(at, "wb") as file:
            file.write(content)
        os.chmod(at, 0o755 if kind == "exec" else 0o644)


def read_back(path: str | bytes | os.PathLike[str]) -> Model:
    """Return the model of a directory on the disk.

    Raises:
        ValueError: Something in it is no file, directory or symlink.
    """
    top = os.fsencode(path)
    model: Model = {}
    with os.scandir(top) as found:
        for entry in found:
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                model[entry.name] = read_back(entry.path)
            elif stat.S_ISLNK(mode):
                model[entry.name] = ("symlink", fs.readlink(entry.path))
            elif stat.S_ISREG(mode):
                with open(entry.path, "rb") as file:
                    model[entry.name] = ("exec" if mode & 0o100 else "file", file.read())
            else:
                raise ValueError(f"{entry.path!r} is of a kind that no model has")
    return model


def count_files(model: Model) -> int:
    """Return how many files and symlinks a model has, at all depths."""
    return sum(count_files(node) if isinstance(node, dict) else 1 for node in model.values())
