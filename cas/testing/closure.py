"""What names reach, worked out in the plainest way, to compare with what a gc leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.manifests import DIR, Leaf, parse_tree
from cas.objects.entries import DIGEST_AT, split

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.objects import ObjectStore


def stored(objects: ObjectStore) -> list[bytes]:
    """Return the digest of every object, once for each place where it lies, sorted."""
    objects.reload()
    objects.index.complete()
    sources = [(table.packs, table.entries) for table in objects.index.tables]
    sources += [(run.packs, run.entries) for run in objects.index.runs]
    found: list[bytes] = [digest for digest, _ in objects.loose_objects()]
    for packs, entries in sources:
        there = [pack.digest not in objects.index.gone for pack in packs]
        for block in entries.blocks():
            for entry in split(block):
                number = int.from_bytes(entry[32:36]) if len(packs) > 1 else 0
                if there[number]:
                    found.append(entry[DIGEST_AT])
    return sorted(found)


def reached(objects: ObjectStore, trees: Iterable[bytes]) -> set[bytes]:
    """Return the digests of trees and of everything in them."""
    found: set[bytes] = set()
    waiting = list(trees)
    while waiting:
        digest = waiting.pop()
        if digest in found:
            continue
        found.add(digest)
        page = parse_tree(objects.read(digest))
        if isinstance(page, Leaf):
            found.update(entry[3] for entry in page.entries if entry[1] != DIR)
            waiting += [entry[3] for entry in page.entries if entry[1] == DIR]
        else:
            waiting += [child[4] for child in page.children]
    return found
