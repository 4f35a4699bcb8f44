"""How bulk work tells its caller how far it is."""

from __future__ import annotations

import time
from typing import Protocol

INTERVAL = 0.05
"""Least number of seconds between two calls of a progress function."""


class Progress(Protocol):
    """What a caller passes to see progress. It is called at most about 20 times a second."""

    def __call__(
        self,
        phase: str,
        files: int,
        bytes_: int,
        total_files: int | None,
        total_bytes: int | None,
    ) -> None:
        """Take note: so many files and bytes of the phase are done, out of totals if known."""


class Meter:
    """Counts what is done in one phase and passes it on, not too often.

    Args:
        progress: Whom to tell; None makes counting free of calls.
        phase: What is being done, one word: ``"ingest"``.
        total_files: How many files there are, if known.
        total_bytes: How many bytes there are, if known.
    """

    __slots__ = ("_due", "_progress", "bytes", "files", "phase", "total_bytes", "total_files")

    def __init__(
        self,
        progress: Progress | None,
        phase: str,
        *,
        total_files: int | None = None,
        total_bytes: int | None = None,
    ) -> None:
        """Start at zero; nothing is told before the first `add`."""
        self._progress = progress
        self._due = 0.0
        self.phase = phase
        self.files = 0
        self.bytes = 0
        self.total_files = total_files
        self.total_bytes = total_bytes

    def add(self, files: int = 1, bytes_: int = 0) -> None:
        """Count more as done, and tell if it is time."""
        self.files += files
        self.bytes += bytes_
        if self._progress is not None:
            now = time.monotonic()
            if now >= self._due:
                self._due = now + INTERVAL
                self._tell(self._progress)

    def finish(self) -> None:
        """Tell the final count, whatever the time."""
        if self._progress is not None:
            self._tell(self._progress)

    def _tell(self, progress: Progress) -> None:
        progress(self.phase, self.files, self.bytes, self.total_files, self.total_bytes)
