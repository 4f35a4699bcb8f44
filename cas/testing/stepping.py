"""A backend whose every call waits for its turn, to interleave writers at will.

Each actor runs in its own thread, but only one thread runs at a time: an actor stops before each
call to the backend until the test lets it go on, and the test says how the call ends. So an actor
can be left standing for as long as the test likes, lose the acknowledgement of what it did, or die.
"""

from __future__ import annotations

import threading
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from cas.errors import DiskFullError, EnvironmentFailure, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cas.backends import Backend, Entry, LocalFiles, Reader, Staging

_PATIENCE: Final = 60.0


class Order(Enum):
    """How a call to the backend ends."""

    GO = auto()
    """As it should."""
    FAIL = auto()
    """With an error, and nothing is done."""
    FULL = auto()
    """With a full disk, and nothing is done."""
    LOSE = auto()
    """With an error, although it was done."""
    DIE = auto()
    """Not at all: the actor dies before it."""
    DIE_AFTER = auto()
    """Not at all: the actor dies when it was done."""


class Died(BaseException):
    """Ends the thread of an actor that dies; nothing may catch it."""


class Actor:
    """Something that uses the backend, one call at a time.

    Args:
        work: What it does.

    Attributes:
        call: The call that it stands before: the method's name and its key; None when it is done.
        orders: How its calls ended so far, apart from `Order.GO`.
        result: What `work` returned.
        error: What it raised.
        died: Whether it was told to.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        """Run up to the first call."""
        self.call: tuple[str, str] | None = ("", "")
        self.orders: list[tuple[Order, str, str]] = []
        self.result: Any = None
        self.error: BaseException | None = None
        self.died = False
        self._work = work
        self._order = Order.GO
        self._mine = threading.Semaphore(0)
        self._tests = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._wait(self._tests)

    @property
    def done(self) -> bool:
        """Whether it came to its end."""
        return self.call is None

    def step(self, order: Order = Order.GO) -> None:
        """Let it make the call that it stands before, and run up to the next."""
        if self.call is None:
            return
        if order is not Order.GO:
            self.orders.append((order, *self.call))
        self._order = order
        self._mine.release()
        self._wait(self._tests)
        if self.done:
            self._thread.join(_PATIENCE)

    def finish(self) -> None:
        """Let it run to its end."""
        while not self.done:
            self.step()

    def kill(self) -> None:
        """Let it die where it stands."""
        self.step(Order.DIE)

    def pause(self, method: str, key: str) -> Order:
        """Stand before a call until the test says how it ends; called in the actor's thread."""
        self.call = (method, key)
        self._tests.release()
        self._wait(self._mine)
        if self._order is Order.DIE:
            raise Died
        return self._order

    def _run(self) -> None:
        _here.actor = self
        try:
            self.result = self._work()
        except Died:
            self.died = True
        except BaseException as error:  # noqa: BLE001 - the test looks at whatever it was
            self.error = error
        self.call = None
        self._tests.release()

    def _wait(self, turn: threading.Semaphore) -> None:
        if not turn.acquire(timeout=_PATIENCE):
            raise AssertionError("an actor does not come to its next call")


_here = threading.local()


def take_turn(method: str, key: str, call: Callable[[], Any]) -> Any:
    """Make a call when it is its actor's turn, and end it as ordered."""
    actor: Actor | None = getattr(_here, "actor", None)
    if actor is None:
        return call()
    order = actor.pause(method, key)
    if order is Order.FAIL:
        raise EnvironmentFailure(f"{method} {key}: input/output error, as ordered")
    if order is Order.FULL:
        raise DiskFullError(f"{method} {key}: no space left on device, as ordered")
    result = call()
    if order is Order.DIE_AFTER:
        raise Died
    if order is Order.LOSE:
        raise EnvironmentFailure(f"{method} {key}: acknowledgement lost, as ordered")
    return result


class SteppingBackend:
    """A backend in which actors take turns; calls from other threads go straight through.

    Args:
        inner: What does the calls.
    """

    def __init__(self, inner: Backend) -> None:
        """Wrap a backend."""
        self.inner = inner

    @property
    def local(self) -> LocalFiles | None:
        """What the wrapped backend offers; calls to it take no turn."""
        return self.inner.local

    def stage(self) -> Staging:
        """Begin a value."""
        return self.inner.stage()

    def put_if_absent(self, key: str, source: bytes | Staging) -> bool:
        """Create a key unless it exists."""
        return bool(take_turn("put_if_absent", key, lambda: self.inner.put_if_absent(key, source)))

    def put(self, key: str, content: bytes, *, durable: bool = True) -> None:
        """Create or replace a key."""
        take_turn("put", key, lambda: self.inner.put(key, content, durable=durable))

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the value of a key."""
        value = take_turn("get", key, lambda: self.inner.get(key, max_bytes=max_bytes))
        assert isinstance(value, bytes)
        return value

    def open(self, key: str) -> Reader:
        """Open the value of a key."""
        reader: Reader = take_turn("open", key, lambda: self.inner.open(key))
        return reader

    def list(self, prefix: str) -> Iterator[Entry]:
        """Give the keys below a prefix, as they are at one moment."""
        entries = take_turn("list", prefix, lambda: sorted(self.inner.list(prefix)))
        yield from entries

    def delete(self, key: str) -> None:
        """Remove a key."""
        take_turn("delete", key, lambda: self.inner.delete(key))

    def now_ns(self) -> int:
        """Return the wrapped backend's time."""
        return self.inner.now_ns()

    def settle(self, keys: Iterable[str]) -> None:
        """Make keys durable."""
        settled = sorted(keys)
        take_turn("settle", settled[0] if settled else "", lambda: self.inner.settle(settled))


class PowerCutBackend:
    """A backend in memory that tells what is there from what survives a power cut.

    A key is seen as soon as it is created, but is durable only when the call that created it ends,
    or another one syncs its directory. A deleted key may come back. `put` without `durable` may
    leave anything. Between creating and syncing, an actor takes another turn.
    """

    def __init__(self, inner: Backend) -> None:
        """Wrap an empty backend in memory."""
        self.inner = inner
        self._durable: dict[str, bytes] = {}
        self._hints: dict[str, bytes | None] = {}

    @property
    def local(self) -> LocalFiles | None:
        """Return None: nothing lies on a disk."""
        return None

    def stage(self) -> Staging:
        """Begin a value."""
        return self.inner.stage()

    def put_if_absent(self, key: str, source: bytes | Staging) -> bool:
        """Create a key unless it exists, then sync its directory."""
        created = self.inner.put_if_absent(key, source)
        if created:
            take_turn("sync", key, lambda: self.settle([key]))
        return created

    def put(self, key: str, content: bytes, *, durable: bool = True) -> None:
        """Create or replace a key."""
        before = self._get(key)
        self.inner.put(key, content, durable=durable)
        if durable:
            self._durable[key] = content
            self._hints.pop(key, None)
        else:
            self._hints.setdefault(key, before)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the value of a key."""
        return self.inner.get(key, max_bytes=max_bytes)

    def open(self, key: str) -> Reader:
        """Open the value of a key."""
        return self.inner.open(key)

    def list(self, prefix: str) -> Iterator[Entry]:
        """Give the keys below a prefix."""
        return self.inner.list(prefix)

    def delete(self, key: str) -> None:
        """Remove a key; a power cut may bring it back."""
        self.inner.delete(key)

    def now_ns(self) -> int:
        """Return the wrapped backend's time."""
        return self.inner.now_ns()

    def settle(self, keys: Iterable[str]) -> None:
        """Make durable what the directories of keys hold, deletions included."""
        for directory in {key.rpartition("/")[0] + "/" for key in keys}:
            there = {entry.key for entry in self.inner.list(directory)}
            for key in [key for key in self._durable if key.startswith(directory)]:
                if key not in there:
                    del self._durable[key]
            for key in there:
                self._durable[key] = self.inner.get(key)

    def cut(self, choose: Callable[[Sequence[bytes | None]], bytes | None]) -> None:
        """Lose what a power cut may lose.

        Args:
            choose: Picks what is left of a key among what may be: a value, or None for no key.
        """
        seen = {entry.key for entry in self.inner.list("")}
        for key in sorted(seen | self._durable.keys()):
            now = self._get(key)
            if key in self._hints:
                before = self._hints[key]
                left = choose([now, before, None, b"", (now or b"")[:-1]])
            elif now == self._durable.get(key):
                continue
            else:
                left = choose([now, self._durable.get(key)])
            if left is None:
                self.inner.delete(key)
            else:
                self.inner.put(key, left)
        self._hints.clear()
        self._durable = {entry.key: self.inner.get(entry.key) for entry in self.inner.list("")}

    def _get(self, key: str) -> bytes | None:
        try:
            return self.inner.get(key)
        except NotFoundError:
            return None
