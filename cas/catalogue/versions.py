"""Versions of resources: add, edit, list, get, remove, undelete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas import names
from cas.catalogue.context import doing
from cas.catalogue.lookup import any_version_ref, no_resource, version_ref
from cas.catalogue.version import Version, version_from_ref
from cas.errors import ConflictError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cas.catalogue.added import Added
    from cas.catalogue.context import Context
    from cas.catalogue.sources import Source
    from cas.names import Spec
    from cas.progress import Progress
    from cas.refs import Event, Refs, VersionRef

# Imports inside the methods below are late for start-up time: looking needs none of them.


class Versions:
    """The versions of a store.

    Args:
        context: The open store.
    """

    def __init__(self, context: Context) -> None:
        """Read nothing yet."""
        self._context = context

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
        from cas.catalogue.adding import Provenance, add_version

        names.check_resource(resource)
        provenance = Provenance(
            source=source,
            trigger_run=trigger_run,
            trigger_workspace=trigger_workspace,
            description=description,
            meta=meta,
        )
        with doing(f"adding {resource}"):
            return add_version(
                self._context,
                resource,
                path,
                provenance,
                parent=parent,
                if_changed=if_changed,
                ignore=ignore,
                workers=workers,
                progress=progress,
            )

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
        from cas.catalogue.adding import Provenance, edit_version

        provenance = Provenance(
            source=source,
            trigger_run=trigger_run,
            trigger_workspace=trigger_workspace,
            description=description,
            meta=meta,
        )
        with doing(f"editing {spec}"):
            return edit_version(
                self._context,
                _version_spec(spec),
                provenance,
                put=put or {},
                remove=remove,
                if_changed=if_changed,
                progress=progress,
            )

    def resources(self) -> list[str]:
        """Return the resources that have versions, sorted."""
        with doing("reading the catalogue"):
            self._context.refs.refresh()
            return self._context.refs.resources()

    def get(self, resource: str, which: str | int = "latest") -> Version:
        """Return one version.

        Args:
            resource: The resource.
            which: `latest`, `v3` or 3.

        Raises:
            NotFoundError: There is no such version.
        """
        text = f"v{which}" if isinstance(which, int) else which
        spec = names.parse_spec(f"{names.check_resource(resource)}@{text}")
        with doing("reading the catalogue"):
            self._context.refs.refresh()
            return version_from_ref(version_ref(self._context.refs, spec))

    def remove(self, spec: str, *, reason: str = "", by: str | None = None) -> Version:
        """Take a version's name away; its number is never given again.

        Args:
            spec: The version.
            reason: Why, for the history.
            by: Who; by default the user that runs this.

        Raises:
            NotFoundError: There is no such version.
        """
        from cas.catalogue.publish import change_event, change_refs

        parsed = _version_spec(spec)
        removed: list[VersionRef] = []

        def decide(refs: Refs) -> Sequence[Event]:
            ref = version_ref(refs, parsed)
            name = {"resource": ref.resource, "number": ref.number}
            event = change_event("version-removed", name, by=by, reason=reason)
            removed[:] = [ref._replace(removed_at=event["at"])]
            return [event]

        with doing(f"removing {spec}"):
            change_refs(self._context, decide)
        return version_from_ref(removed[0])

    def undelete(self, spec: str, *, reason: str = "", by: str | None = None) -> Version:
        """Bring a removed version back, while its content is there.

        Args:
            spec: The version, by number.
            reason: Why, for the history.
            by: Who; by default the user that runs this.

        Raises:
            NotFoundError: There never was such a version.
            ConflictError: It is not removed.
            MissingObjectError: Its content is gone.
        """
        from cas.catalogue.closure import check_closure
        from cas.catalogue.publish import change_event, change_refs

        context = self._context
        parsed = _version_spec(spec)
        with doing(f"undeleting {spec}"), context.publishing():
            context.refs.refresh()
            ref = any_version_ref(context.refs, parsed)
            if ref.removed_at is None:
                raise ConflictError(f"version {parsed.base} is not removed", spec=parsed.base)
            version = version_from_ref(ref._replace(removed_at=None))
            check_closure(context.objects, version.tree, version.spec)
            name = {"resource": ref.resource, "number": ref.number}
            event = change_event("version-restored", name, by=by, reason=reason)
            change_refs(context, lambda _: [event])
        return version

    def list(self, resource: str | None = None, *, removed: bool = False) -> list[Version]:
        """Return the versions in number order, of one resource or of all, sorted by resource.

        Args:
            resource: The only resource to list.
            removed: Also those whose name was taken away.

        Raises:
            NotFoundError: The resource never had a version.
        """
        refs = self._context.refs
        with doing("reading the catalogue"):
            refs.refresh()
            if resource is None:
                resources = refs.resources(removed=removed)
            elif refs.last_number(names.check_resource(resource)):
                resources = [resource]
            else:
                raise NotFoundError(no_resource(refs, resource), resource=resource)
            return [
                version_from_ref(ref)
                for name in resources
                for ref in refs.versions(name, removed=removed)
            ]


def _version_spec(text: str) -> Spec:
    """Read a spec that must be a whole version."""
    spec = names.parse_spec(text)
    if spec.kind != "version" or spec.path:
        raise RefusedError(f"{text} is not a version: give RESOURCE@vN", spec=text)
    return spec
