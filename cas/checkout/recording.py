"""Recording what was written into a workspace's memory."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cas import fs
from cas.statindex import COARSE_NS, FIELDS, Run, StatIndexWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cas.manifests import Entry

INDEX: Final = b"index-"
CLOCK: Final = b"clock"
_PATIENCE_S: Final = 3.0
_BUFFER: Final = 1 << 17


class IndexFile:
    """A new stat index in a workspace's memory, for runs in walk order.

    Args:
        memory: A descriptor of the memory folder.

    Attributes:
        name: The file's name.
        newest: The latest time of any file recorded, in ns.
    """

    def __init__(self, memory: int) -> None:
        """Create the file under a new name."""
        self.name = INDEX + os.urandom(4).hex().encode()
        self.newest = 0
        self._memory = memory
        self._fd = fs.create_excl(self.name, 0o666, dir_fd=memory)
        self._buffer = bytearray()
        self._writer = StatIndexWriter(self)

    def write(self, data: bytes) -> None:
        """Take bytes of the index, from its writer."""
        self._buffer += data
        if len(self._buffer) >= _BUFFER:
            self._flush()

    def _flush(self) -> None:
        fs.write_all(self._fd, self._buffer)
        self._buffer.clear()

    def add(self, folder: bytes, entries: Sequence[Entry], stats: list[int]) -> None:
        """Record entries whose content was just checked.

        Their stats are recorded as proof of it. They are one only if a later change is sure to
        show in the stat: see `wait`.

        Args:
            folder: Their folder's path.
            entries: At most `MAX_RUN`, a directory only as the last.
            stats: Five numbers an entry; zeros for a directory, and for what is no proof.
        """
        newest = max(max(stats[1::FIELDS]), max(stats[2::FIELDS]))
        self.newest = max(self.newest, newest)
        self._writer.add_run(
            Run(
                folder,
                newest + COARSE_NS,
                [entry[0] for entry in entries],
                "".join([entry[1] for entry in entries]),
                stats,
                b"".join([entry[3] for entry in entries]),
            )
        )

    def add_run(self, run: Run) -> None:
        """Record a run of an older index as it is."""
        self._writer.add_run(run)

    def finish(self, *, durable: bool) -> None:
        """Write the end and close the file."""
        try:
            self._writer.finish()
            self._flush()
            if durable:
                fs.fsync(self._fd)
        finally:
            self.close()

    def close(self) -> None:
        """Close the file, finished or not."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def wait(self) -> None:
        """Return when the filesystem's clock has passed the latest time recorded.

        From then on every change gives a file another time than the recorded one. It takes one
        tick of that clock at most, some milliseconds (two seconds on FAT).
        """
        pass_time(self._memory, self.newest)


def pass_time(memory: int, newest: int) -> int:
    """Return the filesystem's clock when it is past a time, in ns.

    A clock that was set back is not waited for: times that it gives again are other ones.

    Args:
        memory: A descriptor of a folder that a file may be made in.
        newest: The time, in ns.
    """
    until = time.monotonic() + _PATIENCE_S
    while True:
        fd = fs.create_excl(CLOCK, 0o600, dir_fd=memory)
        try:
            now = os.fstat(fd).st_ctime_ns
        finally:
            os.close(fd)
            fs.unlink(CLOCK, dir_fd=memory)
        if now > newest or time.monotonic() > until:
            return now
        time.sleep(0.001)


def now() -> str:
    """Return the time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
