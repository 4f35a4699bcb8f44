"""Putting staged files in place beside the work of the thread that stages more of them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Any

THREADS: Final = 4
"""Syncs that may wait for the disk at the same time: a journal commits them together."""
OUTSTANDING: Final = 6
"""Jobs that may be begun and not finished; each holds on to a staged file."""

T = TypeVar("T")


class Placing:
    """Runs jobs in threads. What a job leads to happens in the caller's thread, in order."""

    def __init__(self) -> None:
        """Start no thread before there is a job."""
        self._pool: ThreadPoolExecutor | None = None
        self._begun: deque[tuple[Future[Any], Callable[[Any], None]]] = deque()

    @property
    def idle(self) -> bool:
        """Whether no job is begun."""
        return not self._begun

    def submit(self, job: Callable[[], T], then: Callable[[T], None]) -> None:
        """Begin a job; waits for the oldest if too many are begun.

        Args:
            job: Runs in a thread.
            then: Runs in the caller's thread, at some later `submit` or `drain`, with the result.

        Raises:
            BaseException: What an earlier job raised.
        """
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # late: start-up time

            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="cas-placing")
        self._begun.append((self._pool.submit(job), then))
        while len(self._begun) > OUTSTANDING or (self._begun and self._begun[0][0].done()):
            self._finish()

    def drain(self) -> None:
        """Wait for all jobs.

        Raises:
            BaseException: What the first job that failed raised.
        """
        while self._begun:
            self._finish()

    def close(self) -> None:
        """Wait for the jobs that run, and forget what they lead to."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._begun.clear()

    def _finish(self) -> None:
        job, then = self._begun.popleft()
        then(job.result())
