"""A backend in memory, for tests and for trying things out."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from cas.backends.protocol import Entry, Missing, check_key, check_prefix
from cas.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from cas.backends.protocol import LocalFiles, Staging
    from cas.fs import Buffer


class MemoryStaging:
    """A value being written, in a buffer."""

    def __init__(self) -> None:
        """Begin empty."""
        self._content = bytearray()

    def write(self, content: Buffer) -> None:
        """Append."""
        self._content += content

    def tell(self) -> int:
        """Return how many bytes are there."""
        return len(self._content)

    def fileno(self) -> int | None:
        """Return None: there is no file."""
        return None

    def read_at(self, offset: int, length: int) -> bytes:
        """Return bytes that were written; fewer than `length` only at the end."""
        return bytes(self._content[offset : offset + length])

    def discard(self) -> None:
        """Free the buffer."""
        self._content = bytearray()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Discard."""
        self.discard()


class MemoryReader:
    """A stored value."""

    def __init__(self, content: bytes) -> None:
        """Hold the value."""
        self._content = content
        self.size = len(content)

    def read_at(self, offset: int, length: int) -> bytes:
        """Return bytes; fewer than `length` only at the end."""
        return self._content[offset : offset + length]

    def fileno(self) -> int | None:
        """Return None: there is no file."""
        return None

    def close(self) -> None:
        """Let go."""
        self._content = b""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


class MemoryBackend:
    """Values in a dict; threads may share it.

    Args:
        clock: Its own time, in ns since 1970.
    """

    def __init__(self, *, clock: Callable[[], int] = time.time_ns) -> None:
        """Begin empty."""
        self._clock = clock
        self._values: dict[str, tuple[bytes, int]] = {}
        self._lock = threading.Lock()

    @property
    def local(self) -> LocalFiles | None:
        """Return None: nothing lies on a disk."""
        return None

    def stage(self) -> MemoryStaging:
        """Begin a value."""
        return MemoryStaging()

    def put_if_absent(self, key: str, source: bytes | Staging) -> bool:
        """Create a key unless it exists; say whether it was created."""
        check_key(key)
        content = source if isinstance(source, bytes) else source.read_at(0, source.tell())
        with self._lock:
            if key in self._values:
                return False
            self._values[key] = (content, self._clock())
            return True

    def put(self, key: str, content: bytes, *, durable: bool = True) -> None:  # noqa: ARG002
        """Create or replace a key."""
        check_key(key)
        with self._lock:
            self._values[key] = (bytes(content), self._clock())

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the value of a key.

        Raises:
            Missing: There is none.
            FormatError: It is longer than `max_bytes`.
        """
        content = self._find(key)
        if max_bytes is not None and len(content) > max_bytes:
            raise FormatError(
                f"{key} has {len(content)} bytes, at most {max_bytes} are allowed", key=key
            )
        return content

    def open(self, key: str) -> MemoryReader:
        """Open the value of a key.

        Raises:
            Missing: There is none.
        """
        return MemoryReader(self._find(key))

    def list(self, prefix: str) -> Iterator[Entry]:
        """Give the keys below a prefix, sorted, as they are now."""
        check_prefix(prefix)
        with self._lock:
            found = sorted(
                Entry(key, len(content), at)
                for key, (content, at) in self._values.items()
                if key.startswith(prefix)
            )
        return iter(found)

    def delete(self, key: str) -> None:
        """Remove a key, if it is there."""
        check_key(key)
        with self._lock:
            self._values.pop(key, None)

    def now_ns(self) -> int:
        """Return the clock's time."""
        return self._clock()

    def settle(self, keys: Iterable[str]) -> None:
        """Do nothing: memory is as durable as it gets."""

    def close(self) -> None:
        """Do nothing: the values stay for as long as somebody holds this."""

    def _find(self, key: str) -> bytes:
        check_key(key)
        found = self._values.get(key)
        if found is None:
            raise Missing(f"{key} not found", key=key)
        return found[0]
