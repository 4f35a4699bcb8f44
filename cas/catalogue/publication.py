"""Publishing one part of a resource: replaced in its newest version, once or never.

A publication has an identity. The first record of the catalogue that names it decides it for
good: it made a version, or it never will. So a publisher that stalled cannot come back with a
version after somebody gave its publication up.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cas.catalogue.adding import Provenance
from cas.catalogue.context import now
from cas.catalogue.lookup import version_ref
from cas.catalogue.parents import Parent
from cas.catalogue.publish import change_refs, is_next, publishing, version_event
from cas.catalogue.version import Version, version_from_ref
from cas.digest import Digest
from cas.errors import ConflictError, NotFoundError, RefusedError
from cas.manifests import LINK, VersionManifest, edit_tree, resolve
from cas.names import parse_spec
from cas.objects import TREE, VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cas.catalogue.context import Context
    from cas.manifests import NewEntry
    from cas.objects import ObjectWriter
    from cas.refs import Event, Refs, VersionRef

Content = tuple[str, int, bytes]
"""Entry type, size and digest of what stands at a path."""

SOURCE = "learning"
"""The source of versions that were made so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A place in a numbered version, and what stands there."""

    resource: str
    number: int
    path: bytes
    content: Content

    @property
    def spec(self) -> str:
        """The spec that names it, such as skills@v3:debugging, as text for people."""
        return f"{self.resource}@v{self.number}:{self.name}"

    @property
    def name(self) -> str:
        """The path, as text for people."""
        return self.path.decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What is to be published.

    Attributes:
        identity: 16 bytes that no other publication has.
        candidate: The candidate that it is the draft of.
        reports: The reports that speak for it, such as ``safety/r1``.
        by: Who publishes it.
        description: Why, for the version.
        base: The part that it is made from, and replaces.
        draft: What comes there.
    """

    identity: bytes
    candidate: str
    reports: tuple[str, ...]
    by: str
    description: str
    base: Part
    draft: NewEntry


class Decision(NamedTuple):
    """How a publication was decided: the version that it made, or why it made none."""

    version: Version | None
    reason: str
    there: bool = False
    """Whether the version was there before: it came from another store, or out of a repair."""


def find_part(context: Context, text: str) -> Part:
    """Find the part of a version that a spec names.

    Args:
        context: The store.
        text: ``RESOURCE@vN:PATH``.

    Raises:
        NotFoundError: There is no such version, or nothing at the path.
        RefusedError: It is no such spec, or what it names is a link.
    """
    spec = parse_spec(text)
    if spec.kind != "version" or not spec.path:
        raise RefusedError(f"{text} is not a part of a version: give RESOURCE@vN:PATH", spec=text)
    context.refs.refresh()
    ref = version_ref(context.refs, spec)
    if spec.number is None:
        path = os.fsdecode(spec.path)
        raise RefusedError(
            f"{text} moves on with every version; name one: {ref.resource}@v{ref.number}:{path}",
            spec=text,
        )
    content = _content(context, ref, spec.path)
    if content is None:
        raise NotFoundError(f"{text} not found in that version", spec=text)
    if content[0] == LINK:
        raise RefusedError(f"{text} is a symbolic link; name what it points to", spec=text)
    return Part(resource=ref.resource, number=ref.number, path=spec.path, content=content)


def publish_part(context: Context, publication: Publication) -> Decision:
    """Make the next version of a resource with one part replaced, unless it is decided already.

    It goes on top of the newest version, where the part must still be what the draft was made
    from; if it is not, the publication is refused for good. Where a version says that it is from
    this candidate and draft already, it is that one.

    Args:
        context: The store.
        publication: What to publish. Its draft must be kept alive by whoever calls.
    """
    refs, resource = context.refs, publication.base.resource
    with publishing(context) as writer:
        while True:
            refs.refresh()
            decision = find_decision(refs, publication.identity) or _recognise(context, publication)
            if decision is not None:
                return decision
            newest = refs.latest(resource)
            try:
                manifest = _manifest(context, writer, publication, newest)
            except ConflictError as error:
                return _refuse(context, publication, publication.by, str(error))
            encoded = manifest.to_bytes()
            digest = writer.put(encoded, VERSION)
            writer.flush()
            events = [
                version_event(manifest, digest, encoded),
                _published(publication, manifest.number),
            ]

            def decide(
                refs: Refs,
                number: int = manifest.number,
                newest: VersionRef | None = newest,
                events: Sequence[Event] = events,
            ) -> Sequence[Event]:
                if refs.publication(publication.identity) is not None:
                    return []
                return events if is_next(refs, resource, number, newest) else []

            refs.publish(decide)


def give_up_publication(
    context: Context, publication: Publication, by: str, reason: str
) -> Decision:
    """Decide that a publication makes no version, unless it made one or is decided already.

    Args:
        context: The store, whose catalogue was just read.
        publication: What was to be published.
        by: Who gives it up.
        reason: Why.

    Returns:
        How it is decided now.
    """
    return _recognise(context, publication) or _refuse(context, publication, by, reason)


def _refuse(context: Context, publication: Publication, by: str, reason: str) -> Decision:
    told = _decides("publication-refused", publication)
    return _decide(context, publication.identity, {**told, "by": by, "reason": reason})


def _recognise(context: Context, publication: Publication) -> Decision | None:
    """Decide a publication where a version says that it is from this candidate and draft already.

    A catalogue that was made anew from manifests knows the version and not what was decided, and
    one whose version came from another store never did.
    """
    base, draft = publication.base, bytes(publication.draft[2]).hex()
    wanted = {"candidate": publication.candidate, "draft": draft}
    for ref in context.refs.versions(base.resource, removed=True):
        if ref.number <= base.number or draft.encode() not in ref.manifest_bytes:
            continue  # quick: few have to be parsed
        version = version_from_ref(ref)
        if version.source == SOURCE and version.meta.items() >= wanted.items():
            event = _published(publication, ref.number) | {"there": True}
            return _decide(context, publication.identity, event)
    return None


def _decide(context: Context, identity: bytes, event: Event) -> Decision:
    """Write a decision that makes no version, unless there is one, and return the one there is."""
    change_refs(context, lambda refs: [] if refs.publication(identity) is not None else [event])
    decision = find_decision(context.refs, identity)
    assert decision is not None
    return decision


def find_decision(refs: Refs, identity: bytes) -> Decision | None:
    """Return how a publication was decided, None if it was not, as far as the refs were read."""
    event = refs.publication(identity)
    if event is None:
        return None
    if event["type"] == "publication-refused":
        return Decision(None, event["reason"])
    ref = refs.version(event["resource"], event["number"])
    assert ref is not None, "a version's record is never taken away"
    return Decision(version_from_ref(ref), "", event.get("there") is True)


def _published(publication: Publication, number: int) -> dict[str, object]:
    return {
        **_decides("published", publication),
        "by": publication.by,
        "reports": list(publication.reports),
        "resource": publication.base.resource,
        "number": number,
    }


def _decides(kind: str, publication: Publication) -> dict[str, object]:
    identity, candidate = publication.identity, publication.candidate
    return {"type": kind, "publication": identity, "candidate": candidate, "at": now()}


def _manifest(
    context: Context, writer: ObjectWriter, publication: Publication, newest: VersionRef | None
) -> VersionManifest:
    """Return the manifest of the version that a publication makes on top of the newest one.

    Raises:
        ConflictError: The newest version has another part there than the draft was made from, or
            every version was removed.
    """
    base, draft = publication.base, publication.draft
    if newest is None:
        raise ConflictError(
            f"candidate {publication.candidate} cannot be published: every version of "
            f"{base.resource} was removed; undelete one, or add one"
        )
    spec = f"{base.resource}@v{newest.number}"
    there = _content(context, newest, base.path)
    if there != base.content:
        name = base.name
        if there is None:
            how = f"{name} is gone from {spec}"
        elif there == draft[:3]:
            how = f"{spec} has this very {name} already"
        else:
            how = f"{name} was changed between {base.resource}@v{base.number} and {spec}"
        raise ConflictError(
            f"candidate {publication.candidate} cannot be published: {how}; give it a base there "
            f"({spec}:{name}) and a draft that is made from that"
        )
    origin = VersionManifest.from_bytes(newest.manifest_bytes)
    tree = edit_tree(
        context.objects.read,
        lambda page: writer.put(page, TREE),
        origin.tree,
        {base.path: draft},
        (),
    )
    told = {report.partition("/")[0] + "_report": report for report in publication.reports}
    provenance = Provenance(
        source=SOURCE,
        trigger_run=None,
        trigger_workspace=None,
        description=publication.description,
        meta={
            "candidate": publication.candidate,
            "draft": bytes(draft[2]).hex(),
            **{name: report.partition("/")[2] for name, report in told.items()},
        },
    )
    parent = Parent(spec, (Digest(newest.digest),))
    number = context.refs.last_number(base.resource) + 1
    return provenance.manifest(base.resource, number, tree, parent)


def _content(context: Context, ref: VersionRef, path: bytes) -> Content | None:
    """Return what a version has at a path; None where there is nothing."""
    manifest = VersionManifest.from_bytes(ref.manifest_bytes)
    try:
        _, kind, size, digest = resolve(context.objects.read, manifest.tree, path)
    except NotFoundError:
        return None
    return kind, size, bytes(digest)
