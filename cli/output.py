"""Text for people and JSON for scripts, made in one way for all commands."""

import errno
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, BinaryIO, Protocol, TypeVar

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "bold": "1", "dim": "2"}
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Shown(Protocol):
    """A result of the library: it knows its own JSON."""

    def to_json(self) -> Mapping[str, Any]:
        """Return what `--json` shows."""


Item = TypeVar("Item", bound=Shown)


class Output:
    """One of the two streams, written as bytes so that no name and no locale can stop it.

    Args:
        stream: `sys.stdout` or `sys.stderr`; None, as Python has it where the stream is closed,
            swallows what is written.
    """

    def __init__(self, stream: Any) -> None:
        """Look at the stream once: is it a terminal, and may it have colours."""
        self.terminal = stream is not None and stream.isatty()
        # What was printed through the text layer before comes out before what follows.
        if stream is not None:
            stream.flush()
        self._raw: BinaryIO | None = None if stream is None else stream.buffer
        environment = os.environ
        self._colours = (
            self.terminal
            and not environment.get("NO_COLOR")
            and environment.get("TERM", "dumb") != "dumb"
        )

    def write(self, content: bytes | memoryview) -> None:
        """Write bytes as they are."""
        if self._raw is not None:
            self._raw.write(content)

    def line(self, text: str = "") -> None:
        """Write one line; bytes that Python escaped as surrogates come out as they were."""
        self.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def flush(self) -> None:
        """Hand everything to the system."""
        if self._raw is not None:
            self._raw.flush()

    def wait(self, seconds: float) -> None:
        """Let time pass, unless the reader goes away meanwhile, which a pipe tells.

        Raises:
            BrokenPipeError: It did.
        """
        if self._raw is None:
            time.sleep(seconds)
            return
        watched = select.poll()
        watched.register(self._raw.fileno(), 0)
        if watched.poll(seconds * 1000):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def paint(self, text: str, colour: str) -> str:
        """Return the text in a colour, where the stream shows colours."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._colours else text

    def path(self, path: bytes | str) -> str:
        """Return a path as it is shown: exact in a pipe, with escapes on a terminal."""
        text = path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else path
        return visible(text) if self.terminal else text

    def document(self, value: Any) -> None:
        """Write one JSON document: for eyes on a terminal, on one line in a pipe."""
        self.line(json.dumps(value, indent=2 if self.terminal else None))

    def documents(self, values: Iterable[Any]) -> None:
        """Write one JSON list, an element at a time, so that its length costs no memory."""
        opening = "["
        for value in values:
            text = json.dumps(value, indent=2 if self.terminal else None)
            self.write((opening + text).encode("ascii"))
            opening = ",\n"
        self.line("[]" if opening == "[" else "]")


def standard_output() -> Output:
    """Return what the command's result goes to."""
    return Output(sys.stdout)


def standard_error() -> Output:
    """Return what messages go to."""
    return Output(sys.stderr)


def visible(text: str) -> str:
    """Return the text with control characters and undecodable bytes as escapes, on one line."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape").decode("ascii")
        if not "\udc80" <= character <= "\udcff"
        else f"\\x{ord(character) - 0xDC00:02x}"
        for character in text
    )


def size(bytes_: int) -> str:
    """Return a size with three digits: `812 B`, `1.46 KiB`, `55.2 MiB`."""
    if bytes_ < 1024:
        return f"{bytes_} B"
    value = float(bytes_)
    for unit in _UNITS:
        value /= 1024
        if value < 999.5 or unit == _UNITS[-1]:
            break
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 file`, `1,200 files`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def files_and_size(files: int, bytes_: int) -> str:
    """Return `1,200 files, 3.4 MiB`."""
    return f"{count(files, 'file')}, {size(bytes_)}"


def when(moment: str | None) -> str:
    """Return a UTC time of the store in the reader's own time zone, to the minute."""
    if moment is None:
        return ""
    if moment.endswith("+00:00"):
        # Only the minute shows, and versions made by a machine share theirs with many others.
        return _when(moment[:16] + "+00:00") or visible(moment)
    return _when(moment) or visible(moment)


@lru_cache
def _when(moment: str) -> str:
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        # An imported layout may carry any text as its time; it is shown as it came.
        return ""


def short(digest: object) -> str:
    """Return the first digits of a digest, enough to name it in most stores."""
    return str(digest)[:12]


def title(text: str) -> str:
    """Return the first line of a description, fit for a line of a list."""
    first = text.strip().partition("\n")[0]
    return visible(first)


def table(rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> Iterator[str]:
    """Yield rows as lines with aligned columns.

    Args:
        rows: Cells of equally long rows; all of them are held in memory.
        right: Which columns are set to the right.
    """
    lines = [tuple(row) for row in rows]
    if not lines:
        return
    row = "  ".join(
        f"{{:{'>' if column in right else '<'}{max(map(len, cells))}}}"
        for column, cells in enumerate(zip(*lines, strict=True))
    )
    for line in lines:
        yield row.format(*line).rstrip()


Render = Callable[[Iterable[Item]], Iterable[str]]
"""How a command shows a list to people: items → lines."""
