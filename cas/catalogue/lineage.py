"""Lineage: where a version or seed came from, back to the first."""

from __future__ import annotations

import datetime as dt
import heapq
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cas.catalogue.resolve import read_manifest, resolve_spec
from cas.errors import MissingObjectError, NotFoundError, RefusedError
from cas.manifests import VersionManifest
from cas.names import parse_spec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cas.catalogue.context import Context
    from cas.digest import Digest
    from cas.refs import Purge, Refs, SeedRef, VersionRef


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEntry:
    """One step of a lineage.

    `spec` is the name that the manifest carries; `removed` says that it has that name no more.
    `parents` are digests of other entries of the same lineage, `parent` the text recorded.
    `meta` of a version that published a learning candidate's draft names the `candidate`, and the
    `safety_report` and `eval_report` that spoke for it.
    `purged` says, a sentence each, which of its files were purged, when and why.
    `known` is False for a parent whose manifest the store does not hold: then only its digest is
    known.
    """

    digest: Digest
    spec: str | None
    kind: str
    parents: tuple[Digest, ...]
    parent: str | None
    created_at: str | None
    source: str | None
    description: str
    trigger_run: str | None
    trigger_workspace: str | None
    baseline_run_id: str | None
    meta: Mapping[str, str]
    removed: bool
    known: bool
    purged: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "digest": str(self.digest),
            "spec": self.spec,
            "kind": self.kind,
            "parents": [str(parent) for parent in self.parents],
            "parent": self.parent,
            "created_at": self.created_at,
            "source": self.source,
            "description": self.description,
            "trigger_run": self.trigger_run,
            "trigger_workspace": self.trigger_workspace,
            "baseline_run_id": self.baseline_run_id,
            "meta": dict(self.meta),
            "removed": self.removed,
            "known": self.known,
            "purged": list(self.purged),
        }


def lineage(context: Context, text: str, *, limit: int | None = None) -> list[LineageEntry]:
    """Return where a version or seed came from: itself first, each before its parents.

    Among those of which neither came from the other, the newer one comes first. A digest covers
    the parents' digests, so there are no cycles; damage that would make one is found when the
    manifest is read.

    Args:
        context: The store.
        text: A spec of a version or seed, or of something in it.
        limit: Return so many at most.

    Raises:
        NotFoundError: The spec names nothing, or no version or seed.
    """
    resolved = resolve_spec(context, text)
    if resolved.manifest is None:
        raise NotFoundError(
            f"{text} is a {resolved.kind} without a lineage; name a version or seed", spec=text
        )
    known = _reach(context, resolved.manifest)
    waiting = Counter(parent for entry in known.values() for parent in set(entry.parents))
    # A heap of what all its children were listed of, newest first.
    ready = [_newest_first(known[resolved.manifest])]
    listed: list[LineageEntry] = []
    while ready and (limit is None or len(listed) < limit):
        entry = known[heapq.heappop(ready)[-1]]
        listed.append(entry)
        for parent in set(entry.parents):
            waiting[parent] -= 1
            if not waiting[parent]:
                heapq.heappush(ready, _newest_first(known[parent]))
    purges = list(context.refs.purges())
    return [_with_purges(entry, purges) for entry in listed] if purges else listed


def _with_purges(entry: LineageEntry, purges: Sequence[Purge]) -> LineageEntry:
    """Say of an entry which of its files were purged."""
    inside = f"{entry.spec}:"
    told = [
        f"{place.removeprefix(inside)} {purge.told}"
        for purge in purges
        for place in purge.affects
        if place.startswith(inside)
    ]
    return replace(entry, purged=tuple(told))


def _newest_first(entry: LineageEntry) -> tuple[float, bytes]:
    """Order entries by their time, equal ones by their digest."""
    try:
        when = dt.datetime.fromisoformat(entry.created_at or "")
    except ValueError:
        return (0.0, entry.digest)
    if when.tzinfo is None:
        when = when.replace(tzinfo=dt.UTC)
    return (-when.timestamp(), entry.digest)


def _reach(context: Context, start: Digest) -> dict[bytes, LineageEntry]:
    """Return the entries of all that a manifest came from, itself among them."""
    known: dict[bytes, LineageEntry] = {}
    # What to look at next, and under which name it may be found.
    level: dict[Digest, str | None] = {start: None}
    while level:
        for digest, name in level.items():
            known[digest] = _entry(context, digest, name)
        level = {
            parent: known[digest].parent
            for digest in level
            for parent in known[digest].parents
            if parent not in known
        }
    return known


def _named(refs: Refs, digest: Digest, name: str | None) -> VersionRef | SeedRef | None:
    """Return the version or seed that has a manifest, one that was not removed before others.

    The catalogue carries manifests with their names, so most of a lineage needs no objects. Names
    lie in order there and digests do not, so the name that a child gave is tried first.
    """
    found = None if name is None else _ref(refs, name)
    if found is not None and found.digest == digest:
        return found
    for text in refs.by_digest(digest) or refs.by_digest(digest, removed=True):
        return _ref(refs, text)
    return None


def _ref(refs: Refs, text: str) -> VersionRef | SeedRef | None:
    try:
        spec = parse_spec(text)
    except RefusedError:
        return None
    if spec.kind == "seed":
        return refs.seed(spec.name)
    return None if spec.number is None else refs.version(spec.name, spec.number)


def _entry(context: Context, digest: Digest, name: str | None) -> LineageEntry:
    ref = _named(context.refs, digest, name)
    try:
        encoded = context.objects.read(digest) if ref is None else ref.manifest_bytes
    except MissingObjectError:
        return LineageEntry(
            digest=digest,
            spec=None,
            kind="unknown",
            parents=(),
            parent=None,
            created_at=None,
            source=None,
            description="",
            trigger_run=None,
            trigger_workspace=None,
            baseline_run_id=None,
            meta={},
            removed=True,
            known=False,
        )
    manifest = read_manifest(encoded)
    removed = ref is None or ref.removed_at is not None
    if isinstance(manifest, VersionManifest):
        return LineageEntry(
            digest=digest,
            spec=f"{manifest.resource}@v{manifest.number}",
            kind="version",
            parents=manifest.parents,
            parent=manifest.parent,
            created_at=manifest.created_at,
            source=manifest.source,
            description=manifest.description,
            trigger_run=manifest.trigger_run,
            trigger_workspace=manifest.trigger_workspace,
            baseline_run_id=None,
            meta=manifest.meta,
            removed=removed,
            known=True,
        )
    return LineageEntry(
        digest=digest,
        spec=f"seed:{manifest.name}",
        kind="seed",
        parents=manifest.parents,
        parent=manifest.parent,
        created_at=manifest.created_at,
        source=None,
        description=manifest.description,
        trigger_run=None,
        trigger_workspace=None,
        baseline_run_id=manifest.baseline_run_id,
        meta=manifest.meta,
        removed=removed,
        known=True,
    )
