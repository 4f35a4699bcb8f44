"""What a filesystem cannot hold is found out before the first byte is written."""

from __future__ import annotations

import errno
import os
import unicodedata

import pytest

from cas import fs
from cas.backends import LocalBackend
from cas.checkout import checkout, update
from cas.checkout.preflight import probe
from cas.errors import DiskFullError, UnsupportedError
from cas.objects import ObjectStore
from cas.testing.strategies import read_back
from cas.testing.trees import put_model
from cas.workspace import WorkspaceState, status


@pytest.fixture
def objects(tmp_path):
    store = ObjectStore(LocalBackend(tmp_path / "store", create=True))
    yield store
    store.close()


@pytest.fixture
def dest(tmp_path):
    return tmp_path / "disk" / "work"


def state():
    return WorkspaceState(store_path="/the/store", store_id="1" * 32, spec="skills@v1")


class Picky:
    """A filesystem that folds case, refuses some characters and links, and keeps no modes.

    It is made of the real one by changing what `cas.fs` does below one directory.
    """

    def __init__(self, monkeypatch, top, *, links=False, refused=':*?"<>|\\', composed=False):
        self.top = os.fspath(top)
        self.links = links
        self.refused = refused
        self.composed = composed
        self.written = 0
        for name in ("create_excl", "mkdir"):
            monkeypatch.setattr(fs, name, self.creating(getattr(fs, name)))
        monkeypatch.setattr(fs, "symlink", self.linking(fs.symlink))
        real = fs.write

        def write(fd, content):
            if os.readlink(f"/proc/self/fd/{fd}").startswith(self.top):
                self.written += len(content)
            return real(fd, content)

        monkeypatch.setattr(fs, "write", write)

    def inside(self, dir_fd):
        return dir_fd is not None and os.readlink(f"/proc/self/fd/{dir_fd}").startswith(self.top)

    def creating(self, real):
        def create(path, mode=0o666, dir_fd=None):
            if not self.inside(dir_fd):
                return real(path, mode, dir_fd=dir_fd)
            text = os.fsdecode(path)
            if text[-1] in ". " or any(char in text or ord(char) < 32 for char in self.refused):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            if self.composed:
                path = unicodedata.normalize("NFD", text)
            for there in os.listdir(dir_fd):
                if there.casefold() == text.casefold():
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            return real(path, mode & 0o666 if real.__name__ == "create_excl" else mode, dir_fd)

        return create

    def linking(self, real):
        def symlink(target, path, dir_fd=None):
            if self.inside(dir_fd) and not self.links:
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            real(target, path, dir_fd=dir_fd)

        return symlink


@pytest.fixture
def picky(monkeypatch, dest):
    dest.parent.mkdir()
    return Picky(monkeypatch, dest.parent)


def refused(objects, dest, model, **options):
    tree = put_model(objects, model)
    with pytest.raises(UnsupportedError) as caught:
        checkout(objects, tree.digest, dest, memory=state(), **options)
    assert os.listdir(dest.parent) == []
    return str(caught.value)


def test_an_ordinary_filesystem_can_do_everything(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    found = probe(fd)
    os.close(fd)
    assert (found.names, found.symlinks, found.exec_bits) == (True, True, True)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({b"A": ("file", b"1"), b"a": ("file", b"2")}, "'a'.*'A'"),
        ({b"d": {b"A": {}, b"a": ("file", b"2")}}, "'d/a'.*'A'"),
        ({b"d": {b"x": {}, b"x:y": ("file", b"2")}}, "'d/x:y'"),
        ({b"ok": ("file", b""), b"trailing.": {}}, "'trailing.'"),
        ({b"ok": ("file", b""), b"z": ("symlink", b"ok")}, "'z'.*symlinks"),
    ],
)
def test_what_cannot_be_held_is_refused_before_a_byte_is_written(objects, dest, picky, model, said):
    import re

    first = {b"0": ("file", b"a byte")}
    assert re.search(said, refused(objects, dest, {**first, **model}))
    assert picky.written == 0


def test_a_filesystem_that_rewrites_names_is_noticed(objects, dest, monkeypatch):
    dest.parent.mkdir()
    picky = Picky(monkeypatch, dest.parent, links=True, refused="", composed=True)
    name = unicodedata.normalize("NFC", "\u00e9").encode()
    assert "another form" in refused(objects, dest, {name: ("file", b"x")})
    assert picky.written == 0


def test_what_can_be_held_is_written_and_lost_modes_are_said(objects, dest, picky):
    tree = put_model(objects, {b"run": ("exec", b"#!"), b"d": {b"plain": ("file", b"x")}})
    done = checkout(objects, tree.digest, dest, memory=state())
    assert any("executable" in notice for notice in done.notices)
    model = read_back(dest)
    del model[b".cas-workspace"]
    assert model == {b"run": ("file", b"#!"), b"d": {b"plain": ("file", b"x")}}
    assert status(dest).clean


def test_only_leaves_out_what_cannot_be_held(objects, dest, picky):
    tree = put_model(objects, {b"A": ("file", b"1"), b"a": ("file", b"2"), b"b": ("file", b"3")})
    done = checkout(objects, tree.digest, dest, memory=state(), only=["A", "b"])
    assert done.files == 2


def test_an_update_to_what_cannot_be_held_changes_nothing(objects, dest, picky):
    first = put_model(objects, {b"A": ("file", b"1")})
    second = put_model(objects, {b"A": ("file", b"2"), b"a": ("file", b"3")})
    checkout(objects, first.digest, dest, memory=state())
    with pytest.raises(UnsupportedError, match="'a'"):
        update(objects, dest, second.digest, memory=state())
    assert (dest / "A").read_text() == "1"
    assert status(dest).clean
    assert status(dest).interrupted is None


def test_a_full_disk_is_no_limit_of_names(objects, dest, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tree = put_model(objects, {b"a": ("file", b"1")})
    monkeypatch.setattr(fs, "create_excl", full)
    with pytest.raises(DiskFullError):
        checkout(objects, tree.digest, dest)
