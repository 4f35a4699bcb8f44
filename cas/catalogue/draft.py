"""A seed in the making: its parts are stored already, its tree and manifest are not.

The tree of a seed is a workspace: `skills/<label>/`, `prompts/<label>/`, `harness.db` (the
baseline), `seed.json` (what a person or a script wants to know of the seed), and every other part
under its own name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cas import names
from cas.catalogue.context import now
from cas.digest import Digest
from cas.errors import RefusedError
from cas.manifests import DIR, FILE, SeedManifest, SeedPart, TreeBuilder, TreeRef
from cas.objects import TREE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cas.catalogue.parents import Parent
    from cas.manifests import NewEntry
    from cas.objects import ObjectWriter

SKILLS = "skills"
PROMPTS = "prompts"
BASELINE = "baseline"
DATABASE = "harness.db"
DESCRIPTION = "seed.json"
FIRST_LABEL = "v1"
"""The label of a part whose version the baseline run does not name."""

_OWN = (SKILLS, PROMPTS, BASELINE, DESCRIPTION)


def check_parts(extra: Iterable[str]) -> None:
    """Check the names of the parts that a seed has beside skills, prompts and baseline.

    Raises:
        NameRefusedError: It is no name for a part.
        RefusedError: A workspace has a place of its own under that name.
    """
    for name in extra:
        names.check_part(name)
        if name.lower() in _OWN or name.lower().startswith(DATABASE):
            raise RefusedError(f"a part cannot be called {name}: a seed has one of its own")


class Draft:
    """Collects the parts of a seed.

    Args:
        writer: What its parts are written with.
    """

    def __init__(self, writer: ObjectWriter) -> None:
        """Begin without parts."""
        self._writer = writer
        self._parts: dict[str, SeedPart] = {}
        self._places: dict[bytes, NewEntry] = {}

    def add_labelled(self, name: str, tree: TreeRef, label: str) -> None:
        """Add skills or prompts, which lie in a folder named by their label."""
        self._parts[name] = SeedPart("tree", tree.digest, tree.files, tree.bytes, label)
        outer = self._tree({label.encode(): (DIR, tree.bytes, tree.digest, tree.files)})
        self._places[name.encode()] = (DIR, outer.bytes, outer.digest, outer.files)

    def add(self, name: str, entry: NewEntry) -> None:
        """Add another part: a directory or a file."""
        kind, size, digest, files = entry
        self._parts[name] = SeedPart(
            "tree" if kind == DIR else "blob", Digest(digest), files, size, None
        )
        self._places[name.encode()] = entry

    def add_baseline(self, digest: bytes, size: int) -> None:
        """Add the baseline database."""
        self._parts[BASELINE] = SeedPart("blob", Digest(digest), 1, size, None)
        self._places[DATABASE.encode()] = (FILE, size, digest, 1)

    def finish(
        self,
        name: str,
        *,
        baseline_run_id: str,
        parent: Parent,
        description: str,
        meta: Mapping[str, str],
        created_at: str | None = None,
    ) -> SeedManifest:
        """Write the seed's tree and return its manifest, which is not written yet.

        It is made now, unless another time is given.
        """
        created_at = now() if created_at is None else created_at
        told = {
            "name": name,
            "parts": {
                part: {
                    "kind": found.kind,
                    "digest": str(found.digest),
                    "files": found.files,
                    "bytes": found.bytes,
                    "label": found.label,
                }
                for part, found in sorted(self._parts.items())
            },
            "baseline_run_id": baseline_run_id,
            "parent": parent.text,
            "created_at": created_at,
            "description": description,
        }
        encoded = (json.dumps(told, indent=2, ensure_ascii=False) + "\n").encode()
        digest = self._writer.put(encoded)
        tree = self._tree(
            self._places | {DESCRIPTION.encode(): (FILE, len(encoded), digest, 1)},
        )
        return SeedManifest(
            name=name,
            tree=tree.digest,
            files=tree.files,
            bytes=tree.bytes,
            parts=dict(self._parts),
            baseline_run_id=baseline_run_id,
            parent=parent.text,
            parents=parent.digests,
            created_at=created_at,
            description=description,
            meta=dict(meta),
        )

    def _tree(self, places: Mapping[bytes, NewEntry]) -> TreeRef:
        builder = TreeBuilder(lambda page: self._writer.put(page, TREE))
        for name, (kind, size, digest, files) in sorted(places.items()):
            builder.add(name, kind, size, digest, files)
        return builder.finish()
