"""Everything that a tree reaches, each object once, in bounded memory."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from cas.errors import MissingObjectError
from cas.manifests import DIR, Leaf, parse_tree
from cas.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cas.manifests import Node
    from cas.objects import ObjectStore

_MEMORY = 16 << 20
"""Bytes that each list of digests may take before it goes to a temporary file."""
_BATCH = 4096


def tree_pages(objects: ObjectStore, roots: Iterable[bytes]) -> Iterator[Leaf | Node]:
    """Yield the pages of trees and of all trees below them, level by level.

    Within a level each page comes once, however many directories share it; one that is found at
    several depths comes once for each of them.

    Args:
        objects: Where they are.
        roots: Digests of the trees to begin from.

    Raises:
        MissingObjectError: A page is not there.
        FormatError: A page is malformed.
    """
    level = Spill(_MEMORY, unique=True)
    try:
        for root in roots:
            level.add(root)
        while True:
            below = Spill(_MEMORY, unique=True)
            found = False
            try:
                for _, encoded in objects.read_many(level):
                    found = True
                    page = parse_tree(encoded)
                    if isinstance(page, Leaf):
                        for _, kind, _, digest in page.entries:
                            if kind == DIR:
                                below.add(digest)
                    else:
                        for child in page.children:
                            below.add(child[4])
                    yield page
            except BaseException:
                below.close()
                raise
            level.close()
            level = below
            if not found:
                return
    finally:
        level.close()


def check_object(objects: ObjectStore, digest: bytes, name: str) -> None:
    """Check that an object is in the store, also if a gc was at work since it was last looked at.

    Raises:
        MissingObjectError: It is gone.
    """
    objects.reload()
    objects.index.complete()
    if not objects.has(digest):
        raise MissingObjectError(
            f"the content of {name} is no longer there: object {digest.hex()} is gone",
            digest=digest.hex(),
        )


def check_closure(objects: ObjectStore, tree: bytes, name: str) -> None:
    """Check that all of a tree is in the store, but for what was purged; its blobs are not read.

    What a gc removed since the store was last looked at is seen to be gone.

    Args:
        objects: Where it should be.
        tree: Its digest.
        name: What it is, for the error.

    Raises:
        MissingObjectError: Something is gone.
    """
    objects.reload()
    objects.index.complete()
    with Spill(_MEMORY, unique=True) as blobs:
        try:
            for page in tree_pages(objects, [tree]):
                if isinstance(page, Leaf):
                    for _, kind, _, digest in page.entries:
                        if kind != DIR:
                            blobs.add(digest)
        except MissingObjectError as error:
            raise MissingObjectError(
                f"the content of {name} is no longer all there: {error}", **error.facts
            ) from None
        rest = iter(blobs)
        while batch := list(islice(rest, _BATCH)):
            for digest, there in zip(batch, objects.has_many(batch), strict=True):
                if not there and digest not in objects.purged:
                    raise MissingObjectError(
                        f"the content of {name} is no longer all there: "
                        f"blob {digest.hex()} is gone",
                        digest=digest.hex(),
                    )
