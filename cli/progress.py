"""A line on the terminal that shows how far a long command is."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .output import count, size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE = 0.4
"""Seconds before anything is drawn: a quick command draws nothing and loads no `rich`."""


class Bar:
    """A progress function of the library that draws on standard error."""

    def __init__(self) -> None:
        """Draw nothing yet."""
        self._begin = self._phase_begin = time.monotonic()
        self._phase = ""
        self._drawn: Progress | None = None
        self._task: TaskID | None = None

    def __call__(
        self,
        phase: str,
        files: int,
        bytes_: int,
        total_files: int | None,
        total_bytes: int | None,
    ) -> None:
        """Show the counts of a phase; a new phase takes the place of the one before."""
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._phase_begin = phase, now
            if self._drawn is not None and self._task is not None:
                self._drawn.remove_task(self._task)
            self._task = None
        if now - self._begin < _PATIENCE:
            return
        drawn = self._drawn
        if drawn is None:
            drawn = self._drawn = _start()
        if self._task is None:
            self._task = drawn.add_task(phase, total=None, amount="", rate="")
        by_bytes = bool(total_bytes)
        rate = bytes_ / max(now - self._phase_begin, _PATIENCE)
        drawn.update(
            self._task,
            completed=bytes_ if by_bytes else files,
            total=total_bytes if by_bytes else total_files,
            amount=_amount(files, bytes_, total_files, total_bytes),
            rate=f"{size(int(rate))}/s" if bytes_ else "",
            refresh=True,
        )

    def __enter__(self) -> Self:
        """Change nothing: drawing starts with the first call that is late enough."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take the line away again, also when Ctrl-C ended the work."""
        if self._drawn is not None:
            self._drawn.stop()


def _amount(files: int, bytes_: int, total_files: int | None, total_bytes: int | None) -> str:
    done = f"{files:,} of {count(total_files, 'file')}" if total_files else count(files, "file")
    if not bytes_:
        return done
    return f"{done}, {size(bytes_)}" + (f" of {size(total_bytes)}" if total_bytes else "")


def _start() -> "Progress":
    # rich takes longer to load than most commands take to run: only a long one pays for it.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    drawn = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[amount]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
    )
    drawn.start()
    return drawn
