"""Faults at a chosen step of whatever goes through `cas.fs`.

    for injection in faults.every_crash():
        with injection:
            operation()
        ...  # what a process that was killed there must have left

A step is one call of a function that changes the disk. One injection is active at a time; it
counts the calls of all threads.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self

from cas import fs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from types import TracebackType

CHANGES: Final = frozenset(
    {
        "allocate",
        "ask_time",
        "chown_group",
        "clone",
        "copy_range",
        "create_excl",
        "exchange",
        "fsync",
        "fsync_dir",
        "link",
        "link_fd",
        "mkdir",
        "open_tmpfile",
        "pwrite",
        "rename",
        "rename_noreplace",
        "rmdir",
        "set_mode",
        "set_times",
        "symlink",
        "sync_filesystem",
        "touch",
        "truncate",
        "unlink",
        "write",
    }
)
"""The functions of `cas.fs` that change a disk in one step."""

LOOKS: Final = frozenset({"open_dir", "open_read", "open_write", "pread", "read", "readlink"})
"""Those that only look."""

WRITES: Final = frozenset({"pwrite", "write"})
"""Those of `CHANGES` that can take effect by half."""


class SimulatedCrash(BaseException):
    """The process is dead from here on. It derives from BaseException so that nobody handles it."""


class Call(NamedTuple):
    """One call of a counted function: its name, and ways to really do it."""

    name: str
    whole: Callable[[], Any]
    half: Callable[[], Any]
    """For a write: do it with the first half of its content. For others: do nothing."""


class Injection:
    """Watches the calls and strikes at one of them. A context manager, active inside its block.

    This one only watches.

    Args:
        at: Number of the call to strike at, from 1; None for none.
        on: Names of the functions whose calls count.
    """

    def __init__(self, at: int | None, on: Collection[str]) -> None:
        """Prepare it."""
        self.calls: list[str] = []
        """The counted functions that were called, in order."""
        self.fired = False
        """Whether it has struck."""
        self._at = at
        self._on = frozenset(on)
        self._dead = False
        self._lock = threading.Lock()
        self._real: dict[str, Callable[..., Any]] = {}
        unknown = self._on - CHANGES - LOOKS
        if unknown:
            raise ValueError(f"no functions of cas.fs to put a fault into: {sorted(unknown)}")

    def __enter__(self) -> Self:
        """Put it in place."""
        for name in sorted(CHANGES | LOOKS):
            real = getattr(fs, name)
            self._real[name] = real
            setattr(fs, name, self._watched(name, real))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Take it away. A simulated crash ends here."""
        for name, real in self._real.items():
            setattr(fs, name, real)
        return isinstance(error, SimulatedCrash)

    def strike(self, call: Call) -> Any:
        """Do what happens at the chosen call."""
        return call.whole()

    def die(self, name: str) -> NoReturn:
        """Crash, and refuse every call from now on until the block is left."""
        self._dead = True
        raise SimulatedCrash(name)

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._dead:
                self.die(name)
            if name not in self._on:
                return real(*args, **kwargs)
            with self._lock:
                self.calls.append(name)
                if len(self.calls) != self._at:
                    strike = False
                else:
                    strike = self.fired = True
            whole = functools.partial(real, *args, **kwargs)
            if not strike:
                return whole()
            return self.strike(Call(name, whole, functools.partial(_half, real, name, args)))

        return call


class _Failure(Injection):
    def __init__(self, at: int, on: Collection[str], error: int, *, effect: bool) -> None:
        super().__init__(at, on)
        self._error = error
        self._effect = effect

    def strike(self, call: Call) -> Any:
        if self._effect:
            call.whole()
        raise OSError(self._error, os.strerror(self._error))


class _ShortWrite(Injection):
    def strike(self, call: Call) -> Any:
        return call.half()


class _Crash(Injection):
    def strike(self, call: Call) -> Any:
        call.half()
        self.die(call.name)


def watch(*, on: Collection[str] = CHANGES) -> Injection:
    """Only note which functions are called."""
    return Injection(None, on)


def fail(at: int, error: int, *, on: Collection[str] = CHANGES, effect: bool = False) -> Injection:
    """Make one call fail.

    Args:
        at: Number of the call, from 1.
        error: The error number.
        on: Names of the functions whose calls count.
        effect: Do first what the call does, as when an acknowledgement is lost.
    """
    return _Failure(at, on, error, effect=effect)


def cut_short(at: int) -> Injection:
    """Make one write take only half of what it was given, and say so, as the system may."""
    return _ShortWrite(at, WRITES)


def crash(at: int, *, on: Collection[str] = CHANGES) -> Injection:
    """Kill the process at one call, as far as its effects go.

    A write is torn: half of it gets through. Any other call has no effect. Whatever the dying
    code still tries has none either.
    """
    return _Crash(at, on)


def every_crash(*, on: Collection[str] = CHANGES) -> Iterator[Injection]:
    """Give a crash at each step in turn. The last one does not strike, and the work is done."""
    return _every(lambda at: crash(at, on=on))


def every_failure(
    error: int, *, on: Collection[str] = CHANGES, effect: bool = False
) -> Iterator[Injection]:
    """Give a failure at each step in turn. The last one does not strike."""
    return _every(lambda at: fail(at, error, on=on, effect=effect))


def _every(make: Callable[[int], Injection]) -> Iterator[Injection]:
    for at in itertools.count(1):
        injection = make(at)
        yield injection
        if not injection.fired:
            return


def _half(real: Callable[..., Any], name: str, args: tuple[Any, ...]) -> Any:
    if name not in WRITES:
        return None
    fd, content, *rest = args
    view = memoryview(content).cast("B")
    return real(fd, view[: len(view) // 2], *rest)
