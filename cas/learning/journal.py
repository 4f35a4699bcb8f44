"""The learning log of a store: made, opened, read and appended to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cas.catalogue.context import now, user
from cas.errors import BeingPublishedError, ConflictError, DamagedLogError, NotFoundError
from cas.eventlog import EventLog
from cas.learning.fold import fold
from cas.learning.ids import check_id
from cas.learning.keys import PUBLISHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cas.backends import Backend
    from cas.catalogue.context import Context
    from cas.eventlog import Appended, Event, LogFinding, State

LEARNING: Final = "learning"
"""The log's name."""


def create_learning(backend: Backend, store_id: str) -> EventLog:
    """Make the learning log of a store.

    Raises:
        ConflictError: There is one.
    """
    init = {"type": "init", "store_id": store_id, "created_at": now()}
    return EventLog.create(backend, LEARNING, fold, [init])


class _Nothing:
    """The state of a log that is not there yet."""

    def get(self, key: bytes) -> bytes | None:  # noqa: ARG002 - a State's method
        return None

    def scan(
        self,
        prefix: bytes,  # noqa: ARG002
        *,
        start: bytes | None = None,  # noqa: ARG002
        reverse: bool = False,  # noqa: ARG002
    ) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


class Journal:
    """The learning log as the nouns of this package use it.

    Stores made before there was learning have no such log: they read as empty, and the first
    write makes it.

    Args:
        context: The open store.
    """

    def __init__(self, context: Context) -> None:
        """Look at nothing yet."""
        self._context = context
        self._opened: EventLog | None = None

    def close(self) -> None:
        """Let go of what is held open; it is read again when needed."""
        if self._opened is not None:
            self._opened.close()

    def refresh(self) -> int:
        """Read what was appended since, and return the position; 0 where there is no log.

        Raises:
            DamagedLogError: The log is damaged.
        """
        log = self._open()
        return 0 if log is None else log.refresh()

    def compact(self, *, full: bool = False) -> bool:
        """Write a snapshot of what the log holds, and let go the records that are in it.

        It happens by itself when the log has grown; what it keeps is all but the records.

        Args:
            full: Leave the least: merge all that was written before.

        Returns:
            Whether there is a new snapshot.

        Raises:
            DamagedLogError: The log is damaged.
            EnvironmentFailure: The medium is full or fails; the log is whole all the same.
        """
        log = self._open()
        return log is not None and log.compact(full=full)

    def verify(self) -> list[LogFinding]:
        """Read every byte that the log needs, and say what is wrong with it."""
        log = self._open()
        return [] if log is None else list(log.check())

    def _as_it_is(self) -> State:
        """Return what the log holds now, and write nothing whatever it is."""
        log = self._open()
        if log is None:
            return _Nothing()
        log.refresh()
        return log.state

    def _state(self) -> State:
        """Return what the log holds now, after bringing to an end what publishers left."""
        log = self._open()
        if log is None:
            return _Nothing()
        log.refresh()
        if next(log.state.scan(PUBLISHING), None) is not None:
            try:
                self._settle(log)
            except OSError:
                pass  # a medium that is read-only or full: what is there can be read all the same
        return log.state

    def _settle(self, log: EventLog) -> bool:
        """Bring to their end what publishers who are gone began; say whether there was any."""
        from cas.learning.settling import settle  # late: there is hardly ever anything

        return settle(self._context, log)

    def _seen(self) -> State:
        """Return what the log held when it was last read or appended to."""
        return _Nothing() if self._opened is None else self._opened.state

    def _append(self, decide: Callable[[State], Sequence[Event]]) -> Appended:
        """Append what `decide` returns, as `EventLog.append`; make the log if there is none."""
        log = self._open()
        if log is None:
            try:
                log = create_learning(self._context.backend, self._context.id)
            except ConflictError:
                log = EventLog(self._context.backend, LEARNING, fold)
            self._opened = log
        try:
            return log.append(lambda state, _position: decide(state))
        except BeingPublishedError:
            if not self._settle(log):
                raise
        return log.append(lambda state, _position: decide(state))

    def _append_all(self, events: Sequence[Event]) -> Appended:
        """Append events, whatever the log holds."""
        return self._append(lambda _state: events)

    def _open(self) -> EventLog | None:
        if self._opened is None and self._is_there():
            self._opened = EventLog(self._context.backend, LEARNING, fold)
        return self._opened

    def _is_there(self) -> bool:
        backend = self._context.backend
        try:
            backend.open(f"log/{LEARNING}/head").close()
        except NotFoundError:
            if next(iter(backend.list(f"log/{LEARNING}/")), None) is not None:
                return True
            # A store that was made with the log and does not have it any more is damaged.
            try:
                self._context.refs.refresh()
                return LEARNING in self._context.refs.origin().get("logs", ())
            except DamagedLogError:
                return False  # nor is it known what the store was made with
        return True

    def _now(self) -> int:
        """Return the store's time in ns since 1970."""
        return self._context.backend.now_ns()


def acting(actor: str | None) -> str:
    """Return who does something: the one named, or the user that runs this.

    Raises:
        NameRefusedError: It is no name.
    """
    return check_id(user() if actor is None else actor, "actor")


def of(event: str, **fields: Any) -> dict[str, Any]:
    """Return an event of a type; fields that are None are left out."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {"type": event, **given}
