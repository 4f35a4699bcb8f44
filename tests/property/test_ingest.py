"""Ingest and read back is the identity, however and how often it is done."""

import shutil
import time
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cas.ingest.crew
from cas import fs
from cas.backends import LocalBackend
from cas.ingest import ingest
from cas.manifests import DIR, EXEC, FILE, LINK, entries
from cas.objects import ObjectStore
from cas.testing.strategies import count_files, materialise, trees
from cas.testing.trees import put_model

KINDS = {FILE: "file", EXEC: "exec", LINK: "symlink"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("ingest")


def model_of(objects, tree):
    """What a tree says, read back through the manifests."""
    return {
        name: model_of(objects, digest)
        if kind == DIR
        else (KINDS[kind], objects.read(digest, max_bytes=size))
        for name, kind, size, digest in entries(objects.read, tree)
    }


def take(objects, source, **options):
    with objects.writer() as writer:
        taken = ingest(objects, writer, source, **options)
        writer.flush()
    return taken.tree


@given(model=trees(), ignore=st.booleans())
def test_what_was_ingested_comes_back(place, model, ignore):
    source, store = place / "source", place / "store"
    materialise(model, source)
    try:
        with (
            closing(LocalBackend(store, create=True)) as backend,
            closing(ObjectStore(backend)) as objects,
        ):
            cache = store / "cache" / "stat"
            tree = take(objects, source, cache=cache, ignore=ignore, workers=1)
            assert model_of(objects, tree.digest) == model
            assert tree == put_model(objects, model)
            assert tree.files == count_files(model)
            # From the cache, elsewhere, and without a cache.
            assert take(objects, source, cache=cache, workers=1) == tree
            source.rename(place / "moved")
            assert take(objects, place / "moved", cache=cache, workers=1) == tree
            assert take(objects, place / "moved") == tree
    finally:
        for folder in (source, store, place / "moved"):
            shutil.rmtree(folder, ignore_errors=True)


@settings(max_examples=8)
@given(
    model=trees(max_leaves=60, max_size=3000),
    batch=st.integers(1, 40),
    generation=st.integers(1, 20),
    copies=st.integers(1, 6),
)
def test_workers_make_the_same_tree_and_store_nothing_twice(
    place, model, batch, generation, copies
):
    model = {b"copy %d" % n: model for n in range(copies)}
    source = place / "source"
    materialise(model, source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cas.ingest.crew, "_PAYS_FILES", 1)
        patch.setattr(cas.ingest.crew, "BATCH_FILES", batch)
        patch.setattr(cas.ingest.crew, "_GENERATION", generation)
        try:
            counts = []
            for processes in (1, 2, 3):
                store = place / f"store{processes}"
                with (
                    closing(LocalBackend(store, create=True)) as backend,
                    closing(ObjectStore(backend)) as objects,
                ):
                    tree = take(objects, source, workers=processes)
                    assert tree == put_model(objects, model)
                    counts.append(objects.totals().objects)
            assert len(set(counts)) == 1
        finally:
            for folder in (source, *(place / f"store{n}" for n in (1, 2, 3))):
                shutil.rmtree(folder, ignore_errors=True)


@settings(max_examples=20)
@given(model=trees(), data=st.data())
def test_a_cache_of_another_state_changes_nothing(place, model, data):
    """The cache of one state of a folder is used for any other."""
    source, store = place / "source", place / "store"
    other = data.draw(st.one_of(trees(), st.just(model)))
    try:
        with (
            closing(LocalBackend(store, create=True)) as backend,
            closing(ObjectStore(backend)) as objects,
        ):
            for state in (model, other, model | other):
                shutil.rmtree(source, ignore_errors=True)
                materialise(state, source)
                if data.draw(st.booleans()):
                    time.sleep(fs.CLOCK_GRAIN_NS / 1e9)
                tree = take(objects, source, cache=store / "cache" / "stat", workers=1)
                assert tree == put_model(objects, state)
    finally:
        for folder in (source, store):
            shutil.rmtree(folder, ignore_errors=True)
