"""Sharing a stream of tasks between this process and worker processes, results in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from cas import workers as processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

T = TypeVar("T")

_WINDOW: Final = 3
"""Tasks that a worker is given ahead, so that it need not wait for this process."""
_PENDING: Final = 64
"""Results that are held, at most, until the one before them comes."""
_PAYS: Final = 1500
"""Weight from which starting workers pays; starting one costs as much as that."""

_DONE: Final = object()


class _Slot(Generic[T]):
    """A task that was given out."""

    __slots__ = ("context", "done", "reply", "weight")

    def __init__(self, context: T, weight: int) -> None:
        self.context = context
        self.weight = weight
        self.done = False
        self.reply: Any = None


class Crew:
    """This process and, where it pays, workers; a context manager that ends them.

    This process takes a task itself whenever every worker has enough to do. So it is one of the
    crew, and where there is nobody else it does everything.

    Args:
        own: Does a task here: from a message to its reply.
        target: "package.module:factory" of the function that does it in a worker.
        init: The factory's argument.
        size: How many processes there may be, this one included.
        expected: Weight of all that will come, if known: workers start at once if it is much.
    """

    def __init__(
        self,
        own: Callable[[Any], Any],
        target: str,
        init: Any,
        *,
        size: int,
        expected: int | None = None,
    ) -> None:
        """Start workers if it is known that they pay."""
        self._own = own
        self._target = target
        self._init = init
        self._size = size
        self._seen = 0
        self._workers: list[processes.Worker] = []
        self._given: list[deque[_Slot[Any]]] = []
        if expected is not None and expected >= _PAYS:
            self._start()

    def _start(self) -> None:
        try:
            while len(self._workers) < self._size - 1:
                self._workers.append(processes.Worker(self._target, self._init))
                self._given.append(deque())
        except BaseException:
            self._kill()
            raise

    def map(
        self, tasks: Iterable[tuple[T, Any, int | None]], meanwhile: Iterable[None] = ()
    ) -> Iterator[tuple[T, Any]]:
        """Do tasks and yield their results in the order of the tasks.

        Args:
            tasks: What the caller knows a task by, its message, and its weight, 1 being about the
                work on one small file, or None if it is for this process alone. They are asked for
                as the crew gets to them.
            meanwhile: Other work for this process alone, a step at a time. It comes before tasks
                that workers may get to, and is always done to its end.

        Raises:
            CasError: What doing a task raised; the rest is not done.
        """
        pending: deque[_Slot[T]] = deque()
        steps = iter(meanwhile)
        for context, message, weight in tasks:
            slot = _Slot(context, weight or 0)
            pending.append(slot)
            self._seen += slot.weight
            if not self._workers and self._size > 1 and self._seen >= _PAYS:
                self._start()
            while weight is None or not self._give(slot, message):
                if weight is None or next(steps, _DONE) is _DONE:
                    slot.reply = self._own(message)
                    slot.done = True
                    break
                self._collect(0)
            self._collect(0)
            while pending and (pending[0].done or len(pending) > _PENDING):
                yield self._first(pending)
        for _ in steps:
            self._collect(0)
        while pending:
            yield self._first(pending)

    def _give(self, slot: _Slot[Any], message: Any) -> bool:
        """Send a task to the worker that has least to do; False if all have enough."""
        free = [
            (sum(given.weight for given in queue), at)
            for at, queue in enumerate(self._given)
            if len(queue) < _WINDOW
        ]
        if not free:
            return False
        at = min(free)[1]
        self._workers[at].send(message)
        self._given[at].append(slot)
        return True

    def _first(self, pending: deque[_Slot[T]]) -> tuple[T, Any]:
        slot = pending[0]
        while not slot.done:
            self._collect(None)
        pending.popleft()
        return slot.context, slot.reply

    def _collect(self, timeout: float | None) -> None:
        busy = [worker for worker, queue in zip(self._workers, self._given, strict=True) if queue]
        if busy:
            for worker in processes.wait(busy, timeout):
                slot = self._given[self._workers.index(worker)].popleft()
                slot.reply = worker.receive()
                slot.done = True

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the workers: their work is done, or not wanted any more."""
        self._kill()
