"""Push and pull: content from one store to another, and then its names, which never change.

The destination is held like by any publisher, from the first look for known content until its
record is written. The source is only read, and no lock is taken there.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import TYPE_CHECKING

from cas.catalogue.lookup import SHOWN
from cas.catalogue.publish import publishing
from cas.catalogue.seed import seed_from_ref
from cas.catalogue.version import version_from_ref
from cas.errors import ConflictError, MissingObjectError, RefusedError
from cas.refs import VersionRef
from cas.sync.ancestry import bring_manifests, find_targets
from cas.sync.content import Lacking
from cas.sync.plan import Plan, make_plan
from cas.sync.result import Synced
from cas.sync.selection import Selection, select

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.catalogue.context import Context
    from cas.objects import ObjectWriter
    from cas.progress import Progress
    from cas.refs import Refs, SeedRef
    from cas.sync.plan import Renumbered


def transfer(
    source: Context,
    destination: Context,
    specs: Iterable[str] = (),
    *,
    renumber: bool = False,
    progress: Progress | None = None,
) -> Synced:
    """Bring names and what they reach from one store to another.

    Args:
        source: The store that has them.
        destination: The store that gets them.
        specs: Versions, seeds and tags; by default all. Those that are asked for come all or not
            at all; of all, what conflicts stays as it is at the destination.
        renumber: Give versions whose number means something else at the destination the next one.
        progress: Called with what was done so far.

    Raises:
        NotFoundError: The source has no such name.
        ConflictError: A name that was asked for means something else at the destination.
        MissingObjectError: The source lacks something; no name that needs it was given.
        RefusedError: Both are one store, or a spec is no name.
    """
    if os.path.samefile(source.root, destination.root):
        raise RefusedError(f"{source.root} is this store itself; name another one")
    source.heed_purges()
    selection = select(source, specs)
    with publishing(destination) as writer:
        return _Transfer(source, destination, selection, writer, renumber, progress).run()


class _Transfer:
    """One transfer, after the names were looked up."""

    def __init__(
        self,
        source: Context,
        destination: Context,
        selection: Selection,
        writer: ObjectWriter,
        renumber: bool,
        progress: Progress | None,
    ) -> None:
        self._source = source
        self._destination = destination
        self._selection = selection
        self._writer = writer
        self._origin = source.id if renumber else None
        self._progress = progress
        self._purged: set[bytes] = set()
        self._made: list[str] = []
        self._renumbered: list[Renumbered] = []

    def run(self) -> Synced:
        self._destination.refs.refresh()
        plan = self._plan()
        self._check(plan)
        try:
            self._bring(plan)
        except MissingObjectError as error:
            raise MissingObjectError(
                f"{self._source.root} lacks something of what was asked for: {error}",
                **error.facts,
            ) from None
        while not self._publish(plan):
            self._destination.refs.refresh()
            plan = self._plan()
            self._check(plan)
        return self._result(plan)

    def _plan(self) -> Plan:
        return make_plan(
            self._selection,
            self._source.refs,
            self._destination.refs,
            origin=self._origin,
            writer=self._writer,
        )

    def _check(self, plan: Plan) -> None:
        """Refuse names that were asked for and mean something else.

        Raises:
            ConflictError: There are some.
        """
        found = plan.conflicts
        if self._selection.asked and found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            raise ConflictError(
                f"{', '.join(found[:SHOWN])}{more}: {self._destination.root} has something else "
                "of that name, so nothing was changed there; leave it out, or for versions pull "
                "with --renumber",
                specs=found,
            )

    def _bring(self, plan: Plan) -> None:
        """Copy what the names need."""
        staying = {*plan.conflicts, *plan.removed, *plan.newer}
        present = set(plan.present)
        old, new = self._named(staying, present)
        brought = {bytes(ref.digest) for ref in (*old, *new)}
        refs = self._destination.refs
        with Lacking(
            self._source.objects, self._destination.objects, self._writer, self._progress
        ) as lacking:
            trees = bring_manifests(self._source.objects, old, refs, self._writer)
            lacking.find(trees=trees)
            trees = bring_manifests(self._source.objects, new, refs, self._writer)
            if trees:
                whole, like = _alike(refs, new)
                lacking.find(trees=trees, whole=whole, like=like)
            tags = [
                tag
                for name, tag in self._selection.tags.items()
                if f"tag:{name}" not in staying and tag.digest not in brought
            ]
            find_targets(lacking, self._source.objects, tags)
            lacking.bring()
            self._purged = lacking.purged

    def _named(
        self, staying: set[str], present: set[str]
    ) -> tuple[list[VersionRef | SeedRef], list[VersionRef | SeedRef]]:
        """Return what the destination has already, which is looked through, and what is new."""
        old: list[VersionRef | SeedRef] = []
        new: list[VersionRef | SeedRef] = []
        refs: dict[str, VersionRef | SeedRef] = {
            f"{resource}@v{number}": ref
            for (resource, number), ref in self._selection.versions.items()
        }
        refs |= {f"seed:{name}": ref for name, ref in self._selection.seeds.items()}
        for spec, ref in refs.items():
            if spec not in staying:
                (old if spec in present else new).append(ref)
        return old, new

    def _publish(self, plan: Plan) -> bool:
        """Write the records; False if the names changed since they were planned."""
        self._writer.flush()
        self._publish_purges()
        while plan.steps:
            step = plan.steps[0]
            if not self._destination.refs.publish(step.still).events:
                return False
            self._made += step.specs
            self._renumbered += [one for one in plan.renumbered if one.landed in step.specs]
            del plan.steps[0]
        return True

    def _publish_purges(self) -> None:
        """Say of what does not come along since the source purged it that it was purged."""
        events = [
            purge._asdict() | {"type": "purged", "digest": bytes(purge.digest)}
            for purge in self._source.refs.purges()
            if purge.digest in self._purged
        ]
        known = {purge.digest for purge in self._destination.refs.purges()}
        new = [
            event | {"affects": list(event["affects"])}
            for event in events
            if event["digest"] not in known
        ]
        if new:
            self._destination.refs.publish(lambda _: new)
            self._destination.heed_purges()

    def _result(self, last: Plan) -> Synced:
        made = list(dict.fromkeys(self._made))
        here = self._destination.root
        notices = [
            f"{spec} was removed from {here}; undelete it there to bring it back"
            for spec in last.removed
        ]
        notices += [f"{spec} moved on in {here}; it stays" for spec in last.newer]
        return Synced(
            source=self._source.root,
            destination=self._destination.root,
            new=tuple(made),
            present=tuple(spec for spec in last.present if spec not in set(made)),
            conflicts=tuple(last.conflicts),
            renumbered=tuple(self._renumbered),
            notices=tuple(notices),
            objects=self._writer.new_objects,
            bytes=self._writer.new_bytes,
            stored_bytes=self._writer.stored_bytes,
        )


def _alike(refs: Refs, new: Iterable[VersionRef | SeedRef]) -> tuple[frozenset[bytes], set[bytes]]:
    """Return the trees of all names of a store, and those to compare the trees of new ones with.

    Of a version that is the version below it, or else the lowest one: most of it will be the same.
    A seed is made of trees that versions have as well.
    """
    whole = {bytes(seed_from_ref(seed).tree) for seed in refs.seeds()}
    like = set()
    wanted: dict[str, list[int]] = {}
    for ref in new:
        if isinstance(ref, VersionRef):
            wanted.setdefault(ref.resource, []).append(ref.number)
    for resource in refs.resources():
        there = [(ref.number, bytes(version_from_ref(ref).tree)) for ref in refs.versions(resource)]
        whole.update(tree for _, tree in there)
        numbers = [number for number, _ in there]
        for number in wanted.get(resource, ()):
            like.add(there[max(0, bisect_right(numbers, number) - 1)][1])
    return frozenset(whole), like
