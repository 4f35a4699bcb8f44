"""Proving a directory finds everything that is not as it should be."""

from __future__ import annotations

import os
import shutil

import pytest

from cas import fs
from cas.backends import LocalBackend
from cas.checkout import checkout
from cas.digest import hash_bytes
from cas.errors import ConflictError, NotFoundError
from cas.objects import ObjectStore
from cas.testing.trees import put_model
from cas.workspace import WorkspaceState, verify_directory, verify_workspace
from cas.workspace.runs import runs

MODEL = {
    b"a": ("file", b"a"),
    b"run": ("exec", b"#!"),
    b"link": ("symlink", b"a"),
    b"empty": {},
    b"big": ("file", b"big" * 100_000),
    b"d": {b"x": ("file", b"x"), b"e": {b"z": ("file", b"z")}, b"none": {}},
}


@pytest.fixture
def objects(tmp_path):
    store = ObjectStore(LocalBackend(tmp_path / "store", create=True))
    yield store
    store.close()


@pytest.fixture
def tree(objects):
    return put_model(objects, MODEL)


@pytest.fixture
def work(objects, tree, tmp_path):
    state = WorkspaceState(store_path="/the/store", store_id="1" * 32, spec="skills@v1")
    checkout(objects, tree.digest, tmp_path / "work", memory=state)
    return tmp_path / "work"


@pytest.fixture(params=["offline", "against a tree", "by workers"])
def verify(request, objects, tree, monkeypatch):
    if request.param == "offline":
        return verify_workspace
    if request.param == "by workers":
        monkeypatch.setattr("cas.workspace.crew._PAYS", 1)
        monkeypatch.setattr("cas.workspace.verify._BATCH_FILES", 1)
    return lambda path: verify_directory(path, runs(objects.read, tree.digest), workers=2)


def found(check):
    assert check.ok == (not check.differences)
    return [(one.kind, one.path) for one in check.differences]


def test_a_whole_directory_is_proven_by_reading_all_of_it(verify, work, tree):
    check = verify(work)
    assert check.ok
    assert (check.files, check.bytes, check.checked_bytes) == (tree.files, tree.bytes, tree.bytes)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda w: (w / "a").unlink(), [("missing", b"a")]),
        (lambda w: (w / "a").write_text("b"), [("changed", b"a")]),
        (lambda w: (w / "a").write_text("longer"), [("changed", b"a")]),
        (lambda w: (w / "a").chmod(0o755), [("changed", b"a")]),
        (lambda w: (w / "run").chmod(0o644), [("changed", b"run")]),
        (lambda w: (w / "extra").touch(), [("extra", b"extra")]),
        (lambda w: (w / "d" / "extra").mkdir(), [("extra", b"d/extra")]),
        (lambda w: (w / "empty").rmdir(), [("missing", b"empty")]),
        (
            lambda w: shutil.rmtree(w / "d"),
            [("missing", b"d/e/z"), ("missing", b"d/none"), ("missing", b"d/x")],
        ),
    ],
)
def test_everything_that_differs_is_found(verify, work, edit, expected):
    edit(work)
    assert found(verify(work)) == expected


def test_a_changed_bit_with_the_old_stat_is_found(verify, work):
    before = os.stat(work / "big")
    with (work / "big").open("r+b") as file:
        file.seek(200_000)
        file.write(b"!")
    os.utime(work / "big", ns=(before.st_atime_ns, before.st_mtime_ns))
    [one] = verify(work).differences
    assert (one.kind, one.path) == ("changed", b"big")
    assert one.digest == hash_bytes(MODEL[b"big"][1])


def test_other_types_are_named(verify, work):
    (work / "link").unlink()
    (work / "link").symlink_to("b")
    (work / "a").unlink()
    os.mkfifo(work / "a")
    shutil.rmtree(work / "d" / "e")
    (work / "d" / "e").write_text("file")
    said = {one.path: (one.kind, one.detail) for one in verify(work).differences}
    assert said[b"link"] == ("changed", "the symlink leads to 'b'")
    assert said[b"a"] == ("changed", "is a special file, not a file")
    assert said[b"d/e"] == ("changed", "is a file, not a directory")
    assert said[b"d/e/z"][0] == "missing"


def test_missing_files_are_named_with_their_digest(verify, work):
    shutil.rmtree(work / "d")
    digests = {one.path: one.digest for one in verify(work).differences}
    assert digests[b"d/e/z"] == hash_bytes(b"z")
    assert digests[b"d/none"] is None


def test_a_file_that_cannot_be_read_is_said(verify, work, monkeypatch):
    real = fs.open_read

    def open_read(path, dir_fd=None, **options):
        if path in (b"a", "a"):
            raise OSError(5, "Input/output error")
        return real(path, dir_fd, **options)

    monkeypatch.setattr(fs, "open_read", open_read)
    monkeypatch.setattr("cas.workspace.verify.worker_count", lambda _: 1)
    [one] = verify(work).differences
    assert (one.kind, one.path, one.detail) == ("unreadable", b"a", "Input/output error")


def test_a_copy_made_by_another_tool_is_proven(objects, tree, work, tmp_path):
    shutil.copytree(work, tmp_path / "copy", symlinks=True)
    shutil.rmtree(tmp_path / "copy" / ".cas-workspace")
    assert verify_directory(tmp_path / "copy", runs(objects.read, tree.digest)).ok


def test_executable_bits_can_be_left_out(objects, tree, work):
    (work / "a").chmod(0o755)
    (work / "run").chmod(0o644)
    expected = runs(objects.read, tree.digest)
    assert verify_directory(work, expected, exec_bits=False).ok


def test_what_is_no_directory_is_refused(objects, tree, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotFoundError):
        verify_directory(tmp_path / "gone", runs(objects.read, tree.digest))
    with pytest.raises(ConflictError):
        verify_directory(tmp_path / "file", runs(objects.read, tree.digest))


def test_progress_is_told(objects, tree, work):
    told = []

    def progress(phase, files, bytes_, total_files, total_bytes):
        told.append((phase, files, bytes_))

    verify_directory(work, runs(objects.read, tree.digest), progress=progress)
    assert told[-1][:2] == ("verify", tree.files - 1)  # all but the link, which has no content
