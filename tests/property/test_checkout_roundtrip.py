"""Ingest and checkout undo each other, whatever the tree, the mode and the number of processes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cas.backends import LocalBackend
from cas.checkout import checkout, update
from cas.ingest import ingest
from cas.objects import ObjectStore
from cas.testing.strategies import materialise, read_back, trees
from cas.testing.trees import put_model
from cas.workspace import WorkspaceState, status, verify_workspace


def state(spec="r@v1"):
    return WorkspaceState(store_path="/the/store", store_id="1" * 32, spec=spec)


def contents(path):
    model = read_back(path)
    del model[b".cas-workspace"]
    return model


def take_in(objects, source):
    with objects.writer() as writer:
        done = ingest(objects, writer, source, ignore=False, workers=1)
        writer.flush()
    return done.tree


@given(model=trees(), mode=st.sampled_from(["auto", "copy", "hardlink"]), sync=st.booleans())
def test_checkout_gives_back_what_ingest_took(model, mode, sync):
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        objects = ObjectStore(LocalBackend(top / "store", create=True), loose_threshold=64)
        materialise(model, top / "source")
        tree = take_in(objects, top / "source")
        done = checkout(
            objects, tree.digest, top / "work", mode=mode, sync=sync, memory=state(), workers=1
        )
        assert contents(top / "work") == model
        assert (done.files, done.bytes) == (tree.files, tree.bytes)
        assert status(top / "work").clean
        assert verify_workspace(top / "work", workers=1).ok
        assert take_in(objects, top / "work").digest == tree.digest
        objects.close()


@settings(max_examples=5)
@given(model=trees(max_leaves=60))
def test_worker_processes_write_the_same(model):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("cas.workspace.crew._PAYS", 1)
        patch.setattr("cas.checkout.writers._BATCH_FILES", 2)
        top = Path(folder)
        objects = ObjectStore(LocalBackend(top / "store", create=True), loose_threshold=64)
        tree = put_model(objects, model)
        checkout(objects, tree.digest, top / "work", memory=state(), workers=3)
        assert contents(top / "work") == model
        assert status(top / "work").clean
        objects.close()


@given(first=trees(), second=trees(), mode=st.sampled_from(["auto", "hardlink"]))
def test_an_update_gives_what_a_checkout_gives(first, second, mode):
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        objects = ObjectStore(LocalBackend(top / "store", create=True), loose_threshold=64)
        trees = [put_model(objects, model) for model in (first, second)]
        checkout(objects, trees[0].digest, top / "work", mode=mode, memory=state(), workers=1)
        done = update(objects, top / "work", trees[1].digest, memory=state("r@v2"), workers=1)
        assert contents(top / "work") == second
        assert (done.kept, done.files, done.bytes) == ((), trees[1].files, trees[1].bytes)
        assert status(top / "work").clean
        objects.close()
