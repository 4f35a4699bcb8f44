"""The seed manifest: a frozen good state of several parts, and the run that earned it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self

from cas import names
from cas.errors import FormatError, RefusedError
from cas.manifests.record import Fields, read_record, write_record

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping

    from cas.digest import Digest

FORMAT: Final = 1
MAX_PARTS: Final = 256
"""Parts of a seed, at most."""

PartKind = Literal["tree", "blob"]


class SeedPart(NamedTuple):
    """One named part of a seed.

    Attributes:
        kind: ``tree`` for a directory, ``blob`` for one file.
        digest: Digest of the tree or blob.
        files: Recursive count of what is not a directory; 1 for a blob.
        bytes: Recursive sum of sizes.
        label: The version that it goes by in a workspace (``v3``), where it has one.
    """

    kind: PartKind
    digest: Digest
    files: int
    bytes: int
    label: str | None = None


class SeedManifest(NamedTuple):
    """One seed. Equal manifests have equal bytes.

    Attributes:
        name: The seed's own name.
        tree: Digest of the tree that a checkout of the seed writes.
        files: Recursive count of what is not a directory in that tree.
        bytes: Recursive sum of sizes in that tree.
        parts: The parts by name.
        baseline_run_id: The run that the baseline database is of.
        parent: What the seed was said to come from; None if nothing was said.
        parents: Digests of the manifests it came from.
        created_at: UTC time, ISO 8601.
        description: Why, in the author's words.
        meta: Anything else, text to text.
    """

    name: str
    tree: Digest
    files: int
    bytes: int
    parts: dict[str, SeedPart]
    baseline_run_id: str
    parent: str | None = None
    parents: tuple[Digest, ...] = ()
    created_at: str = ""
    description: str = ""
    meta: Mapping[str, str] = MappingProxyType({})

    def to_bytes(self) -> builtins.bytes:
        """Return the one encoding.

        Raises:
            RefusedError: A field that `from_bytes` would refuse.
        """
        body = {
            "name": names.check_seed(self.name),
            "tree": self.tree,
            "files": self.files,
            "bytes": self.bytes,
            "parts": {
                names.check_part(name): {
                    "kind": part.kind,
                    "digest": part.digest,
                    "files": part.files,
                    "bytes": part.bytes,
                    "label": part.label,
                }
                for name, part in self.parts.items()
            },
            "baseline_run_id": self.baseline_run_id,
            "parent": self.parent,
            "parents": self.parents,
            "created_at": self.created_at,
            "description": self.description,
            "meta": self.meta or {},
        }
        data = write_record("seed", FORMAT, body)
        try:
            self.from_bytes(data)
        except FormatError as error:
            raise RefusedError(f"seed {self.name}: {error}") from None
        return data

    @classmethod
    def from_bytes(cls, data: builtins.bytes) -> Self:
        """Read a seed manifest.

        Raises:
            FormatError: Not the canonical encoding of a seed.
            NewerFormatError: Of a format that this release does not know.
        """
        fields = Fields("seed", read_record(data, "seed", FORMAT))
        parts = fields.mapping("parts")
        if len(parts) > MAX_PARTS:
            raise FormatError(f"seed manifest has {len(parts)} parts; at most {MAX_PARTS}")
        manifest = cls(
            name=fields.name("name", names.check_seed),
            tree=fields.digest("tree"),
            files=fields.count("files"),
            bytes=fields.count("bytes"),
            parts={name: _read_part(name, part) for name, part in parts.items()},
            baseline_run_id=fields.name("baseline_run_id", names.check_run_id),
            parent=fields.optional_text("parent"),
            parents=fields.digests("parents"),
            created_at=fields.text("created_at"),
            description=fields.text("description"),
            meta=fields.texts("meta"),
        )
        fields.finish()
        return manifest


def _read_part(name: str, body: object) -> SeedPart:
    try:
        names.check_part(name)
    except RefusedError as error:
        raise FormatError(f"seed manifest: {error}") from None
    if type(body) is not dict:
        raise FormatError(f"seed manifest: part {name!r} is not a map")
    fields = Fields(f"part {name!r} of the seed", body)
    kind = fields.text("kind")
    if kind not in ("tree", "blob"):
        raise FormatError(f"seed manifest: part {name!r} is of unknown kind {kind!r}")
    part = SeedPart(
        kind="tree" if kind == "tree" else "blob",
        digest=fields.digest("digest"),
        files=fields.count("files"),
        bytes=fields.count("bytes"),
        label=fields.optional_name("label", names.check_label),
    )
    fields.finish()
    return part
