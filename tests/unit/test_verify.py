"""A verification looks at what trees say of each other."""

from __future__ import annotations

import os

import cas
from cas.catalogue.publish import change_event
from cas.manifests.tree import encode_leaf
from cas.objects import TREE


def test_a_tree_that_lies_about_the_size_of_a_folder_is_found(tmp_path):
    with cas.Store.init(tmp_path / "store") as store:
        with store._context.publishing(), store._context.objects.writer() as writer:
            blob = writer.put(b"123456")
            inner = writer.put(encode_leaf([(b"f", "f", 6, blob)], 1, 6), TREE)
            outer = writer.put(encode_leaf([(b"d", "d", 99, inner)], 1, 99), TREE)
            writer.flush()
        store.tags.set("odd", inner.hex())
        assert store.verify().ok
        target = {"name": "lie", "digest": bytes(outer), "spec": "x"}
        event = change_event("tag", target, by=None, reason="")
        store._context.refs.publish(lambda _: [event])
        (problem,) = store.verify().problems
        assert (problem.kind, problem.digest) == ("bad_manifest", inner)
        assert "tag:lie:d" in problem.affects


def test_a_pipe_in_the_place_of_the_reserve_is_named(tmp_path):
    with cas.Store.init(tmp_path / "store") as store:
        (store.root / "reserve").unlink()
        os.mkfifo(store.root / "reserve")
        (problem,) = store.verify().problems
        assert problem.location == "reserve"
