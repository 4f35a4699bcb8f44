"""A purge that is killed, or fails, at any step can be done again and then is done."""

from __future__ import annotations

import contextlib
import errno
import shutil

import pytest

import cas
from cas.digest import hash_bytes
from cas.testing import faults
from cas.testing.stores import read_state
from cas.testing.strategies import materialise

SECRET = b"token = 8472-a-secret-that-leaked\n" * 9
CLIP = b"a withdrawn clip" * 80_000


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    home = tmp_path_factory.mktemp("original")
    model = {b"keep": ("file", b"kept"), b"secret": ("file", SECRET), b"clip": ("file", CLIP)}
    materialise(model, home / "set")
    with cas.Store.init(home / "store") as store:
        store.versions.add("skills", home / "set")
        (home / "set/keep").write_bytes(b"changed")
        store.versions.add("skills", home / "set")
    return home / "store"


def check(root, path, content, done):
    """Check that nothing else was lost, and that purging again ends it."""
    with cas.Store.open(root) as store:
        told = bool(list(store._context.refs.purges()))
        assert told or not done
        if not told:
            with store.open(f"skills@v1:{path}") as file:
                assert file.read() == content
            assert store.verify(workers=1).ok
        else:
            with pytest.raises(cas.PurgedError):
                store.versions.add("others", root.parent / path)
        store.purge(f"skills@v2:{path}", reason="leaked")
        assert store.verify(workers=1).ok
        assert not store._context.objects.has(hash_bytes(content))
        assert not any(content[:90] in p.read_bytes() for p in root.rglob("*") if p.is_file())
        store.versions.edit("skills@v2", remove=[path])
        assert len(read_state(store, "skills@v3")) == 2


@pytest.mark.parametrize(
    ("path", "content"), [("secret", SECRET), ("clip", CLIP)], ids=["packed", "loose"]
)
@pytest.mark.parametrize("kind", ["crash", "ENOSPC", "EIO"])
def test_whatever_happens_it_is_undone_or_can_be_finished(original, tmp_path, kind, path, content):
    (tmp_path / path).write_bytes(content)
    if kind == "crash":
        injections = faults.every_crash()
    else:
        injections = faults.every_failure(getattr(errno, kind))
    steps = 0
    for injection in injections:
        root = tmp_path / "copy"
        shutil.copytree(original, root)
        store = cas.Store.open(root)
        done = False
        with injection, contextlib.suppress(cas.CasError):
            store.purge(f"skills@v1:{path}", reason="leaked")
            done = True
        check(root, path, content, done)
        shutil.rmtree(root)
        steps += 1
    assert steps > 8
