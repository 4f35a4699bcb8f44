"""The version manifest: one numbered state of a resource and where it came from."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from cas import names
from cas.errors import FormatError, RefusedError
from cas.manifests.record import Fields, read_record, write_record

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping

    from cas.digest import Digest

FORMAT: Final = 1


class VersionManifest(NamedTuple):
    """One version. Equal manifests have equal bytes.

    Attributes:
        resource: The line of versions it belongs to.
        number: 1 for the first.
        tree: Digest of its tree.
        files: Recursive count of what is not a directory.
        bytes: Recursive sum of sizes.
        parents: Digests of the manifests it came from.
        source: How it was made: ``manual``, ``evolution``, ``auto-gen``, any text.
        description: Why, in the author's words.
        created_at: UTC time, ISO 8601.
        parent: What the author said it came from; None if nothing was said.
        trigger_run: The run that caused it, if one did.
        trigger_workspace: The workspace that it came out of, if one.
        meta: Anything else, text to text.
    """

    resource: str
    number: int
    tree: Digest
    files: int
    bytes: int
    parents: tuple[Digest, ...] = ()
    source: str = "manual"
    description: str = ""
    created_at: str = ""
    parent: str | None = None
    trigger_run: str | None = None
    trigger_workspace: str | None = None
    meta: Mapping[str, str] = MappingProxyType({})

    def to_bytes(self) -> builtins.bytes:
        """Return the one encoding.

        Raises:
            RefusedError: A field that `from_bytes` would refuse.
        """
        body = {
            "resource": names.check_resource(self.resource),
            "number": self.number,
            "tree": self.tree,
            "files": self.files,
            "bytes": self.bytes,
            "parents": self.parents,
            "source": self.source,
            "description": self.description,
            "created_at": self.created_at,
            "parent": self.parent,
            "trigger_run": self.trigger_run,
            "trigger_workspace": self.trigger_workspace,
            "meta": self.meta or {},
        }
        data = write_record("version", FORMAT, body)
        try:
            self.from_bytes(data)
        except FormatError as error:
            raise RefusedError(f"version {self.resource}@v{self.number}: {error}") from None
        return data

    @classmethod
    def from_bytes(cls, data: builtins.bytes) -> Self:
        """Read a version manifest.

        Raises:
            FormatError: Not the canonical encoding of a version.
            NewerFormatError: Of a format that this release does not know.
        """
        fields = Fields("version", read_record(data, "version", FORMAT))
        manifest = cls(
            resource=fields.name("resource", names.check_resource),
            number=fields.count("number", least=1),
            tree=fields.digest("tree"),
            files=fields.count("files"),
            bytes=fields.count("bytes"),
            parents=fields.digests("parents"),
            source=fields.text("source"),
            description=fields.text("description"),
            created_at=fields.text("created_at"),
            parent=fields.optional_text("parent"),
            trigger_run=fields.optional_text("trigger_run"),
            trigger_workspace=fields.optional_text("trigger_workspace"),
            meta=fields.texts("meta"),
        )
        fields.finish()
        return manifest
