"""What every noun of the catalogue works on: one open store's objects, refs and folders."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cas import locking
from cas.errors import CasError, environment_failure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from cas.backends import Backend
    from cas.objects import ObjectStore
    from cas.refs import Purge, Refs

LOCK_TIMEOUT = 600.0
"""Seconds that a publisher waits for a sweeping gc."""


@dataclass(slots=True)
class Context:
    """One open store.

    Attributes:
        root: Its directory; for a store that is on no disk, a name for messages.
        id: Its identity.
        backend: Where its bytes live.
        refs: Its names.
        purges: What was purged, as far as it was read.
    """

    root: Path
    id: str
    backend: Backend
    refs: Refs
    _objects: ObjectStore | None = None
    purges: tuple[Purge, ...] = ()
    _purged: dict[bytes, str] = field(default_factory=dict)

    @property
    def objects(self) -> ObjectStore:
        """Its objects; opened when first needed, for what is said of names alone needs none."""
        if self._objects is None:
            from cas.objects import ObjectStore  # late: start-up time

            self._objects = ObjectStore(self.backend)
            self._objects.purged = self._purged
        return self._objects

    def close(self) -> None:
        """Let go of what was opened; it is opened again when needed."""
        self.refs.log.close()
        if self._objects is not None:
            self._objects.close()
            self._objects = None

    @property
    def stat_cache(self) -> Path | None:
        """Where ingest keeps what it knows of unchanged files; None where it cannot."""
        return self.root / "cache" / "stat" if self.backend.local else None

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Keep gc from sweeping: held from before the first look for known content to the record.

        What was purged until then is not stored.

        Raises:
            BusyError: A gc sweeps for longer than `LOCK_TIMEOUT`.
        """
        local = self.backend.local
        with (
            nullcontext()
            if local is None
            else locking.shared(local.root / "locks" / "publish", LOCK_TIMEOUT)
        ):
            self.heed_purges()
            yield

    def heed_purges(self) -> None:
        """Let the objects know what was purged, and why, as the catalogue says now."""
        self.refs.refresh()
        self.heed(self.refs)

    def heed(self, refs: Refs) -> None:
        """Let the objects know what was purged, and why, as some names say that were read."""
        self.purges = tuple(refs.purges())
        self._purged = {purge.digest: purge.told for purge in self.purges}
        if self._objects is not None:
            self._objects.purged = self._purged

    def sweeping(self) -> AbstractContextManager[None]:
        """Keep publishers out, while objects that nobody needs go.

        Raises:
            BusyError: One publishes for longer than `LOCK_TIMEOUT`.
        """
        local = self.backend.local
        if local is None:
            return nullcontext()
        local.make_directories(["locks"])
        return locking.exclusive(local.root / "locks" / "publish", LOCK_TIMEOUT)


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Turn what the system refuses into an error that names what was being done.

    Args:
        what: The beginning of a sentence: ``"adding skills"``.

    Raises:
        EnvironmentFailure: In place of any OSError that is not one of ours.
    """
    try:
        yield
    except CasError:
        raise
    except OSError as error:
        raise environment_failure(error, what) from error


def now() -> str:
    """Return the time in UTC, ISO 8601 with microseconds."""
    import datetime as dt  # late: start-up time

    return dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")


def user() -> str:
    """Return the name of the user that runs this, for the history."""
    import pwd  # late: start-up time

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
