"""Documents that come in a file, on standard input or in an option."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO


@contextmanager
def opened(source: str) -> Iterator[tuple[BinaryIO, str]]:
    """Give a file that was named, or standard input for `-`, and what to call it in messages.

    Raises:
        NotFoundError: There is no such file.
    """
    if source == "-":
        yield sys.stdin.buffer, "standard input"
        return
    try:
        file = open(source, "rb")  # noqa: SIM115 - closed below; only opening is watched
    except FileNotFoundError:
        from cas import NotFoundError

        raise NotFoundError(f"{source} not found; name a file, or - for standard input") from None
    with file:
        yield file, source


def parsed(text: str | bytes) -> Any:
    """Read one JSON document.

    Raises:
        ValueError: It is none.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
