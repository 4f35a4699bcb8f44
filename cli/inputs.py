"""Documents that come in a file or on standard input."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


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
