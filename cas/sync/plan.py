"""What names a store is to get from another one: which are new, which it has, which conflict.

A name never changes what it means. A version or seed of the destination that has the same manifest
is the same; any other of that name is a conflict. Of a tag the whole history counts: the shorter of
two histories that begin alike is moved on, and two that part are a conflict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas.catalogue.publish import seed_event, version_event
from cas.eventlog import MAX_RECORD
from cas.manifests import SeedManifest, VersionManifest
from cas.objects import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.objects import ObjectWriter
    from cas.refs import Event, Refs, SeedRef, TagMove, VersionRef
    from cas.sync.selection import Selection

_ELSEWHERE: Final = re.compile(r"@v[0-9]+ of store [0-9a-f-]+\Z")
"""How the parent of a version ends that has another number in the store that it comes from."""
_ROOM: Final = MAX_RECORD - (64 << 10)
"""Bytes of events that are sure to fit into one record."""
_EVENT: Final = 1024
"""Bytes of an event beside its manifest, at most, apart from free texts."""


class Renumbered(NamedTuple):
    """A version that landed under another number than it had."""

    spec: str
    """As the other store names it."""
    landed: str


@dataclass(slots=True)
class Step:
    """Names for one record of the destination's catalogue, and what must still hold for it.

    Attributes:
        events: Of the record.
        size: Bytes of them, at most.
        numbers: Resource → the last number that it was when this was planned.
        moves: Tag → how often it had moved.
        specs: What the events name.
    """

    events: list[Event] = field(default_factory=list)
    size: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    moves: dict[str, int] = field(default_factory=dict)
    specs: list[str] = field(default_factory=list)

    def still(self, refs: Refs) -> list[Event]:
        """Return the events if the names are as they were when this was planned."""
        for resource, last in self.numbers.items():
            if refs.last_number(resource) != last:
                return []
        for name, count in self.moves.items():
            if len(refs.tag_history(name)) != count:
                return []
        for event in self.events:
            if event["type"] == "version":
                taken: object = refs.version(event["resource"], event["number"])
            else:
                taken = event["type"] == "seed" and refs.seed(event["name"])
            if taken:
                return []
        return self.events


@dataclass(slots=True)
class Plan:
    """What is to be done.

    Attributes:
        steps: The records to write, in order; mostly one.
        present: Specs of what the destination has already.
        removed: Those of them whose name was taken away there.
        newer: Tags that moved on at the destination only.
        conflicts: Specs that mean something else there.
        renumbered: Versions that land under another number.
        elsewhere: Specs of the source that have another number there, those that landed before too.
    """

    steps: list[Step] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    newer: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    renumbered: list[Renumbered] = field(default_factory=list)
    elsewhere: set[str] = field(default_factory=set)

    def add(self, spec: str, event: Event, *, last: int | None = None) -> Step:
        """Plan an event, in a new record if it does not fit into the one before."""
        size = _EVENT + len(event.get("manifest", b""))
        size += sum(len(str(event.get(text, "")).encode()) for text in ("spec", "reason", "by"))
        if not self.steps or self.steps[-1].size + size > _ROOM:
            self.steps.append(Step())
        step = self.steps[-1]
        step.events.append(event)
        step.size += size
        if spec not in step.specs[-1:]:
            step.specs.append(spec)
        if last is not None:
            step.numbers.setdefault(event["resource"], last)
        return step


def make_plan(
    selection: Selection,
    source: Refs,
    destination: Refs,
    *,
    origin: str | None,
    writer: ObjectWriter,
) -> Plan:
    """Compare the names of two stores.

    Args:
        selection: Those that are to go from one to the other.
        source: The names of the one that has them.
        destination: The names of the other.
        origin: Identity of the source, if versions whose number is taken are to get the next one.
        writer: Of the destination; takes the manifests of those.
    """
    plan = Plan()
    last: dict[str, int] = {}
    shifted: set[str] = set()
    for version in selection.versions.values():
        _plan_version(plan, destination, version, last, shifted, origin, writer)
    for seed in selection.seeds.values():
        _plan_seed(plan, destination, seed)
    # A tag says which version is live: one that has another number here is not it.
    other = {*plan.conflicts, *plan.elsewhere}
    for name, tag in selection.tags.items():
        if other.isdisjoint(source.by_digest(tag.digest)):
            _plan_tag(plan, name, source.tag_history(name), destination.tag_history(name))
        else:
            plan.conflicts.append(f"tag:{name}")
    return plan


def _plan_version(
    plan: Plan,
    refs: Refs,
    version: VersionRef,
    last: dict[str, int],
    shifted: set[str],
    origin: str | None,
    writer: ObjectWriter,
) -> None:
    resource, number = version.resource, version.number
    spec = f"{resource}@v{number}"
    there = refs.version(resource, number)
    if there is not None and there.digest == version.digest:
        _plan_present(plan, spec, there)
        return
    before = last.get(resource, refs.last_number(resource))
    encoded, digest = version.manifest_bytes, version.digest
    manifest = VersionManifest.from_bytes(encoded)
    own = None if origin is None else _own(refs, manifest)
    if own is not None:
        plan.elsewhere.add(spec)
        _plan_present(plan, f"{resource}@v{own.number}", own)
        return
    if there is not None or resource in shifted:
        if origin is None:
            plan.conflicts.append(spec)
            return
        copy = renumbered(manifest, version.digest, origin, before + 1)
        landed = _landed(refs, copy)
        if landed is not None:
            plan.elsewhere.add(spec)
            _plan_present(plan, f"{resource}@v{landed.number}", landed)
            return
        shifted.add(resource)
        manifest = copy
        encoded = manifest.to_bytes()
        digest = writer.put(encoded, VERSION)
        plan.elsewhere.add(spec)
        plan.renumbered.append(Renumbered(spec, f"{resource}@v{manifest.number}"))
    event = dict(version_event(manifest, digest, encoded))
    if manifest.number != before + 1:
        event["gap"] = True
    plan.add(f"{resource}@v{manifest.number}", event, last=before)
    last[resource] = max(before, manifest.number)


def renumbered(
    manifest: VersionManifest, digest: bytes, origin: str, number: int
) -> VersionManifest:
    """Return a version of another store under a number of this one.

    Everything that was said of it stays; its parent is the manifest that it had in the store that
    it comes from first.
    """
    if _ELSEWHERE.search(manifest.parent or ""):
        return manifest._replace(number=number)
    return manifest._replace(
        number=number,
        parent=f"{manifest.resource}@v{manifest.number} of store {origin}",
        parents=(type(manifest.tree)(digest),),
    )


def _own(refs: Refs, manifest: VersionManifest) -> VersionRef | None:
    """Return the version that another store got from this one under another number."""
    if _ELSEWHERE.search(manifest.parent or "") and len(manifest.parents) == 1:
        for spec in refs.by_digest(manifest.parents[0], removed=True):
            name, _, number = spec.rpartition("@v")
            if name == manifest.resource:
                return refs.version(name, int(number))
    return None


def _landed(refs: Refs, copy: VersionManifest) -> VersionRef | None:
    """Return the version that an earlier transfer made of the same one."""
    for ref in refs.versions(copy.resource, removed=True):
        if ref.manifest_bytes.find(copy.parents[0]) >= 0:  # quick: few have to be parsed
            manifest = VersionManifest.from_bytes(ref.manifest_bytes)
            # Through which store it came does not matter: its parent's digest says what it is.
            elsewhere = _ELSEWHERE.search(manifest.parent or "")
            if elsewhere and manifest._replace(number=copy.number, parent=copy.parent) == copy:
                return ref
    return None


def _plan_seed(plan: Plan, refs: Refs, seed: SeedRef) -> None:
    spec = f"seed:{seed.name}"
    there = refs.seed(seed.name)
    if there is None:
        manifest = SeedManifest.from_bytes(seed.manifest_bytes)
        plan.add(spec, seed_event(manifest, seed.digest, seed.manifest_bytes, reuse=False))
    elif there.digest == seed.digest:
        _plan_present(plan, spec, there)
    else:
        plan.conflicts.append(spec)


def _plan_present(plan: Plan, spec: str, there: VersionRef | SeedRef) -> None:
    (plan.present if there.removed_at is None else plan.removed).append(spec)


def _plan_tag(plan: Plan, name: str, wanted: list[TagMove], there: list[TagMove]) -> None:
    spec = f"tag:{name}"
    common = min(len(wanted), len(there))
    if wanted[:common] != there[:common]:
        same = not there[-1].removed and there[-1].digest == wanted[-1].digest
        (plan.present if same else plan.conflicts).append(spec)
    elif len(there) > len(wanted):
        plan.newer.append(spec)
    elif len(there) == len(wanted):
        plan.present.append(spec)
    else:
        count = len(there)
        for event in _tag_events(name, wanted[count:]):
            plan.add(spec, event).moves.setdefault(name, count)
            count += 1


def _tag_events(name: str, moves: list[TagMove]) -> Iterator[dict[str, Any]]:
    for move in moves:
        why = {"name": name, "by": move.by, "reason": move.reason, "at": move.at}
        if move.digest is None:
            yield {"type": "tag-removed", **why}
        else:
            yield {"type": "tag", **why, "digest": bytes(move.digest), "spec": move.spec}
