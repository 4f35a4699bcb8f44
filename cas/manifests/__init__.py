"""Manifests: tree, version and seed, between values and canonical bytes."""

from cas.manifests.builder import TreeBuilder
from cas.manifests.compare import compare
from cas.manifests.edit import NewEntry, edit_tree
from cas.manifests.reading import MAX_DEPTH, entries, lookup, resolve, walk
from cas.manifests.seed import SeedManifest, SeedPart
from cas.manifests.tree import (
    DIR,
    EXEC,
    FILE,
    LINK,
    Entry,
    Leaf,
    Node,
    Put,
    Read,
    TreeRef,
    parse_tree,
    tree_children,
)
from cas.manifests.version import VersionManifest

__all__ = [
    "DIR",
    "EXEC",
    "FILE",
    "LINK",
    "MAX_DEPTH",
    "Entry",
    "Leaf",
    "NewEntry",
    "Node",
    "Put",
    "Read",
    "SeedManifest",
    "SeedPart",
    "TreeBuilder",
    "TreeRef",
    "VersionManifest",
    "compare",
    "edit_tree",
    "entries",
    "lookup",
    "parse_tree",
    "resolve",
    "tree_children",
    "walk",
]
