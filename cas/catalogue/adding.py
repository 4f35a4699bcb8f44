"""Making versions: content or an older state gets the next number of its resource."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from cas import names
from cas.catalogue.added import Added
from cas.catalogue.context import now
from cas.catalogue.lookup import version_ref
from cas.catalogue.parents import NO_PARENT, Parent, find_parent
from cas.catalogue.publish import publish_version, publishing
from cas.catalogue.sources import Taker
from cas.catalogue.version import version_from_ref, version_of
from cas.digest import Digest
from cas.manifests import TreeRef, VersionManifest, edit_tree
from cas.objects import TREE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cas.catalogue.context import Context
    from cas.catalogue.sources import Source
    from cas.names import Spec
    from cas.objects import ObjectWriter
    from cas.progress import Progress
    from cas.refs import VersionRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Who made a version and why; what all ways to make one have in common."""

    source: str
    trigger_run: str | None
    trigger_workspace: str | None
    description: str
    meta: Mapping[str, str] | None

    def manifest(
        self, resource: str, number: int, tree: TreeRef, parent: Parent
    ) -> VersionManifest:
        """Return the manifest of a version that is made now."""
        return VersionManifest(
            resource=resource,
            number=number,
            tree=tree.digest,
            files=tree.files,
            bytes=tree.bytes,
            parents=parent.digests,
            parent=parent.text,
            source=self.source,
            description=self.description,
            created_at=now(),
            trigger_run=self.trigger_run,
            trigger_workspace=self.trigger_workspace,
            meta=dict(self.meta or {}),
        )

    def __post_init__(self) -> None:
        """Refuse what no manifest can hold before any work is done."""
        names.check_text(self.source, "source")
        names.check_text(self.description, "description")
        for what in ("trigger_run", "trigger_workspace"):
            text = getattr(self, what)
            if text is not None:
                names.check_text(text, what)
        for key, text in (self.meta or {}).items():
            names.check_text(key, "meta key")
            names.check_text(text, f"meta {key}")


def add_version(
    context: Context,
    resource: str,
    source: Source,
    provenance: Provenance,
    *,
    parent: str | None,
    if_changed: bool,
    ignore: bool,
    workers: int | None,
    progress: Progress | None,
) -> Added:
    """Make content the next version of a resource; see `Versions.add`."""
    with publishing(context) as writer:
        context.refs.refresh()
        came_from = find_parent(context, parent, resource=resource) if parent else None
        taker = Taker(context, writer, ignore=ignore, workers=workers, progress=progress)
        tree = taker.take_tree(source).tree
        return _publish(
            context,
            writer,
            resource,
            tree,
            provenance,
            came_from,
            if_changed=if_changed,
            notices=tuple(taker.notices),
        )


def edit_version(
    context: Context,
    spec: Spec,
    provenance: Provenance,
    *,
    put: Mapping[str, Source],
    remove: Iterable[str],
    if_changed: bool,
    progress: Progress | None,
) -> Added:
    """Make a version out of another one with some paths changed; see `Versions.edit`."""
    removals = [_inner_path(path) for path in remove]
    places = {_inner_path(path): source for path, source in put.items()}
    with publishing(context) as writer:
        context.refs.refresh()
        start = version_ref(context.refs, spec)
        origin = VersionManifest.from_bytes(start.manifest_bytes)
        taker = Taker(context, writer, progress=progress)
        puts = {path: taker.take(source).entry for path, source in places.items()}
        tree = edit_tree(
            context.objects.read,
            lambda page: writer.put(page, TREE),
            origin.tree,
            puts,
            removals,
        )
        return _publish(
            context,
            writer,
            origin.resource,
            tree,
            provenance,
            Parent(f"{origin.resource}@v{origin.number}", (Digest(start.digest),)),
            if_changed=if_changed,
            notices=tuple(taker.notices),
        )


def _publish(
    context: Context,
    writer: ObjectWriter,
    resource: str,
    tree: TreeRef,
    provenance: Provenance,
    parent: Parent | None,
    *,
    if_changed: bool,
    notices: tuple[str, ...],
) -> Added:
    """Give a tree the next number; without a parent, the newest version is it."""
    new_bytes, stored_bytes = writer.new_bytes, writer.stored_bytes
    newest: VersionRef | None = None

    def make(number: int, latest: VersionRef | None) -> VersionManifest | None:
        nonlocal newest
        newest = latest
        if latest is None:
            return provenance.manifest(resource, number, tree, parent or NO_PARENT)
        if if_changed and version_from_ref(latest).tree == tree.digest:
            return None
        default = Parent(f"{resource}@v{latest.number}", (Digest(latest.digest),))
        return provenance.manifest(resource, number, tree, parent or default)

    made = publish_version(context, writer, resource, make)
    if made is None:
        assert newest is not None
        version = version_from_ref(newest)
    else:
        version = version_of(*made)
    return Added(
        **{field.name: getattr(version, field.name) for field in fields(version)},
        new_bytes=new_bytes,
        stored_bytes=stored_bytes,
        unchanged=made is None,
        notices=notices,
    )


def _inner_path(path: str) -> bytes:
    """Return a path inside a tree as bytes; slashes that begin or end it are dropped."""
    return names.check_path(os.fsencode(path).strip(b"/"))
