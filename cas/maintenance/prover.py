"""Proving one unit of a store: what a worker process of a verification does.

It starts with the worker, so it imports little.
"""

from __future__ import annotations

import os
from typing import Any, Final

from cas.backends import LocalBackend
from cas.objects import ObjectStore

PACK: Final = "pack"
LOOSE: Final = "loose"
TABLES: Final = "tables"
NAMED: Final = "named"


class Prover:
    """Proves one unit at a time.

    Args:
        objects: Where it is.
    """

    def __init__(self, objects: ObjectStore) -> None:
        """Read nothing yet."""
        self._objects = objects

    def __call__(self, message: list[Any]) -> list[Any]:
        """Prove a unit.

        Args:
            message: Its kind and digests, and whether to look at structure and sizes only.

        Returns:
            Objects that are right, bytes read, and the findings.
        """
        kind, digests, quick = message
        if kind == NAMED:
            checked = self._objects.check_objects(digests)
        elif kind == PACK:
            checked = self._objects.check_pack(digests[0], quick=quick)
        elif kind == TABLES:
            checked = self._objects.check_tables(quick=quick)
        else:
            checked = self._objects.check_loose(digests, quick=quick)
        findings = [[f.kind, f.digest, f.location, f.detail] for f in checked.findings]
        return [checked.objects, checked.read, findings]


def serve(init: list[Any]) -> Prover:
    """Return a prover for a worker process.

    Args:
        init: The store's directory as bytes, and its threshold for loose objects.
    """
    root, threshold = init
    return Prover(ObjectStore(LocalBackend(os.fsdecode(root)), loose_threshold=threshold))
