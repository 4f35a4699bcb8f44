"""The names of a catalogue, typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas import names
from cas.codec import decode_trusted
from cas.digest import Digest, known_digest
from cas.eventlog import EventLog
from cas.refs.fold import fold
from cas.refs.keys import (
    LIVE,
    counts,
    history_prefix,
    publication_key,
    purge_key,
    seed_key,
    tag_key,
    version_key,
    version_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cas.backends import Backend
    from cas.eventlog import Appended, Event, LogFinding, State

CATALOGUE: Final = "catalogue"
"""The log's name."""


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


class Purge(NamedTuple):
    """Why some content was taken out of the store for good: who, when, and what held it then."""

    digest: Digest
    by: str
    reason: str
    at: str
    affects: tuple[str, ...]
    """`SPEC:PATH` of its places, not all if there are many."""

    @property
    def told(self) -> str:
        """How a sentence goes on that begins with its name."""
        when = self.at[:16].replace("T", " ")
        return f"was purged on {when} by {self.by}: {' '.join(self.reason.split())}"


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
        for key, value in self._state.scan(version_prefix(resource)):
            if value[:1] == LIVE:
                number = int.from_bytes(key[-8:], "big")
                yield VersionRef(resource, number, known_digest(value[1:33]), value[33:], None)
            elif removed:
                yield self._version(resource, key, value)

    def version(self, resource: str, number: int) -> VersionRef | None:
        """Return a version, also one whose name was taken away, or None."""
        if not 0 < number <= names.MAX_NUMBER:
            return None
        key = version_key(resource, number)
        value = self._state.get(key)
        return None if value is None else self._version(resource, key, value)

    def latest(self, resource: str) -> VersionRef | None:
        """Return the version with the highest number that was not removed, or None."""
        last, live = counts(self._state, resource)
        if not live:
            return None
        start = version_key(resource, last)
        newest = self._state.get(start)
        if newest is not None and newest[:1] == LIVE:
            return self._version(resource, start, newest)
        prefix = version_prefix(resource)
        for key, value in self._state.scan(prefix, start=start, reverse=True):
            if value[:1] == LIVE:
                return self._version(resource, key, value)
        return None

    def last_number(self, resource: str) -> int:
        """Return the highest number ever given, also if it was removed; 0 where there is none."""
        return counts(self._state, resource)[0]

    def seeds(self, *, removed: bool = False) -> Iterator[SeedRef]:
        """Give the seeds, sorted by name.

        Args:
            removed: Also those whose name was taken away.
        """
        prefix = b"seed\x00"
        for key, value in self._state.scan(prefix):
            if removed or value[:1] == LIVE:
                yield self._seed(key[len(prefix) :].decode(), value)

    def seed(self, name: str) -> SeedRef | None:
        """Return a seed, also one whose name was taken away, or None."""
        value = self._state.get(seed_key(name))
        return None if value is None else self._seed(name, value)

    def tags(self) -> Iterator[TagRef]:
        """Give the tags, sorted by name."""
        prefix = b"tag\x00"
        for key, value in self._state.scan(prefix):
            yield _tag(key[len(prefix) :].decode(), value)

    def tag(self, name: str) -> TagRef | None:
        """Return a tag, or None."""
        value = self._state.get(tag_key(name))
        return None if value is None else _tag(name, value)

    def every_tag(self) -> list[str]:
        """Return the names of all tags that there ever were, sorted."""
        prefix = history_prefix(tag_key(""))[:-1]
        found = (key[len(prefix) :] for key, _ in self._state.scan(prefix))
        return list(dict.fromkeys(key.partition(b"\x00")[0].decode() for key in found))

    def tag_history(self, name: str) -> list[TagMove]:
        """Return all moves of a tag, oldest first; none where there never was such a tag."""
        moves = []
        for event in self.history(tag_key(name)):
            removed = event["type"] == "tag-removed"
            digest, spec = (None, None) if removed else (Digest(event["digest"]), event["spec"])
            moves.append(TagMove(digest, spec, event["by"], event["reason"], event["at"], removed))
        return moves

    def version_history(self, resource: str, number: int) -> list[dict[str, Any]]:
        """Return the events that published, removed and restored a version, oldest first."""
        return list(self.history(version_key(resource, number)))

    def seed_history(self, name: str) -> list[dict[str, Any]]:
        """Return the events that made, removed and restored seeds of a name, oldest first."""
        return list(self.history(seed_key(name)))

    def publication(self, publication: bytes) -> dict[str, Any] | None:
        """Return the event that decided a publication, `published` or `publication-refused`.

        None says that nothing was decided yet.
        """
        found = self._state.get(publication_key(publication))
        return None if found is None else dict(decode_trusted(found))

    def purges(self) -> Iterator[Purge]:
        """Give what was purged, in the order of the digests."""
        prefix = purge_key(b"")
        for key, value in self._state.scan(prefix):
            said = decode_trusted(value)
            digest = Digest(key[len(prefix) :])
            yield Purge(digest, said["by"], said["reason"], said["at"], tuple(said["affects"]))

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
            if ref is not None and ref[1:33] == digest and (removed or ref[:1] == LIVE):
                found.append(key[len(prefix) :].decode())
        return found

    def history(self, key: bytes) -> Iterator[dict[str, Any]]:
        """Give the events about one key of the state, oldest first, without their manifests."""
        for _, event in self._state.scan(history_prefix(key)):
            yield decode_trusted(event)

    def _version(self, resource: str, key: bytes, value: bytes) -> VersionRef:
        number = int.from_bytes(key[-8:], "big")
        removed_at = self._removed_at(key, value)
        return VersionRef(resource, number, Digest(value[1:33]), value[33:], removed_at)

    def _seed(self, name: str, value: bytes) -> SeedRef:
        removed_at = self._removed_at(seed_key(name), value)
        return SeedRef(name, Digest(value[1:33]), value[33:], removed_at)

    def _removed_at(self, key: bytes, value: bytes) -> str | None:
        if value[:1] == LIVE:
            return None
        for _, event in self._state.scan(history_prefix(key), reverse=True):
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
