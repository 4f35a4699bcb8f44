"""Fields of events of the learning log, checked as they are taken out."""

from __future__ import annotations

from typing import Any

from cas.digest import DIGEST_SIZE
from cas.errors import FormatError, RefusedError
from cas.learning.document import decode_document, encode_document
from cas.learning.ids import check_id

Event = dict[str, Any]

MOST: int = (1 << 63) - 1


def id_of(event: Event, field: str, what: str) -> str:
    """Return an id.

    Raises:
        NameRefusedError: It is none.
    """
    return check_id(event.get(field), what)


def text_of(event: Event, field: str) -> str:
    """Return a text.

    Raises:
        RefusedError: It is none.
    """
    value = event.get(field)
    if not isinstance(value, str):
        raise RefusedError(f"the event {event['type']} has no text {field}", field=field)
    return value


def number_of(event: Event, field: str) -> int:
    """Return an integer from 0 to 2^63-1.

    Raises:
        RefusedError: It is none.
    """
    value = event.get(field)
    if type(value) is not int or not 0 <= value <= MOST:
        raise RefusedError(f"the event {event['type']} has no number {field}", field=field)
    return value


def digest_of(event: Event, field: str = "digest") -> bytes:
    """Return a digest.

    Raises:
        RefusedError: It is none.
    """
    value = event.get(field)
    if not isinstance(value, bytes) or len(value) != DIGEST_SIZE:
        raise RefusedError(f"the event {event['type']} has no digest", field=field)
    return value


def document_of(event: Event, field: str, *, max_bytes: int) -> Any:
    """Return a document, which the event holds as the bytes of `encode_document`.

    Raises:
        RefusedError: It is none, or not written as it has to be.
    """
    encoded = event.get(field)
    if isinstance(encoded, bytes) and len(encoded) <= max_bytes:
        try:
            value = decode_document(encoded)
        except FormatError:
            pass
        else:
            if encode_document(value, field, max_bytes=max_bytes) == encoded:
                return value
    raise RefusedError(f"the event {event['type']} has no document {field}", field=field)


def map_of(event: Event, field: str, *, max_bytes: int) -> dict[str, Any]:
    """Return a document that is a map.

    Raises:
        RefusedError: It is none.
    """
    value = document_of(event, field, max_bytes=max_bytes)
    if not isinstance(value, dict):
        raise RefusedError(f"{field} of the event {event['type']} is no map", field=field)
    return value
