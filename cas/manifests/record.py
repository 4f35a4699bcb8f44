"""What version and seed manifests share: kind, format number and a map of checked fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cas import codec, names
from cas.digest import DIGEST_SIZE, Digest
from cas.errors import FormatError, NewerFormatError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BYTES: Final = 256 << 10
"""Bytes in a version or seed manifest, at most."""
MAX_COUNT: Final = (1 << 63) - 1
"""The highest count of files or bytes."""
MAX_PARENTS: Final = 1000
"""Parents of a version or seed, at most."""


def write_record(kind: str, number: int, body: dict[str, Any]) -> bytes:
    """Encode a manifest of this kind and format number.

    Raises:
        RefusedError: A value that has no encoding, or more than `MAX_BYTES` of them.
    """
    data = codec.encode([kind, number, body])
    if len(data) > MAX_BYTES:
        raise RefusedError(
            f"{kind} manifest of {len(data)} bytes is over the limit of {MAX_BYTES}: "
            "shorten the description or the meta"
        )
    return data


def read_record(data: bytes, kind: str, newest: int) -> dict[str, Any]:
    """Return the map of a manifest that must be of this kind.

    Raises:
        FormatError: Not canonical, or of another kind.
        NewerFormatError: Of a format above `newest`.
    """
    value = codec.decode(data, max_bytes=MAX_BYTES, max_depth=8)
    if type(value) is not list or len(value) < 2 or value[0] != kind:
        raise FormatError(f"object is not a {kind} manifest")
    check_format(value[1], kind, newest)
    if len(value) != 3 or type(value[2]) is not dict:
        raise FormatError(f"{kind} manifest is not [kind, format, fields]")
    body: dict[str, Any] = value[2]
    return body


def check_format(number: object, kind: str, newest: int) -> None:
    """Check the format number of a manifest.

    Raises:
        FormatError: Not a positive integer.
        NewerFormatError: Above `newest`.
    """
    if type(number) is not int or number < 1:
        raise FormatError(f"{kind} manifest has no format number")
    if number > newest:
        raise NewerFormatError(
            f"{kind} manifest of format {number} is newer than the {newest} known here: "
            "use a newer release of cas-store",
            format=number,
        )


class Fields:
    """The fields of a manifest's map, each taken once and checked; what is left over is refused.

    Args:
        kind: The manifest's kind, for errors.
        body: The map; it is emptied.
    """

    __slots__ = ("_body", "_kind")

    def __init__(self, kind: str, body: dict[str, Any]) -> None:
        """Take the map over."""
        self._kind = kind
        self._body = body

    def _take(self, key: str) -> Any:
        try:
            return self._body.pop(key)
        except KeyError:
            raise FormatError(f"{self._kind} manifest lacks {key!r}") from None

    def _bad(self, key: str, why: object = "has the wrong type or range") -> FormatError:
        return FormatError(f"{self._kind} manifest: {key!r}: {why}")

    def count(self, key: str, *, least: int = 0) -> int:
        """Take an integer from `least` to 2**63-1."""
        value = self._take(key)
        if type(value) is not int or not least <= value <= MAX_COUNT:
            raise self._bad(key)
        return value

    def text(self, key: str) -> str:
        """Take a text."""
        return self.name(key, lambda text: names.check_text(text, key))

    def optional_text(self, key: str) -> str | None:
        """Take a text or None."""
        if self._body.get(key, "") is None:
            return self._take(key)  # type: ignore[no-any-return]
        return self.text(key)

    def name(self, key: str, check: Callable[[str], str]) -> str:
        """Take a text that `check` accepts."""
        try:
            return check(self._take(key))
        except RefusedError as error:
            raise self._bad(key, error) from None

    def optional_name(self, key: str, check: Callable[[str], str]) -> str | None:
        """Take None or a text that `check` accepts."""
        if self._body.get(key, "") is None:
            return self._take(key)  # type: ignore[no-any-return]
        return self.name(key, check)

    def digest(self, key: str) -> Digest:
        """Take a digest."""
        return self._digest(key, self._take(key))

    def digests(self, key: str) -> tuple[Digest, ...]:
        """Take a list of digests."""
        value = self._take(key)
        if type(value) is not list or len(value) > MAX_PARENTS:
            raise self._bad(key)
        return tuple(self._digest(key, item) for item in value)

    def _digest(self, key: str, value: object) -> Digest:
        if type(value) is not bytes or len(value) != DIGEST_SIZE:
            raise self._bad(key)
        return Digest(value)

    def texts(self, key: str) -> dict[str, str]:
        """Take a map from text to text."""
        value = self.mapping(key)
        for name, text in value.items():
            try:
                names.check_text(name, "key")
                names.check_text(text, "value")
            except RefusedError as error:
                raise self._bad(key, error) from None
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """Take a map; what it holds is for the caller to check."""
        value = self._take(key)
        if type(value) is not dict:
            raise self._bad(key)
        return value

    def finish(self) -> None:
        """Refuse fields that nobody took: another format would say so."""
        if self._body:
            raise FormatError(f"{self._kind} manifest has unknown field {min(self._body)!r}")
