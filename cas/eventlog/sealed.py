"""Sealed values, as records, snapshots and hints are: an encoding followed by its digest."""

from __future__ import annotations

from typing import Any

from cas.codec import decode_trusted, encode
from cas.digest import DIGEST_SIZE, raw_hash
from cas.errors import FormatError, NewerFormatError

FORMAT = 1
"""Number of the log's format, in every sealed value."""


def seal(kind: str, *fields: Any) -> bytes:
    """Return the bytes of a value: the encoding of ``[kind, format, *fields]`` and its digest.

    Raises:
        RefusedError: A field cannot be encoded.
    """
    body = encode([kind, FORMAT, *fields])
    return body + raw_hash(body)


def unseal(sealed: bytes, kind: str, count: int) -> list[Any]:
    """Return the fields of a sealed value.

    Args:
        sealed: Its bytes.
        kind: The kind that it must be of.
        count: How many fields that kind has.

    Raises:
        FormatError: Cut, changed, or of another kind.
        NewerFormatError: Written by a newer version of this package.
    """
    body = sealed[:-DIGEST_SIZE]
    if len(sealed) <= DIGEST_SIZE or raw_hash(body) != sealed[-DIGEST_SIZE:]:
        raise FormatError("its checksum does not fit")
    value = decode_trusted(body)
    if not isinstance(value, list) or len(value) < 2 or value[0] != kind:
        raise FormatError(f"it is not a {kind}")
    if value[1] != FORMAT:
        if isinstance(value[1], int) and value[1] > FORMAT:
            raise NewerFormatError(
                f"a {kind} of format {value[1]} was written by a newer version, which this one "
                f"cannot read (it knows format {FORMAT}); update cas-store",
                format=value[1],
            )
        raise FormatError(f"{kind} of unknown format {value[1]!r}")
    if len(value) != count + 2:
        raise FormatError(f"a {kind} of {len(value) - 2} fields, not {count}")
    return value[2:]
