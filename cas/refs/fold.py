"""The catalogue's fold: what each event does to the names, and what it may not do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cas import names
from cas.codec import encode
from cas.digest import DIGEST_SIZE, raw_hash
from cas.errors import ConflictError, NewerFormatError, NotFoundError, RefusedError
from cas.refs.keys import (
    LIVE,
    PUBLICATION_SIZE,
    REMOVED,
    counts,
    history_prefix,
    publication_key,
    purge_key,
    seed_key,
    tag_key,
    version_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cas.eventlog import MutableState

MAX_AFFECTED: Final = 1000
"""Places that a purge names, at most."""
MAX_MANIFEST: Final = 256 << 10
"""Bytes of a manifest that an event carries, at most."""


def fold(state: MutableState, event: dict[str, Any], position: int, index: int) -> None:
    """Apply one event of the catalogue to its state.

    Raises:
        ConflictError: A name or number is taken.
        NotFoundError: There is no such name to remove or restore.
        RefusedError: Something else is wrong with the event.
        NewerFormatError: Its type is not known here.
    """
    kind = event["type"]
    step = _STEPS.get(kind)
    if step is None:
        raise NewerFormatError(
            f"the catalogue holds an event of type {kind!r}, which a newer version wrote; "
            "update cas-store",
            type=kind,
        )
    first = position == 1 and index == 0
    if (kind == "init") != first:
        raise RefusedError("a catalogue begins with one init event")
    key = step(state, event)
    if key is not None:
        when = position.to_bytes(8, "big") + index.to_bytes(4, "big")
        told = {name: value for name, value in event.items() if name != "manifest"}
        state.put(history_prefix(key) + when, encode(told))


def _init(state: MutableState, event: dict[str, Any]) -> None:
    _text(event, "store_id")
    state.put(b"init", encode(event))


def _version_given(state: MutableState, event: dict[str, Any]) -> bytes | None:
    resource = names.check_resource(_text(event, "resource"))
    number = _number(event)
    last, live = counts(state, resource)
    key = version_key(resource, number)
    # An import may leave numbers out, and a later one, of what was damaged then, fill them in.
    imported = event.get("gap") is True
    if number <= last and not (imported and state.get(key) is None):
        raise ConflictError(
            f"version {resource}@v{number} cannot be made: numbers go up, and v{last} was given",
            resource=resource,
            number=number,
            last=last,
        )
    if number > last + 1 and not imported:
        raise RefusedError(
            f"version {resource}@v{number} would leave out v{last + 1}; only an import may do that",
            resource=resource,
            number=number,
            last=last,
        )
    state.put(key, LIVE + _manifest(event))
    _count(state, resource, max(number, last), live + 1)
    _index(state, event, f"{resource}@v{number}", key)
    return key if event.keys() - _VERSION_FIELDS else None


def _version_moved(state: MutableState, event: dict[str, Any]) -> bytes:
    resource, number = names.check_resource(_text(event, "resource")), _number(event)
    key = version_key(resource, number)
    _flip(state, event, key, f"version {resource}@v{number}")
    last, live = counts(state, resource)
    _count(state, resource, last, live + (1 if event["type"] == "version-restored" else -1))
    return key


def _seed_given(state: MutableState, event: dict[str, Any]) -> bytes:
    name = names.check_seed(_text(event, "name"))
    key = seed_key(name)
    before = state.get(key)
    if before is not None and (before[:1] == LIVE or event.get("reuse") is not True):
        how = "exists" if before[:1] == LIVE else "was removed and its name is kept for it"
        raise ConflictError(f"seed {name} {how}; choose another name", name=name)
    state.put(key, LIVE + _manifest(event))
    _index(state, event, f"seed:{name}", key)
    return key


def _seed_moved(state: MutableState, event: dict[str, Any]) -> bytes:
    name = names.check_seed(_text(event, "name"))
    key = seed_key(name)
    _flip(state, event, key, f"seed {name}")
    return key


def _tag_set(state: MutableState, event: dict[str, Any]) -> bytes:
    key = tag_key(names.check_tag(_text(event, "name")))
    _check_why(event)
    target = {field: event[field] for field in ("by", "reason", "at")}
    state.put(key, encode(target | {"digest": _digest(event), "spec": _text(event, "spec")}))
    return key


def _tag_removed(state: MutableState, event: dict[str, Any]) -> bytes:
    name = names.check_tag(_text(event, "name"))
    key = tag_key(name)
    _check_why(event)
    if state.get(key) is None:
        raise NotFoundError(f"tag {name} not found", name=name)
    state.delete(key)
    return key


def _published(state: MutableState, event: dict[str, Any]) -> bytes:
    """Decide a publication: it is a version, which the same record or one before it names."""
    _decide(state, event)
    resource, number = names.check_resource(_text(event, "resource")), _number(event)
    key = version_key(resource, number)
    if state.get(key) is None:
        raise NotFoundError(f"version {resource}@v{number}, which is to be published, not found")
    reports = event.get("reports")
    if not isinstance(reports, list):
        raise RefusedError("a publication has a list of reports")
    for report in reports:
        names.check_text(report, "report")
    return key


def _publication_refused(state: MutableState, event: dict[str, Any]) -> None:
    """Decide a publication: there will be none."""
    _decide(state, event)
    _text(event, "reason")


def _decide(state: MutableState, event: dict[str, Any]) -> None:
    """Keep the event as what decides a publication, which it does once and for all."""
    publication = event.get("publication")
    if not isinstance(publication, bytes) or len(publication) != PUBLICATION_SIZE:
        raise RefusedError(f"the event {event['type']} has no publication")
    for field in ("candidate", "by", "at"):
        _text(event, field)
    key = publication_key(publication)
    if state.get(key) is not None:
        raise ConflictError(f"a publication of candidate {event['candidate']} is decided already")
    state.put(key, encode(event))


def _purged(state: MutableState, event: dict[str, Any]) -> None:
    """Keep why content was taken out for good. Whoever says it again says nothing new."""
    _check_why(event)
    affects = event.get("affects")
    if not isinstance(affects, list) or len(affects) > MAX_AFFECTED:
        raise RefusedError(f"a purge has a list of at most {MAX_AFFECTED} places")
    for place in affects:
        names.check_text(place, "place")
    key = purge_key(_digest(event))
    if state.get(key) is None:
        state.put(key, encode({name: event[name] for name in ("by", "reason", "at", "affects")}))


_STEPS: Final[dict[str, Callable[[MutableState, dict[str, Any]], bytes | None]]] = {
    "init": _init,
    "version": _version_given,
    "version-removed": _version_moved,
    "version-restored": _version_moved,
    "seed": _seed_given,
    "seed-removed": _seed_moved,
    "seed-restored": _seed_moved,
    "tag": _tag_set,
    "tag-removed": _tag_removed,
    "published": _published,
    "publication-refused": _publication_refused,
    "purged": _purged,
}
_VERSION_FIELDS: Final = frozenset({"type", "resource", "number", "digest", "manifest"})


def _flip(state: MutableState, event: dict[str, Any], key: bytes, what: str) -> None:
    """Take a name away or bring it back."""
    _check_why(event)
    value = state.get(key)
    if value is None:
        raise NotFoundError(f"{what} not found")
    restore = event["type"].endswith("-restored")
    if restore == (value[:1] == LIVE):
        if restore:
            raise ConflictError(f"{what} is not removed")
        raise NotFoundError(f"{what} was removed already")
    state.put(key, (LIVE if restore else REMOVED) + value[1:])


def _count(state: MutableState, resource: str, last: int, live: int) -> None:
    value = last.to_bytes(8, "big") + live.to_bytes(8, "big")
    state.put(b"resource\x00" + resource.encode(), value)


def _index(state: MutableState, event: dict[str, Any], spec: str, key: bytes) -> None:
    state.put(b"digest\x00" + event["digest"] + b"\x00" + spec.encode(), key)


def _check_why(event: dict[str, Any]) -> None:
    for field in ("by", "reason", "at"):
        _text(event, field)


def _text(event: dict[str, Any], field: str) -> str:
    value = event.get(field)
    if not isinstance(value, str):
        raise RefusedError(f"the event {event['type']} has no text {field}", field=field)
    return names.check_text(value, field)


def _number(event: dict[str, Any]) -> int:
    number = event.get("number")
    if type(number) is not int or not 0 < number <= names.MAX_NUMBER:
        raise RefusedError(f"a version's number is 1 or more, not {number!r}")
    return number


def _digest(event: dict[str, Any]) -> bytes:
    digest = event.get("digest")
    if not isinstance(digest, bytes) or len(digest) != DIGEST_SIZE:
        raise RefusedError(f"the event {event['type']} has no digest")
    return digest


def _manifest(event: dict[str, Any]) -> bytes:
    """Return the digest and the manifest of an event, after comparing them."""
    digest, manifest = _digest(event), event.get("manifest")
    if not isinstance(manifest, bytes) or len(manifest) > MAX_MANIFEST:
        raise RefusedError(f"the event {event['type']} has no manifest of at most {MAX_MANIFEST}")
    if raw_hash(manifest) != digest:
        raise RefusedError(f"the manifest of the event {event['type']} does not have its digest")
    return digest + manifest
