"""Refs: names for digests, as the catalogue's log says.

The log's events and the keys of its state are specified in `docs/format.md`, "The catalogue's
events". Every rule about names is enforced here, in the fold: an event that breaks one is refused
before its record is written, whoever wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas import names
from cas.codec import decode_trusted, encode
from cas.digest import DIGEST_SIZE, Digest, known_digest, raw_hash
from cas.errors import ConflictError, NewerFormatError, NotFoundError, RefusedError
from cas.eventlog import Appended, Event, EventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cas.backends import Backend
    from cas.eventlog import LogFinding, MutableState, State

__all__ = [
    "CATALOGUE",
    "MAX_MANIFEST",
    "Appended",
    "Event",
    "Refs",
    "SeedRef",
    "TagMove",
    "TagRef",
    "VersionRef",
    "create_catalogue",
    "open_catalogue",
]

CATALOGUE: Final = "catalogue"
"""The log's name."""
MAX_MANIFEST: Final = 256 << 10
"""Bytes of a manifest that an event carries, at most."""

_LIVE: Final = b"\x00"
_REMOVED: Final = b"\x01"


class VersionRef(NamedTuple):
    """A version's name, what it names, and when the name was taken away, if it was."""

    resource: str
    number: int
    digest: Digest
    manifest_bytes: bytes
    removed_at: str | None


class SeedRef(NamedTuple):
    """A seed's name, what it names, and when the name was taken away, if it was."""

    name: str
    digest: Digest
    manifest_bytes: bytes
    removed_at: str | None


class TagRef(NamedTuple):
    """Where a tag points: a digest, and the spec that named it when the tag was set."""

    name: str
    digest: Digest
    spec: str
    by: str
    reason: str
    at: str


class TagMove(NamedTuple):
    """One move of a tag; `digest` and `spec` are None where it was removed."""

    digest: Digest | None
    spec: str | None
    by: str
    reason: str
    at: str
    removed: bool


class Refs:
    """The names of a catalogue.

    What it says is what the log held when it was last refreshed or published to.

    Args:
        log: The catalogue's log.
        state: Look at this state instead of the log's own.
    """

    def __init__(self, log: EventLog, state: State | None = None) -> None:
        """Read nothing yet."""
        self._log = log
        self._state = log.state if state is None else state

    @property
    def log(self) -> EventLog:
        """The log."""
        return self._log

    def refresh(self) -> int:
        """Read what others published since, and return the log's position.

        Raises:
            DamagedLogError: The log is damaged.
        """
        return self._log.refresh()

    def publish(self, decide: Callable[[Refs], Sequence[Event]]) -> Appended:
        """Change names: all that `decide` returns, in one record, or nothing.

        Args:
            decide: Is given the names as they are where the record goes, and returns the events;
                called again when another record went there first. It raises to refuse.

        Raises:
            ConflictError: A name is taken.
            NotFoundError: A name to remove or restore does not exist.
            RefusedError: An event breaks another rule.
            EnvironmentFailure: As `EventLog.append`.
        """
        return self._log.append(lambda state, _position: decide(Refs(self._log, state)))

    def check(self) -> Iterator[LogFinding]:
        """Read every byte that the log needs, and give what is wrong with it."""
        return self._log.check()

    def origin(self) -> dict[str, Any]:
        """Return the event that began the log."""
        found = self._state.get(b"init")
        return dict(decode_trusted(found)) if found is not None else {}

    def resources(self, *, removed: bool = False) -> list[str]:
        """Return the resources that have versions, sorted.

        Args:
            removed: Also those whose versions were all removed.
        """
        prefix = b"resource\x00"
        return [
            key[len(prefix) :].decode()
            for key, value in self._state.scan(prefix)
            if removed or value[8:] != bytes(8)
        ]

    def versions(self, resource: str, *, removed: bool = False) -> Iterator[VersionRef]:
        """Give the versions of a resource in the order of their numbers.

        Args:
            resource: The resource; one that does not exist has none.
            removed: Also those whose name was taken away.
        """
        for key, value in self._state.scan(_version_prefix(resource)):
            if value[:1] == _LIVE:
                number = int.from_bytes(key[-8:], "big")
                yield VersionRef(resource, number, known_digest(value[1:33]), value[33:], None)
            elif removed:
                yield self._version(resource, key, value)

    def version(self, resource: str, number: int) -> VersionRef | None:
        """Return a version, also one whose name was taken away, or None."""
        if not 0 < number <= names.MAX_NUMBER:
            return None
        key = _version_key(resource, number)
        value = self._state.get(key)
        return None if value is None else self._version(resource, key, value)

    def latest(self, resource: str) -> VersionRef | None:
        """Return the version with the highest number that was not removed, or None."""
        last, live = _counts(self._state, resource)
        if not live:
            return None
        start = _version_key(resource, last)
        newest = self._state.get(start)
        if newest is not None and newest[:1] == _LIVE:
            return self._version(resource, start, newest)
        prefix = _version_prefix(resource)
        for key, value in self._state.scan(prefix, start=start, reverse=True):
            if value[:1] == _LIVE:
                return self._version(resource, key, value)
        return None

    def last_number(self, resource: str) -> int:
        """Return the highest number ever given, also if it was removed; 0 where there is none."""
        return _counts(self._state, resource)[0]

    def seeds(self, *, removed: bool = False) -> Iterator[SeedRef]:
        """Give the seeds, sorted by name.

        Args:
            removed: Also those whose name was taken away.
        """
        prefix = b"seed\x00"
        for key, value in self._state.scan(prefix):
            if removed or value[:1] == _LIVE:
                yield self._seed(key[len(prefix) :].decode(), value)

    def seed(self, name: str) -> SeedRef | None:
        """Return a seed, also one whose name was taken away, or None."""
        value = self._state.get(_seed_key(name))
        return None if value is None else self._seed(name, value)

    def tags(self) -> Iterator[TagRef]:
        """Give the tags, sorted by name."""
        prefix = b"tag\x00"
        for key, value in self._state.scan(prefix):
            yield _tag(key[len(prefix) :].decode(), value)

    def tag(self, name: str) -> TagRef | None:
        """Return a tag, or None."""
        value = self._state.get(_tag_key(name))
        return None if value is None else _tag(name, value)

    def tag_history(self, name: str) -> list[TagMove]:
        """Return all moves of a tag, oldest first; none where there never was such a tag."""
        moves = []
        for event in self.history(_tag_key(name)):
            removed = event["type"] == "tag-removed"
            digest, spec = (None, None) if removed else (Digest(event["digest"]), event["spec"])
            moves.append(TagMove(digest, spec, event["by"], event["reason"], event["at"], removed))
        return moves

    def version_history(self, resource: str, number: int) -> list[dict[str, Any]]:
        """Return the events that removed and restored a version, oldest first."""
        return list(self.history(_version_key(resource, number)))

    def seed_history(self, name: str) -> list[dict[str, Any]]:
        """Return the events that made, removed and restored seeds of a name, oldest first."""
        return list(self.history(_seed_key(name)))

    def by_digest(self, digest: bytes, *, removed: bool = False) -> list[str]:
        """Return the specs of the versions and seeds that have a manifest, sorted.

        Args:
            digest: The manifest's.
            removed: Also those whose name was taken away.
        """
        prefix = b"digest\x00" + digest + b"\x00"
        found = []
        for key, value in self._state.scan(prefix):
            ref = self._state.get(value)
            if ref is not None and ref[1:33] == digest and (removed or ref[:1] == _LIVE):
                found.append(key[len(prefix) :].decode())
        return found

    def history(self, key: bytes) -> Iterator[dict[str, Any]]:
        """Give the events about one key of the state, oldest first, without their manifests."""
        for _, event in self._state.scan(_history_prefix(key)):
            yield decode_trusted(event)

    def _version(self, resource: str, key: bytes, value: bytes) -> VersionRef:
        number = int.from_bytes(key[-8:], "big")
        removed_at = self._removed_at(key, value)
        return VersionRef(resource, number, Digest(value[1:33]), value[33:], removed_at)

    def _seed(self, name: str, value: bytes) -> SeedRef:
        removed_at = self._removed_at(_seed_key(name), value)
        return SeedRef(name, Digest(value[1:33]), value[33:], removed_at)

    def _removed_at(self, key: bytes, value: bytes) -> str | None:
        if value[:1] == _LIVE:
            return None
        for _, event in self._state.scan(_history_prefix(key), reverse=True):
            removal: dict[str, Any] = decode_trusted(event)
            return str(removal["at"])
        return ""


def open_catalogue(backend: Backend) -> Refs:
    """Return the names of the store in a backend; nothing is read yet."""
    return Refs(EventLog(backend, CATALOGUE, fold))


def create_catalogue(backend: Backend, first_events: Sequence[Event]) -> Refs:
    """Make the catalogue of a new store.

    Args:
        backend: Where.
        first_events: An `init` event, and those of names that come into being with the store.

    Raises:
        ConflictError: There is a catalogue.
    """
    return Refs(EventLog.create(backend, CATALOGUE, fold, first_events))


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
        state.put(_history_prefix(key) + when, encode(told))


def _init(state: MutableState, event: dict[str, Any]) -> None:
    _text(event, "store_id")
    state.put(b"init", encode(event))


def _version_given(state: MutableState, event: dict[str, Any]) -> bytes | None:
    resource = names.check_resource(_text(event, "resource"))
    number = _number(event)
    last, live = _counts(state, resource)
    key = _version_key(resource, number)
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
    state.put(key, _LIVE + _manifest(event))
    _count(state, resource, max(number, last), live + 1)
    _index(state, event, f"{resource}@v{number}", key)
    return key if event.keys() - _VERSION_FIELDS else None


def _version_moved(state: MutableState, event: dict[str, Any]) -> bytes:
    resource, number = names.check_resource(_text(event, "resource")), _number(event)
    key = _version_key(resource, number)
    _flip(state, event, key, f"version {resource}@v{number}")
    last, live = _counts(state, resource)
    _count(state, resource, last, live + (1 if event["type"] == "version-restored" else -1))
    return key


def _seed_given(state: MutableState, event: dict[str, Any]) -> bytes:
    name = names.check_seed(_text(event, "name"))
    key = _seed_key(name)
    before = state.get(key)
    if before is not None and (before[:1] == _LIVE or event.get("reuse") is not True):
        how = "exists" if before[:1] == _LIVE else "was removed and its name is kept for it"
        raise ConflictError(f"seed {name} {how}; choose another name", name=name)
    state.put(key, _LIVE + _manifest(event))
    _index(state, event, f"seed:{name}", key)
    return key


def _seed_moved(state: MutableState, event: dict[str, Any]) -> bytes:
    name = names.check_seed(_text(event, "name"))
    key = _seed_key(name)
    _flip(state, event, key, f"seed {name}")
    return key


def _tag_set(state: MutableState, event: dict[str, Any]) -> bytes:
    key = _tag_key(names.check_tag(_text(event, "name")))
    _check_why(event)
    target = {field: event[field] for field in ("by", "reason", "at")}
    state.put(key, encode(target | {"digest": _digest(event), "spec": _text(event, "spec")}))
    return key


def _tag_removed(state: MutableState, event: dict[str, Any]) -> bytes:
    name = names.check_tag(_text(event, "name"))
    key = _tag_key(name)
    _check_why(event)
    if state.get(key) is None:
        raise NotFoundError(f"tag {name} not found", name=name)
    state.delete(key)
    return key


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
}
_VERSION_FIELDS: Final = frozenset({"type", "resource", "number", "digest", "manifest"})


def _flip(state: MutableState, event: dict[str, Any], key: bytes, what: str) -> None:
    """Take a name away or bring it back."""
    _check_why(event)
    value = state.get(key)
    if value is None:
        raise NotFoundError(f"{what} not found")
    restore = event["type"].endswith("-restored")
    if restore == (value[:1] == _LIVE):
        if restore:
            raise ConflictError(f"{what} is not removed")
        raise NotFoundError(f"{what} was removed already")
    state.put(key, (_LIVE if restore else _REMOVED) + value[1:])


def _counts(state: State, resource: str) -> tuple[int, int]:
    """Return the last number of a resource and how many of its versions are not removed."""
    value = state.get(b"resource\x00" + resource.encode())
    if value is None:
        return 0, 0
    return int.from_bytes(value[:8], "big"), int.from_bytes(value[8:], "big")


def _count(state: MutableState, resource: str, last: int, live: int) -> None:
    value = last.to_bytes(8, "big") + live.to_bytes(8, "big")
    state.put(b"resource\x00" + resource.encode(), value)


def _index(state: MutableState, event: dict[str, Any], spec: str, key: bytes) -> None:
    state.put(b"digest\x00" + event["digest"] + b"\x00" + spec.encode(), key)


def _version_prefix(resource: str) -> bytes:
    return b"version\x00" + resource.encode() + b"\x00"


def _version_key(resource: str, number: int) -> bytes:
    return _version_prefix(resource) + number.to_bytes(8, "big")


def _seed_key(name: str) -> bytes:
    return b"seed\x00" + name.encode()


def _tag_key(name: str) -> bytes:
    return b"tag\x00" + name.encode()


def _history_prefix(key: bytes) -> bytes:
    return b"history\x00" + key + b"\x00"


def _tag(name: str, value: bytes) -> TagRef:
    target = decode_trusted(value)
    return TagRef(
        name,
        Digest(target["digest"]),
        target["spec"],
        target["by"],
        target["reason"],
        target["at"],
    )


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
