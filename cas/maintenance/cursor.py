"""Where a verification with a budget goes on: a hint, in the store's cache or in the user's.

The file holds the mark of the last unit that was proven. Losing it begins again from the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cas.backends import Missing
from cas.errors import CasError, EnvironmentFailure, FormatError

if TYPE_CHECKING:
    from cas.catalogue.context import Context

KEY: Final = "cache/verify-cursor"

_MAX_BYTES: Final = 64


def load(context: Context) -> bytes:
    """Return the mark to go on behind; empty to begin from the start."""
    try:
        return context.backend.get(KEY, max_bytes=_MAX_BYTES)
    except (Missing, FormatError, EnvironmentFailure):
        pass
    try:
        with _of_user(context).open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return b""


def save(context: Context, mark: bytes) -> None:
    """Remember a mark: in the store, or for a store that cannot be written, for this user."""
    try:
        context.backend.put(KEY, mark, durable=False)
    except CasError:
        path = _of_user(context)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(mark)
        except OSError:
            pass  # the next run begins from the start, as it would without a budget


def _of_user(context: Context) -> Path:
    return Path("~/.cache/cas").expanduser() / context.id / "verify-cursor"
