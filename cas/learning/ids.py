"""The grammar of the names on the learning side: candidates, kinds, owners, drafts, reports."""

from __future__ import annotations

from typing import Any, Final

from cas.errors import NameRefusedError

MAX_ID: Final = 200
"""Characters of an id, at most."""
MAX_BYTES: Final = 400
"""Bytes of an id in UTF-8, at most."""
MAX_FILE_ID: Final = 200
"""Bytes of an id that becomes a file name on export, at most."""


def check_id(text: Any, what: str) -> str:
    """Return an id: 1 to 200 characters of Unicode, at most 400 bytes, no control characters.

    Halves of surrogate pairs are no characters.

    Args:
        text: The id.
        what: What it names, for the error: ``"candidate"``.

    Raises:
        NameRefusedError: Not in the grammar.
    """
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_ID or not _plain(text):
        raise NameRefusedError(
            f"{ascii(text)[:80]} is not the name of a {what}: use 1 to {MAX_ID} characters, "
            f"at most {MAX_BYTES} bytes, no control characters",
            name=text if isinstance(text, str) else repr(text),
        )
    return text


def check_file_id(name: Any, what: str) -> str:
    """Return an id that an export makes a file name of: also no ``/``, not beginning with a dot.

    Raises:
        NameRefusedError: Not in the grammar.
    """
    text = check_id(name, what)
    if "/" in text or text.startswith(".") or len(text.encode()) > MAX_FILE_ID:
        raise NameRefusedError(
            f"{ascii(text)[:80]} is not the name of a {what}: use at most {MAX_FILE_ID} bytes "
            "without '/', not beginning with '.'",
            name=text,
        )
    return text


def _plain(text: str) -> bool:
    if text.isascii():
        return text.isprintable()
    if any(
        ord(char) < 32 or 127 <= ord(char) < 160 or 0xD800 <= ord(char) < 0xE000 for char in text
    ):
        return False
    return len(text.encode()) <= MAX_BYTES
