"""Importing an old layout: all its names in one record of the catalogue, or none."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cas.catalogue.draft import PROMPTS, SKILLS, Draft
from cas.catalogue.lookup import SHOWN
from cas.catalogue.parents import NO_PARENT, Parent
from cas.catalogue.publish import publishing, seed_event, version_event
from cas.catalogue.seed import seed_of
from cas.catalogue.version import version_of
from cas.digest import Digest
from cas.errors import ConflictError, NotFoundError, RefusedError
from cas.eventlog import MAX_RECORD
from cas.layouts.board import Board
from cas.layouts.known import differences, find, is_equal
from cas.layouts.links import implied, in_order
from cas.layouts.results import Imported, Skipped
from cas.layouts.scan import FoundSeed, FoundVersion, Scan
from cas.layouts.taking import TakenSeed, Taking
from cas.learning import Learning
from cas.manifests import TreeRef, VersionManifest
from cas.objects import SEED, VERSION
from cas.workspace.handles import Handles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cas.catalogue.context import Context
    from cas.catalogue.seed import Seed
    from cas.catalogue.version import Version
    from cas.objects import ObjectWriter
    from cas.progress import Progress
    from cas.refs import Event, Refs

_ROOM: Final = MAX_RECORD - (64 << 10)
"""Bytes of events that are sure to fit into one record."""
_EVENT: Final = 256
"""Bytes of an event beside its manifest, at most, apart from its name."""
_NO_TREE: Final = TreeRef(Digest(bytes(32)), 0, 0)

_Found = FoundVersion | FoundSeed
_Content = TreeRef | TakenSeed


def import_layout(
    context: Context, directory: str | os.PathLike[str], *, progress: Progress | None
) -> Imported:
    """Take in an old version store; see `Store.import_layout`."""
    root = Path(os.path.abspath(directory))
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFoundError(f"{root} not found", path=str(root)) from None
    except NotADirectoryError:
        raise RefusedError(f"{root} is no directory", path=str(root)) from None
    try:
        with Handles(fd) as handles:
            found = Scan(handles)
            if not found.recognised:
                raise RefusedError(
                    f"{root} is no old version store: it has none of videos/, questions/, "
                    "skills/, prompts/ and seeds/, nor the files of a learning folder",
                    path=str(root),
                )
            with publishing(context) as writer:
                taking = Taking(
                    context,
                    writer,
                    handles,
                    root,
                    count=len(found.versions) + 2 * len(found.seeds),
                    progress=progress,
                )
                imported = _Import(context, writer, root, found, taking).run()
            return _with_learning(context, handles, imported) if found.learning else imported
    finally:
        os.close(fd)


def _with_learning(context: Context, handles: Handles, imported: Imported) -> Imported:
    """Take in the learning folder, whole or not at all."""
    skipped = list(imported.skipped)
    board = Board(handles, skipped)
    taken = Learning(context).take_in(
        candidates=board.candidates(),
        audit=board.audit(),
        performance=board.performance(),
        reports=board.reports(),
        actor="import",
    )
    told = (f"{one} is here already and says something else: it stays" for one in taken.differing)
    return replace(
        imported,
        learning=taken,
        skipped=tuple(sorted(skipped, key=lambda skip: skip.path)),
        notices=(*imported.notices, *told),
    )


@dataclass(slots=True)
class _Plan:
    """What an import is about to publish.

    Attributes:
        events: Of the record.
        size: Bytes of them, at most.
        numbers: Resource → the last number that it was when this was planned.
        versions: The versions that they name.
        seeds: The seeds that they name.
        present: Specs that the store has already, with equal content.
        notices: What is to be said of all these.
    """

    events: list[Event]
    size: int
    numbers: dict[str, int]
    versions: list[Version]
    seeds: list[Seed]
    present: list[str]
    notices: list[str]


class _Import:
    """One import, after the layout was looked through."""

    def __init__(
        self, context: Context, writer: ObjectWriter, root: Path, found: Scan, taking: Taking
    ) -> None:
        self._context = context
        self._writer = writer
        self._root = root
        self._found: dict[str, _Found] = {}
        self._taking = taking
        self._taken: dict[str, _Content] = {}
        self._skipped = found.skipped
        for version in found.versions:
            self._add(version)
        for seed in found.seeds:
            self._add(seed)

    def _add(self, found: _Found) -> None:
        """Plan to take something in, unless what is told of it is more than a manifest holds."""
        try:
            if isinstance(found, FoundVersion):
                _version_manifest(found, _NO_TREE, NO_PARENT).to_bytes()
        except RefusedError as error:
            self._skipped.append(Skipped(found.path, f"has more to tell than is kept: {error}"))
            return
        self._found[found.spec] = found

    def run(self) -> Imported:
        refs = self._context.refs
        refs.refresh()
        known = [spec for spec, found in self._found.items() if find(refs, found) is not None]
        self._take(known)
        self._check(refs)  # before all the rest is read
        self._take(spec for spec in self._found if spec not in self._taken)
        while True:
            refs.refresh()
            plan = self._plan(refs)
            self._writer.flush()
            if not plan.events or refs.publish(partial(_if_free, plan)).events:
                return self._result(plan)

    def _take(self, specs: Iterable[str]) -> None:
        for spec in list(specs):
            found = self._found[spec]
            taken: _Content | None
            if isinstance(found, FoundVersion):
                taken = self._taking.version(found)
            else:
                taken = self._taking.seed(found)
            if taken is None:
                del self._found[spec]
            else:
                self._taken[spec] = taken

    # --- names that are taken --------------------------------------------------------------------

    def _check(self, refs: Refs) -> None:
        """Refuse names that stand for something else.

        Raises:
            ConflictError: There are some.
        """
        others = []
        for spec, taken in self._taken.items():
            there = find(refs, self._found[spec])
            if there is not None and not is_equal(there, taken):
                others.append(spec)
        if others:
            others.sort(key=lambda spec: _order(self._found[spec]))
            more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
            raise ConflictError(
                f"{', '.join(others[:SHOWN])}{more}: the store has something else of that name "
                f"than {self._root}, so nothing was imported; import it into a new store",
                specs=others,
            )

    def _present(self, refs: Refs) -> tuple[dict[str, Digest], list[str]]:
        """Return what the store has already, and what is to be said of it."""
        present: dict[str, Digest] = {}
        notices: list[str] = []
        for spec in self._taken:
            found = self._found[spec]
            there = find(refs, found)
            if there is None:
                continue
            present[spec] = there.digest
            if there.removed_at is not None:
                notices.append(f"{spec} was removed here; undelete it to bring it back")
            if differing := differences(there, found):
                notices.append(
                    f"{spec} is here already, with another {', '.join(differing)}: "
                    "it stays as it is"
                )
        return present, notices

    # --- names that are new ----------------------------------------------------------------------

    def _plan(self, refs: Refs) -> _Plan:
        self._check(refs)
        present, notices = self._present(refs)
        plan = _Plan([], 0, {}, [], [], sorted(present, key=self._order_of), notices)
        digests = dict(present)
        for spec, links in in_order(self._links(plan)):
            if spec in present:
                continue
            found, taken = self._found[spec], self._taken[spec]
            parent = Parent(found.told.fields["parent"], tuple(digests[link] for link in links))
            if isinstance(found, FoundVersion):
                assert isinstance(taken, TreeRef)
                digests[spec] = self._plan_version(plan, found, taken, parent)
            else:
                assert isinstance(taken, TakenSeed)
                digests[spec] = self._plan_seed(plan, found, taken, parent)
        _order_events(plan, refs)
        if plan.size > _ROOM:
            raise RefusedError(
                f"the names in {self._root} do not fit into one record of the catalogue "
                f"({plan.size} bytes, at most {_ROOM}), so nothing was imported; import folders "
                "that hold a part of them each"
            )
        return plan

    def _order_of(self, spec: str) -> tuple[str, int]:
        return _order(self._found[spec])

    def _links(self, plan: _Plan) -> dict[str, list[str]]:
        """Return what each version and seed came from, as far as the layout holds it."""
        links: dict[str, list[str]] = {}
        for spec in sorted(self._taken, key=self._order_of):
            told = self._found[spec].told
            wanted = told.parents
            if wanted is None:
                wanted = implied(spec, told.fields["parent"])
            elif lost := [parent for parent in wanted if parent not in self._taken]:
                plan.notices.append(f"{spec} came from {', '.join(lost)}, not imported here")
            links[spec] = [parent for parent in wanted if parent in self._taken]
        return links

    def _plan_version(
        self, plan: _Plan, found: FoundVersion, tree: TreeRef, parent: Parent
    ) -> Digest:
        manifest = _version_manifest(found, tree, parent)
        encoded = manifest.to_bytes()
        digest = self._writer.put(encoded, VERSION)
        plan.events.append(version_event(manifest, digest, encoded))
        plan.size += len(encoded) + len(found.resource) + _EVENT
        plan.versions.append(version_of(manifest, digest))
        return digest

    def _plan_seed(self, plan: _Plan, found: FoundSeed, taken: TakenSeed, parent: Parent) -> Digest:
        draft = Draft(self._writer)
        draft.add_labelled(SKILLS, taken.skills, taken.labels[SKILLS])
        draft.add_labelled(PROMPTS, taken.prompts, taken.labels[PROMPTS])
        for part, entry in taken.extra.items():
            draft.add(part, entry)
        draft.add_baseline(*taken.baseline)
        fields = found.told.fields
        manifest = draft.finish(
            found.name,
            baseline_run_id=fields["baseline_run_id"] or "",
            parent=parent,
            description=fields["description"] or "",
            meta=found.told.meta,
            created_at=fields["created_at"],
        )
        encoded = manifest.to_bytes()
        digest = self._writer.put(encoded, SEED)
        plan.events.append(seed_event(manifest, digest, encoded, reuse=False))
        plan.size += len(encoded) + _EVENT
        plan.seeds.append(seed_of(manifest, digest))
        return digest

    def _result(self, plan: _Plan) -> Imported:
        told = []
        for spec in sorted(self._taken.keys() - set(plan.present), key=self._order_of):
            found = self._found[spec]
            where = os.fsdecode(found.path)
            told += [f"{where}: {notice}" for notice in found.told.notices]
        skipped = sorted((*self._skipped, *self._taking.skipped), key=lambda skip: skip.path)
        made: list[Version | Seed] = [*plan.versions, *plan.seeds]
        return Imported(
            directory=self._root,
            versions=tuple(sorted(plan.versions, key=lambda made: (made.resource, made.number))),
            seeds=tuple(sorted(plan.seeds, key=lambda made: made.name)),
            present=tuple(plan.present),
            skipped=tuple(skipped),
            notices=(*told, *self._taking.notices, *plan.notices),
            files=sum(one.files for one in made),
            bytes=sum(one.bytes for one in made),
            new_bytes=self._writer.new_bytes,
            stored_bytes=self._writer.stored_bytes,
        )


def _order(found: _Found) -> tuple[str, int]:
    """Sort versions by resource and number, seeds by name."""
    return (found.resource, found.number) if isinstance(found, FoundVersion) else (found.spec, 0)


def _version_manifest(found: FoundVersion, tree: TreeRef, parent: Parent) -> VersionManifest:
    fields = found.told.fields
    return VersionManifest(
        resource=found.resource,
        number=found.number,
        tree=tree.digest,
        files=tree.files,
        bytes=tree.bytes,
        parents=parent.digests,
        parent=fields["parent"],
        source=fields["source"] or "",
        description=fields["description"] or "",
        created_at=fields["created_at"] or "",
        trigger_run=fields["trigger_run"],
        trigger_workspace=fields["trigger_workspace"],
        meta=dict(found.told.meta),
    )


def _order_events(plan: _Plan, refs: Refs) -> None:
    """Sort the events as their names are, which numbers demand, and say which leave a gap."""
    plan.events.sort(key=lambda event: (event.get("resource", ""), event.get("number", 0)))
    last: dict[str, int] = {}
    for at, event in enumerate(plan.events):
        if event["type"] != "version":
            continue
        resource, number = event["resource"], event["number"]
        if resource not in last:
            last[resource] = plan.numbers[resource] = refs.last_number(resource)
        if number != last[resource] + 1:
            plan.events[at] = {**event, "gap": True}
        last[resource] = max(last[resource], number)


def _if_free(plan: _Plan, refs: Refs) -> Sequence[Event]:
    """Return the events if names and numbers still are as they were when it was planned."""
    for resource, last in plan.numbers.items():
        if refs.last_number(resource) != last:
            return []
    for version in plan.versions:
        if refs.version(version.resource, version.number) is not None:
            return []
    for seed in plan.seeds:
        if refs.seed(seed.name) is not None:
            return []
    return plan.events
