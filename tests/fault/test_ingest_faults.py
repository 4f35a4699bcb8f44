"""An ingest that is killed or fails at any step leaves a store in which the next one is right."""

import errno
import time
from contextlib import ExitStack, closing

import pytest

from cas import fs
from cas.backends import LocalBackend
from cas.errors import CasError
from cas.ingest import ingest
from cas.manifests import walk
from cas.objects import ObjectStore
from cas.testing import faults
from cas.testing.strategies import materialise
from cas.testing.trees import put_model

MODEL = {
    b"a": ("file", b"a" * 100),
    b"d": {b"b": ("exec", b"b"), b"link": ("symlink", b"a"), b"e": {}},
    b"large": ("file", bytes(range(256)) * 8),
}


@pytest.fixture
def source(tmp_path):
    materialise(MODEL, tmp_path / "source")
    time.sleep(fs.CLOCK_GRAIN_NS / 1e9)
    return tmp_path / "source"


def opened(store):
    stack = ExitStack()
    backend = stack.enter_context(closing(LocalBackend(store, create=True)))
    # Threads would go on beside a simulated crash, so nothing here is large enough for two packs.
    objects = stack.enter_context(closing(ObjectStore(backend, loose_threshold=1024)))
    return stack, objects


def take(objects, source, store):
    with objects.writer() as writer:
        taken = ingest(objects, writer, source, cache=store / "cache" / "stat", workers=1)
        writer.flush()
    return taken.tree


def check_next(source, store):
    """What the next process finds: the same source gives the same tree, and all of it is there."""
    stack, objects = opened(store)
    with stack:
        for _ in range(2):
            tree = take(objects, source, store)
            assert tree == put_model(objects, MODEL)
            for _, entry in walk(objects.read, tree.digest):
                objects.read(entry[3])


@pytest.mark.parametrize("again", [False, True])
def test_a_crash_at_any_step_leaves_a_store_for_the_next_ingest(source, tmp_path, again):
    for number, crash in enumerate(faults.every_crash()):
        store = tmp_path / f"store{number}"
        stack, objects = opened(store)
        with stack:
            if again:
                take(objects, source, store)
                (source / "new").write_bytes(b"")
            with crash:
                take(objects, source, store)
            (source / "new").unlink(missing_ok=True)
        check_next(source, store)
    assert number > 5


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_failure_at_any_step_is_an_error_or_does_not_matter(source, tmp_path, error):
    expected = None
    for number, failure in enumerate(faults.every_failure(error)):
        store = tmp_path / f"store{number}"
        stack, objects = opened(store)
        with stack, failure:
            try:
                tree = take(objects, source, store)
            except CasError:
                assert failure.fired
            else:
                expected = expected or tree
                assert tree == expected
        check_next(source, store)
    assert expected is not None


def test_a_source_that_cannot_be_read_at_some_step_is_refused_by_name(source, tmp_path):
    names = set()
    for number, failure in enumerate(faults.every_failure(errno.EIO, on=faults.LOOKS)):
        store = tmp_path / f"store{number}"
        stack, objects = opened(store)
        with stack, failure:
            try:
                take(objects, source, store)
            except CasError as caught:
                names.add(caught.facts.get("path"))
        check_next(source, store)
    # The small files are read a second time, by themselves, which works.
    assert names >= {f"{source}/{path}" for path in ("d", "d/e", "d/link", "large")}
