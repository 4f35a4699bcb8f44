"""Canonical MessagePack: one encoding for one value. The only import of msgpack.

The values are None, bool, integers from -2**63 to 2**64-1, finite floats, text, bytes, lists, and
maps from text. Every value has exactly one encoding (`docs/format.md`), so equal values have equal
digests, and bytes that are not that encoding are refused rather than understood.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgpack  # type: ignore[import-untyped]

from cas.errors import FormatError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BYTES: Final = 64 << 20
"""Default limit on the bytes of one encoded value."""
MAX_DEPTH: Final = 32
"""Default limit on how deep lists and maps nest."""

_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 64) - 1

_CONTAINERS: Final = frozenset((list, dict))

# A C packer holds the interpreter's lock from start to end and clears itself after an error, so
# one serves all threads.
_pack: Final[Callable[[Any], bytes]] = msgpack.Packer(use_bin_type=True, autoreset=True).pack

# A float64 that is infinite or no number, if these bytes are a float64 at all.
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def encode(value: Any, *, max_depth: int = MAX_DEPTH) -> bytes:
    """Return the canonical encoding of `value`.

    Args:
        value: Made of the types above; a tuple is taken as a list.
        max_depth: How deep lists and maps may nest.

    Raises:
        RefusedError: A value of another type, out of range, not finite, text that is not valid
            UTF-8 (lone surrogates), a key that is not text, or nested too deep.
    """
    return encode_plain(_ordered(value, max_depth))


def encode_plain(value: Any) -> bytes:
    """Return the canonical encoding of a value that holds no maps and no floats.

    The fast path: types are checked by the encoder only, depth is not.

    Raises:
        RefusedError: As for `encode`.
    """
    try:
        return _pack(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise RefusedError(f"value cannot be encoded: {error}") from None


def _ordered(value: Any, depth: int) -> Any:
    """Check a value and return it with every map in order of its keys."""
    kind = type(value)
    if value is None or kind in (bool, str, bytes):
        return value
    if kind is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise RefusedError(f"integer {value} does not fit into 64 bits")
        return value
    if kind is float:
        if not math.isfinite(value):
            raise RefusedError(f"{value} is not a finite number")
        return value
    if kind in (list, tuple, dict):
        if depth <= 0:
            raise RefusedError("value is nested too deep")
        if kind is not dict:
            return [_ordered(item, depth - 1) for item in value]
        for key in value:
            if type(key) is not str:
                raise RefusedError(f"a map's keys are text, not {type(key).__name__}")
        # Code point order is the order of the UTF-8 bytes.
        return {key: _ordered(value[key], depth - 1) for key in sorted(value)}
    if isinstance(value, bytes):
        return bytes(value)
    raise RefusedError(f"a value of type {kind.__name__} cannot be encoded")


def decode(data: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> Any:
    """Return the value that `data` is the canonical encoding of.

    No memory is taken for what `data` claims before it is known to be there.

    Raises:
        FormatError: Longer than `max_bytes`, nested deeper than `max_depth`, or not exactly the
            canonical encoding of one value.
    """
    value = _unpack(data, max_bytes, use_list=True, pairs=_canonical_map)
    _check_depth(value, max_depth)
    if _NOT_FINITE.search(data) is not None:
        _check_finite(value)
    _check_canonical(value, data)
    return value


def decode_rows(data: bytes, *, max_bytes: int) -> Any:
    """Return the value of a canonical encoding without maps and floats, with tuples for lists.

    The fast path for large regular tables. Depth, and the absence of floats, is left to the
    caller, who knows the only shape that it takes.

    Raises:
        FormatError: As for `decode`; also for a map.
    """
    value = _unpack(data, max_bytes, use_list=False, pairs=_refuse_map)
    _check_canonical(value, data)
    return value


def decode_trusted(data: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> Any:
    """Return the value of bytes that this package wrote and whose checksum was just checked.

    Raises:
        FormatError: As for `decode`, but an encoding that is not canonical is not noticed.
    """
    value = _unpack(data, max_bytes, use_list=True, pairs=None)
    _check_depth(value, max_depth)
    return value


def decode_sealed(data: bytes) -> Any:
    """Return the value of small bytes out of a value that `decode_trusted` gave.

    The fast path for listings of thousands of manifests: nothing is checked but that the bytes
    are MessagePack.

    Raises:
        FormatError: They are not.
    """
    try:
        return msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise FormatError(f"bytes are not MessagePack of the kind used here: {error}") from None


def _unpack(data: bytes, max_bytes: int, *, use_list: bool, pairs: Any) -> Any:
    size = len(data)
    if size > max_bytes:
        raise FormatError(f"encoded value of {size} bytes is over the limit of {max_bytes}")
    try:
        # Walks the encoding without building anything: after it, every length that the bytes
        # declare is known to be backed by bytes.
        walker = msgpack.Unpacker(None, max_buffer_size=max(size, 1), read_size=max(size, 1))
        walker.feed(data)
        walker.skip()
        if walker.tell() != size:
            raise FormatError("bytes follow the encoded value")
        # A timestamp becomes a float here, which the comparison of encodings then refuses.
        return msgpack.unpackb(
            data,
            use_list=use_list,
            timestamp=1,
            object_pairs_hook=pairs,
            ext_hook=_refuse_extension,
        )
    except (ValueError, TypeError, OverflowError, msgpack.exceptions.UnpackException) as error:
        if isinstance(error, FormatError):
            raise
        cause = str(error) or type(error).__name__
        raise FormatError(f"bytes are not MessagePack of the kind used here: {cause}") from None


def _refuse_extension(code: int, data: bytes) -> NoReturn:
    raise FormatError(f"extension type {code} ({len(data)} bytes) is not used here")


def _refuse_map(pairs: list[tuple[Any, Any]]) -> NoReturn:
    raise FormatError(f"a map of {len(pairs)} keys where none may be")


def _canonical_map(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    keys = [key for key, _ in pairs]
    if set(map(type, keys)) - {str}:
        raise FormatError("a map has a key that is not text")
    if len(value) != len(keys) or keys != sorted(keys):
        raise FormatError("a map has keys out of order or twice")
    return value


def _check_canonical(value: Any, data: bytes) -> None:
    try:
        canonical = _pack(value)
    except (TypeError, ValueError, OverflowError):
        canonical = b""
    if canonical != data:
        raise FormatError("encoding is not canonical")


def _check_depth(value: Any, max_depth: int) -> None:
    level: list[Any] = [value] if type(value) in _CONTAINERS else []
    depth = 0
    while level:
        depth += 1
        if depth > max_depth:
            raise FormatError(f"encoded value is nested deeper than {max_depth}")
        below: list[Any] = []
        for outer in level:
            items = outer.values() if type(outer) is dict else outer
            # Most lists hold no other: their types are told without a step of Python for each.
            if not _CONTAINERS.isdisjoint(map(type, items)):
                below += [item for item in items if type(item) in _CONTAINERS]
        level = below


def _check_finite(value: Any) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        if type(item) is float and not math.isfinite(item):
            raise FormatError("a number is infinite or not a number")
        if type(item) is list:
            stack.extend(item)
        elif type(item) is dict:
            stack.extend(item.values())
