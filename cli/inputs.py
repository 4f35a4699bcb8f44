"""Documents that come in a file, on standard input or as an argument."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

_DIGITS = 600
"""Of an integer, at most: far more than any that can be kept."""


def read_json(text: str | bytes) -> Any:
    """Read a JSON document; one that says something twice is none.

    Raises:
        ValueError: It is none.
    """
    try:
        return json.loads(text, object_pairs_hook=_members, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has the member {twice!r} twice")
    return found


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"it holds an integer of {len(text)} digits")
    return int(text)


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
    except IsADirectoryError:
        from cas import RefusedError

        raise RefusedError(
            f"{source} is a directory; name a file, or - for standard input"
        ) from None
    with file:
        yield file, source
