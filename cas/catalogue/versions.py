"""Versions of resources: add, edit, list, get, remove, undelete."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cas.digest import Digest
    from cas.progress import Progress

#: A path of the caller's filesystem, or a spec.
Source = str | PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a resource.

    `files` counts everything in it that is not a directory, recursively, and `bytes` is the sum of
    their sizes. `parents` are the digests of the manifests that it came from, `parent` how the one
    who added it named that state. `removed_at` is None unless its name was taken away.
    """

    resource: str
    number: int
    digest: Digest
    tree: Digest
    parents: tuple[Digest, ...]
    parent: str | None
    source: str
    description: str
    created_at: str
    trigger_run: str | None
    trigger_workspace: str | None
    meta: Mapping[str, str]
    files: int
    bytes: int
    removed_at: str | None = None

    @property
    def version(self) -> str:
        """The number as people write it, such as v3."""
        return f"v{self.number}"

    @property
    def spec(self) -> str:
        """The spec that names this version, such as skills@v3."""
        return f"{self.resource}@v{self.number}"

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "spec": self.spec,
            "resource": self.resource,
            "version": self.version,
            "number": self.number,
            "digest": str(self.digest),
            "tree": str(self.tree),
            "parents": [str(parent) for parent in self.parents],
            "parent": self.parent,
            "source": self.source,
            "created_at": self.created_at,
            "description": self.description,
            "trigger_run": self.trigger_run,
            "trigger_workspace": self.trigger_workspace,
            "meta": dict(self.meta),
            "files": self.files,
            "bytes": self.bytes,
            "removed_at": self.removed_at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Added(Version):
    """The version that an add or an edit made, or found unchanged.

    `new_bytes` is the size of the content that the store did not hold before, `stored_bytes` what
    it takes there. `unchanged` says that no version was made, because the newest one is equal.
    `notices` are sentences about what was skipped or taken in a special way.
    """

    new_bytes: int
    stored_bytes: int
    unchanged: bool
    notices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return Version.to_json(self) | {
            "new_bytes": self.new_bytes,
            "stored_bytes": self.stored_bytes,
            "unchanged": self.unchanged,
            "notices": list(self.notices),
        }


class Versions:
    """The versions of a store."""

    def add(
        self,
        resource: str,
        path: Source,
        *,
        source: str = "manual",
        parent: str | None = None,
        trigger_run: str | None = None,
        trigger_workspace: str | None = None,
        description: str = "",
        meta: Mapping[str, str] | None = None,
        if_changed: bool = False,
        ignore: bool = True,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> Added:
        """Make a file, a directory or an older state the next version of a resource.

        Args:
            resource: The line of versions.
            path: An existing file or directory; a text that is no existing path and reads as a
                spec makes that state the newest again. `./x` is always a path.
            source: Who made it: `manual`, `evolution`, `auto-gen`, or any text.
            parent: What it came from: a spec, or free text such as `WORKSPACE:v3`. By default the
                newest version of the resource.
            trigger_run: The run that led to it.
            trigger_workspace: The workspace that it was made in.
            description: Why.
            meta: Any more texts by name.
            if_changed: Make no version when the newest one has an equal tree.
            ignore: Honour `.casignore` files.
            workers: How many processes read and hash; by default as many as pay.
            progress: Called with what was done so far.

        Raises:
            NotFoundError: `path` or `parent` names nothing.
            RefusedError: A name, a text or a file is one that a store cannot take.
        """
        raise NotImplementedError

    def edit(
        self,
        spec: str,
        *,
        put: Mapping[str, Source] | None = None,
        remove: Iterable[str] = (),
        description: str = "",
        source: str = "manual",
        trigger_run: str | None = None,
        trigger_workspace: str | None = None,
        meta: Mapping[str, str] | None = None,
        if_changed: bool = False,
        progress: Progress | None = None,
    ) -> Added:
        """Make the next version of a resource out of one of its versions, without a checkout.

        Args:
            spec: The version to start from, which becomes the parent.
            put: Path inside the tree → file or directory of the caller to place there.
            remove: Paths inside the tree to leave out.
            description: Why.
            source: Who made it.
            trigger_run: The run that led to it.
            trigger_workspace: The workspace that it was made in.
            meta: Any more texts by name.
            if_changed: Make no version when the newest one has an equal tree.
            progress: Called with what was done so far.

        Raises:
            NotFoundError: The version, a path to remove or a file to put does not exist.
            RefusedError: A path inside is not one that a tree can hold.
        """
        raise NotImplementedError

    def resources(self) -> list[str]:
        """Return the resources that have versions, sorted."""
        raise NotImplementedError

    def list(self, resource: str | None = None, *, removed: bool = False) -> list[Version]:
        """Return the versions in number order, of one resource or of all, sorted by resource.

        Args:
            resource: The only resource to list.
            removed: Also those whose name was taken away.

        Raises:
            NotFoundError: The resource never had a version.
        """
        raise NotImplementedError

    def get(self, resource: str, which: str | int = "latest") -> Version:
        """Return one version.

        Args:
            resource: The resource.
            which: `latest`, `v3` or 3.

        Raises:
            NotFoundError: There is no such version.
        """
        raise NotImplementedError

    def remove(self, spec: str, *, reason: str = "", by: str | None = None) -> Version:
        """Take a version's name away; its number is never given again.

        Raises:
            NotFoundError: There is no such version.
        """
        raise NotImplementedError

    def undelete(self, spec: str, *, reason: str = "", by: str | None = None) -> Version:
        """Bring a removed version back, while its content is there.

        Raises:
            NotFoundError: There never was such a version.
            ConflictError: It is not removed.
            MissingObjectError: Its content is gone.
        """
        raise NotImplementedError
