"""What a person did to a workspace shows, and what nobody did does not."""

from __future__ import annotations

import base64
import dataclasses
import os
import shutil

import pytest

from cas import codec, fs
from cas.backends import LocalBackend
from cas.checkout import checkout
from cas.digest import hash_bytes
from cas.errors import DamagedError, NewerFormatError, NotFoundError
from cas.objects import ObjectStore
from cas.testing.trees import put_model
from cas.workspace import WorkspaceState, load, register, remembered, status, verify_workspace
from cas.workspace.memory import Opened

MODEL = {
    b"a": ("file", b"a"),
    b"run": ("exec", b"#!"),
    b"link": ("symlink", b"a"),
    b"empty": {},
    b"d": {b"x": ("file", b"x"), b"y": ("file", b"y"), b"e": {b"z": ("file", b"z")}, b"none": {}},
}


@pytest.fixture
def objects(tmp_path):
    store = ObjectStore(LocalBackend(tmp_path / "store", create=True))
    yield store
    store.close()


@pytest.fixture
def work(objects, tmp_path):
    state = WorkspaceState(store_path="/the/store", store_id="1" * 32, spec="skills@v1")
    checkout(objects, put_model(objects, MODEL).digest, tmp_path / "work", memory=state)
    return tmp_path / "work"


def found(work):
    seen = status(work)
    assert seen.clean == (seen.added == seen.changed == seen.deleted == ())
    return seen.added, seen.changed, seen.deleted


NOTHING = ((), (), ())


def test_a_fresh_workspace_is_clean_and_no_file_of_it_is_read(work, monkeypatch):
    def hash_fd(*_, **__):
        raise AssertionError("a file was read")

    monkeypatch.setattr("cas.workspace.changes.hash_fd", hash_fd)
    assert found(work) == NOTHING
    assert status(work).spec == "skills@v1"


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda w: (w / "a").write_text("longer"), ((), (b"a",), ())),
        (lambda w: (w / "a").write_text("b"), ((), (b"a",), ())),
        (lambda w: (w / "a").unlink(), ((), (), (b"a",))),
        (lambda w: (w / "a").chmod(0o755), ((), (b"a",), ())),
        (lambda w: (w / "run").chmod(0o644), ((), (b"run",), ())),
        (lambda w: (w / "a").chmod(0o600), NOTHING),
        (lambda w: os.utime(w / "a"), NOTHING),
        (lambda w: (w / "new").write_text(""), ((b"new",), (), ())),
        (lambda w: (w / "d" / "new").mkdir(), ((b"d/new",), (), ())),
        (lambda w: (w / "n" / "m").mkdir(parents=True), ((b"n/m",), (), ())),
        (lambda w: (w / "empty").rmdir(), ((), (), (b"empty",))),
        (lambda w: (w / "empty" / "f").touch(), ((b"empty/f",), (), ())),
        (
            lambda w: shutil.rmtree(w / "d"),
            ((), (), (b"d/e/z", b"d/none", b"d/x", b"d/y")),
        ),
        (lambda w: (w / "d").rename(w / "dd"), None),
        (lambda w: (w / ".cas-workspace" / "mine").touch(), NOTHING),
    ],
)
def test_every_edit_shows(work, edit, expected):
    edit(work)
    if expected is None:
        expected = (
            (b"dd/e/z", b"dd/none", b"dd/x", b"dd/y"),
            (),
            (b"d/e/z", b"d/none", b"d/x", b"d/y"),
        )
    assert found(work) == expected


def test_a_link_that_leads_elsewhere_is_changed(work):
    (work / "link").unlink()
    (work / "link").symlink_to("b")
    assert found(work) == ((), (b"link",), ())


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_directory_that_became_something_else_is_changed_and_its_content_deleted(work, what):
    shutil.move(work / "d", work.parent / "elsewhere")
    if what == "file":
        (work / "d").touch()
    else:
        (work / "d").symlink_to("../elsewhere")
    assert found(work) == ((), (b"d",), (b"d/e/z", b"d/none", b"d/x", b"d/y"))


def test_a_file_that_became_a_directory_is_changed(work):
    (work / "a").unlink()
    (work / "a").mkdir()
    assert found(work) == ((), (b"a",), ())


def test_an_edit_that_keeps_size_and_mtime_shows(work):
    before = os.stat(work / "a")
    (work / "a").write_text("b")
    os.utime(work / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(work) == ((), (b"a",), ())


def test_edits_right_after_the_checkout_show(objects, tmp_path):
    state = WorkspaceState(store_path="/the/store", store_id="1" * 32, spec="skills@v1")
    tree = put_model(objects, {b"a": ("file", b"a")}).digest
    for n in range(20):
        work = tmp_path / f"work{n}"
        checkout(objects, tree, work, memory=state, sync=False)
        fd = os.open(work / "a", os.O_WRONLY)
        os.write(fd, b"b")
        os.close(fd)
        assert found(work) == ((), (b"a",), ())


def test_a_file_that_was_put_back_is_clean(work):
    (work / "a").write_text("b")
    (work / "a").write_text("a")
    assert found(work) == NOTHING


def test_a_copy_is_clean_though_every_stat_differs(work, tmp_path):
    shutil.copytree(work, tmp_path / "copy", symlinks=True)
    assert status(tmp_path / "copy").clean
    assert load(tmp_path / "copy").store_id == "1" * 32


def test_a_moved_workspace_is_clean_and_knows_its_store(work, tmp_path):
    work.rename(tmp_path / "moved")
    assert status(tmp_path / "moved").clean
    assert load(tmp_path / "moved").store_path == load(tmp_path / "moved").store_path


def test_a_directory_too_large_to_list_in_memory_is_compared_all_the_same(
    objects, tmp_path, monkeypatch
):
    monkeypatch.setattr("cas.workspace.alongside._LISTED", 10)
    state = WorkspaceState(store_path="/the/store", store_id="1" * 32, spec="skills@v1")
    model = {b"%03d" % n: ("file", b"") for n in range(0, 200, 2)}
    work = tmp_path / "work"
    checkout(objects, put_model(objects, model).digest, work, memory=state)
    assert found(work) == NOTHING
    (work / "000").unlink()
    (work / "-first").touch()
    (work / "101").touch()
    (work / "zlast").touch()
    assert found(work) == ((b"-first", b"101", b"zlast"), (), (b"000",))


def test_paths_that_are_not_utf8_are_shown_both_ways(work):
    (work / os.fsdecode(b"\xff")).touch()
    shown = status(work).to_json()
    assert shown["added"] == ["\udcff"]
    assert shown["path_bytes"] == {"\udcff": base64.b64encode(b"\xff").decode()}
    assert shown["clean"] is False


def test_what_is_no_workspace_is_not_found(tmp_path):
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(NotFoundError, match="no workspace"):
            status(path)


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "cut":
        content = content[:-1]
    elif how == "emptied":
        content = bytearray()
    else:
        content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["state", "index"])
@pytest.mark.parametrize("how", ["cut", "emptied", "flipped", "removed"])
def test_damaged_memory_is_said_with_the_file_and_a_way_out(work, name, how):
    [path] = (work / ".cas-workspace").glob(f"{name}*")
    if how == "removed":
        path.unlink()
        if name == "state":
            with pytest.raises(NotFoundError):
                status(work)
            return
    else:
        damage(path, how)
    for look in (status, verify_workspace):
        with pytest.raises(DamagedError) as caught:
            look(work)
        assert str(path) in str(caught.value)
        assert "check out anew" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_every_flipped_bit_of_the_memory_is_noticed_or_harmless(work):
    [index] = (work / ".cas-workspace").glob("index*")
    for path in (index, work / ".cas-workspace" / "state"):
        whole = path.read_bytes()
        for at in range(0, len(whole), 7):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            with pytest.raises(DamagedError):
                status(work)
        path.write_bytes(whole)
    assert status(work).clean


def test_memory_of_a_newer_release_is_refused(work):
    data = codec.encode(["workspace", 2, {}])
    (work / ".cas-workspace" / "state").write_bytes(data + hash_bytes(data))
    with pytest.raises(NewerFormatError, match="newer release"):
        status(work)


def test_a_state_comes_back_from_its_bytes(work):
    with Opened(work) as opened:
        assert WorkspaceState.from_bytes(opened.state.to_bytes()) == opened.state


def test_a_copy_gets_its_own_identity_when_it_is_registered(objects, work, tmp_path):
    shutil.copytree(work, tmp_path / "copy", symlinks=True)
    first = load(work)
    state = register(objects.backend, tmp_path / "copy", load(tmp_path / "copy"))
    assert state.id != first.id
    assert {one.path for one in remembered(objects.backend)} == {work, tmp_path / "copy"}


def test_a_moved_workspace_keeps_its_identity_when_it_is_registered(objects, work, tmp_path):
    work.rename(tmp_path / "moved")
    state = register(objects.backend, tmp_path / "moved", load(tmp_path / "moved"))
    [known] = remembered(objects.backend)
    assert (known.id, known.path) == (state.id, tmp_path / "moved")


def test_a_damaged_registration_is_said(objects, work):
    key = f"workspaces/{load(work).id}"
    objects.backend.put(key, b"damaged")
    with pytest.raises(DamagedError, match=key):
        list(remembered(objects.backend))


def test_a_file_that_cannot_be_trusted_by_its_stat_is_read_each_time(
    objects, tmp_path, monkeypatch
):
    state = WorkspaceState(store_path="/the/store", store_id="1" * 32, spec="skills@v1")
    checkout(
        objects,
        put_model(objects, {b"a": ("file", b"a")}).digest,
        tmp_path / "work",
        memory=state,
    )
    read = []
    real = fs.open_read

    def open_read(name, dir_fd=None, **options):
        read.append(os.fsdecode(name))
        return real(name, dir_fd, **options)

    monkeypatch.setattr(fs, "open_read", open_read)
    monkeypatch.setattr("cas.workspace.changes.trusted", lambda *_: False)
    monkeypatch.setattr("cas.statindex.Run.settled", lambda _: False)
    assert status(tmp_path / "work").clean
    assert "a" in read


@pytest.mark.parametrize(
    "field", [{"index": "../../outside"}, {"index": ""}, {"id": "../other"}, {"id": "A" * 32}]
)
def test_memory_that_names_something_else_is_refused(work, field):
    with Opened(work) as opened:
        forged = dataclasses.replace(opened.state, **field)
    (work / ".cas-workspace" / "state").write_bytes(forged.to_bytes())
    with pytest.raises(DamagedError):
        status(work)
