"""JSON documents: what candidates, payloads and reports hold, checked when they come in.

A document is kept as the bytes of one JSON text, the same bytes for equal documents
(`docs/format.md`, "Documents"). What was accepted can always be read again.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from cas.errors import FormatError, RefusedError

MAX_DOCUMENT: Final = 1 << 20
"""Bytes of the document of a candidate, a payload or a snapshot, at most."""
MAX_REPORT: Final = 16 << 20
"""Bytes of a report, at most."""
MAX_DEPTH: Final = 64
"""How deep lists and maps of a document nest, at most."""
MAX_INTEGER_BITS: Final = 2048
"""Bits of an integer in a document, at most: what any Python can read back."""


def checked(value: Any, what: str, depth: int = MAX_DEPTH) -> Any:
    """Return a document as it will be read back: tuples as lists, halves of a character joined.

    Args:
        value: None, bool, int, float, text, lists, and maps from text, of these.
        what: What it is, for the error.
        depth: How deep it may nest.

    Raises:
        RefusedError: A value of another type, an infinity or NaN, an integer that is too large,
            or nested too deep.
    """
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _joined(value)
    if kind in (list, tuple, dict):
        if depth <= 0:
            raise RefusedError(f"{what} is nested deeper than {MAX_DEPTH}")
        if kind is dict:
            return _checked_map(value, what, depth)
        return [checked(item, what, depth - 1) for item in value]
    if kind is int and value.bit_length() > MAX_INTEGER_BITS:
        raise RefusedError(f"{what}: an integer has more than {MAX_INTEGER_BITS} bits")
    if kind is float and not math.isfinite(value):
        raise RefusedError(f"{what}: {value} is not a finite number; JSON has no word for it")
    if value is not None and kind not in (bool, int, float):
        raise RefusedError(f"{what}: a value of type {kind.__name__} is not JSON")
    return value


def _checked_map(value: dict[Any, Any], what: str, depth: int) -> dict[str, Any]:
    out = {}
    for key, item in value.items():
        if type(key) is not str:
            raise RefusedError(f"{what}: a key is of type {type(key).__name__}; use text")
        out[key if key.isascii() else _joined(key)] = checked(item, what, depth - 1)
    if len(out) != len(value):
        raise RefusedError(f"{what}: two keys are the same text")
    return out


def encode_document(value: Any, what: str, *, max_bytes: int = MAX_DOCUMENT) -> bytes:
    """Return the bytes of a document: JSON in UTF-8, keys in order, nothing between tokens.

    Text that holds half a surrogate pair, which UTF-8 cannot, is kept all the same: such a
    document is written in ASCII, with escapes.

    Args:
        value: The document.
        what: What it is, for the error.
        max_bytes: How long the result may be.

    Raises:
        RefusedError: As for `checked`, or it is too long.
    """
    ordered = checked(value, what)
    text = json.dumps(ordered, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        encoded = json.dumps(ordered, sort_keys=True, separators=(",", ":")).encode()
    if len(encoded) > max_bytes:
        raise RefusedError(
            f"{what} has {len(encoded)} bytes; at most {max_bytes} are kept",
            size=len(encoded),
            limit=max_bytes,
        )
    return encoded


def decode_document(encoded: bytes) -> Any:
    """Return the document of bytes that `encode_document` gave.

    Raises:
        FormatError: They are no such bytes.
    """
    try:
        return json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"bytes are not a JSON document: {error}") from None


def _joined(text: str) -> str:
    """Return text in which no two halves of a surrogate pair stand beside each other."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text
