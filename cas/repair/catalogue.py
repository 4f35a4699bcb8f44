"""Healing the catalogue: its own log as far as it can be read, a copy of it, and the manifests.

A version or seed carries its own name, so one that no log tells of any more comes back under it,
if nothing speaks against that. Where two claim one name, neither gets it: each comes back under a
tag, for a person to decide. The new log is made beside the damaged one and takes its place in one
step; the damaged one is put aside.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from cas.catalogue.context import now
from cas.catalogue.publish import change_event, seed_event, version_event
from cas.catalogue.resolve import read_manifest
from cas.errors import CasError, ConflictError, NotFoundError, RefusedError
from cas.learning import LEARNING
from cas.manifests import SeedManifest, TreeBuilder, VersionManifest
from cas.objects import SEED, TREE, VERSION
from cas.refs import CATALOGUE, Refs, fold, open_catalogue
from cas.repair.logs import NewLog

if TYPE_CHECKING:
    from cas.catalogue.context import Context
    from cas.refs import Event
    from cas.repair.content import Healer
    from cas.repair.result import Diary

_LOG: Final = f"log/{CATALOGUE}"
_REASON: Final = "the catalogue was damaged, and this was found among the objects"

_Found = dict[tuple[str, int], dict[bytes, VersionManifest | SeedManifest]]
"""Name (of a seed with number 0) → the manifests that claim it."""


def heal_catalogue(context: Context, copy: Context | None, healer: Healer, diary: Diary) -> None:
    """Heal the catalogue, if it is damaged.

    Args:
        context: The store, to which nobody else writes.
        copy: Another store. If it is a copy of this one, its log is one of this one's.
        healer: Brings what manifests need.
        diary: Takes note of what is done.
    """
    findings = list(context.refs.check())
    if not findings:
        return
    logs = {"logs": [LEARNING]} if any(context.backend.list(f"log/{LEARNING}/")) else {}
    new = NewLog(context, CATALOGUE, fold, copy, logs)
    saved, log = new.saved, new.log
    refs = Refs(log)
    for event in saved.leftover:
        _append(refs, event)
    context.heed(refs)  # before anything is brought: what was purged does not come back
    if saved.lost:
        _Rebuilding(context, refs, copy, healer, diary).run()
    new.put_in_place(findings, diary)
    context.refs = open_catalogue(context.backend)
    context.refs.refresh()
    if saved.lost:
        diary.notices.append(
            "not all of the catalogue could be read: tags and removals of the part that is lost "
            "are not known, and names that were removed there are back"
        )


def _append(refs: Refs, event: Event) -> bool:
    """Append an event of which it is not known what it was built on, if it is valid as it is."""
    told: dict[str, Any] = dict(event)
    if told["type"] == "init":
        return False
    if told["type"] == "version":
        told["gap"] = True
    try:
        refs.publish(lambda _: [told])
    except (ConflictError, NotFoundError, RefusedError):
        return False
    return True


class _Rebuilding:
    """Gives names back to the manifests that lie among the objects."""

    def __init__(
        self, context: Context, refs: Refs, copy: Context | None, healer: Healer, diary: Diary
    ) -> None:
        self._context = context
        self._refs = refs
        self._copy = copy
        self._healer = healer
        self._diary = diary

    def run(self) -> None:
        for (name, number), claims in sorted(self._find().items()):
            certain = self._certain(name, number, claims)
            spec = f"{name}@v{number}" if number else f"seed:{name}"
            if certain is None:
                self._recover(name, number, claims)
            elif _append(self._refs, _event(claims[certain], certain)):
                self._diary.heal(_LOG, type(claims[certain].tree)(certain), f"{spec} is back")

    def _find(self) -> _Found:
        """Return the manifests whose content is there and whose name nothing has."""
        found: _Found = defaultdict(dict)
        objects = self._context.objects
        for digest in set(objects.of_kinds(VERSION, SEED)):
            try:
                manifest = read_manifest(objects.read(digest))
            except CasError:
                continue
            if isinstance(manifest, VersionManifest):
                name, taken = (
                    (manifest.resource, manifest.number),
                    self._refs.version(manifest.resource, manifest.number) is not None,
                )
            else:
                name, taken = (manifest.name, 0), self._refs.seed(manifest.name) is not None
            # Of what a version came from, and of what was removed long ago, there is no tree.
            if not taken and objects.has(manifest.tree) and self._healer.complete(manifest.tree):
                found[name][bytes(digest)] = manifest
        return found

    def _certain(
        self, name: str, number: int, claims: dict[bytes, VersionManifest | SeedManifest]
    ) -> bytes | None:
        """Return the manifest that surely had a name, or None."""
        if len(claims) == 1:
            return next(iter(claims))
        if self._copy is None:
            return None
        refs = self._copy.refs
        there = refs.version(name, number) if number else refs.seed(name)
        return None if there is None or there.digest not in claims else bytes(there.digest)

    def _recover(
        self, name: str, number: int, claims: dict[bytes, VersionManifest | SeedManifest]
    ) -> None:
        """Name each of several claims by a tag, and see to it that their number is not given."""
        spec = f"{name}@v{number}" if number else f"seed:{name}"
        for digest in sorted(claims):
            flat = name.replace("/", "-")[:60] + (f"-v{number}" if number else "")
            tag = f"recovered-{flat}-{digest.hex()[:12]}"
            target = {"name": tag, "digest": digest, "spec": spec}
            _append(self._refs, change_event("tag", target, by=None, reason=_REASON))
            self._diary.notices.append(f"{len(claims)} states claim to be {spec}: see tag:{tag}")
        if number:
            for event in self._placeholder(name, number):
                _append(self._refs, event)

    def _placeholder(self, resource: str, number: int) -> list[Event]:
        """Return the events that give a number to nothing and take it away again."""
        with self._context.objects.writer() as writer:
            tree = TreeBuilder(lambda data: writer.put(data, TREE)).finish()
            manifest = VersionManifest(
                resource=resource,
                number=number,
                tree=tree.digest,
                files=0,
                bytes=0,
                source="repair",
                description="several states claimed this number; each has a tag",
                created_at=now(),
            )
            encoded = manifest.to_bytes()
            digest = writer.put(encoded, VERSION)
            writer.flush()
        name = {"resource": resource, "number": number}
        return [
            version_event(manifest, digest, encoded),
            change_event("version-removed", name, by=None, reason=_REASON),
        ]


def _event(manifest: VersionManifest | SeedManifest, digest: bytes) -> Event:
    encoded = manifest.to_bytes()
    if isinstance(manifest, VersionManifest):
        return version_event(manifest, digest, encoded)
    return seed_event(manifest, digest, encoded, reuse=False)
