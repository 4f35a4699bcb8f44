"""The grammar of every name that comes from outside, and of specs.

One function checks each kind of name; nothing from outside comes near a path without it. The
grammars are specified in `docs/format.md`, "Names and specs".
"""

from __future__ import annotations

import os
import re
from typing import Final, Literal, NamedTuple

from cas.errors import NameRefusedError, RefusedError

MEMORY: Final = b".cas-workspace"
"""The folder in a workspace that holds its memory and is no content."""
MAX_ENTRY_NAME: Final = 255
"""Bytes in the name of a tree entry, at most."""
MAX_TEXT: Final = 64 << 10
"""Bytes in a free text, at most."""
MAX_RESOURCE: Final = 200
"""Characters in the name of a resource, at most."""
MAX_RESOURCE_DEPTH: Final = 8
"""Segments in the name of a resource, at most."""
MAX_PATH: Final = 64 << 10
"""Bytes in a path inside a tree, at most."""
MAX_NUMBER: Final = (1 << 63) - 1
"""The highest version number."""
MIN_PREFIX: Final = 6
"""Hex digits in a digest prefix, at least."""

_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LABEL: Final = re.compile(r"[!-\-0-~][ -.0-~]{0,99}")
_VERSION: Final = re.compile(r"v([1-9][0-9]{0,18})")
_PREFIX: Final = re.compile(r"[0-9a-f]{6,64}")
_GRAMMAR: Final = (
    "letters, digits, '.', '_' and '-', beginning with a letter or digit, "
    "not ending with '.', at most 100"
)


def _shown(name: object) -> str:
    text = ascii(os.fsdecode(name) if isinstance(name, bytes) else name)
    return text if len(text) <= 80 else text[:76] + "..." + text[-1]


def _is_text(value: object) -> bool:
    """Tell text from what a decoder or an untyped caller may hand in instead."""
    return isinstance(value, str)


def _segment(name: str, what: str) -> str:
    if not _is_text(name) or not _SEGMENT.fullmatch(name) or name.endswith("."):
        raise NameRefusedError(f"{_shown(name)} is not a {what} name: use {_GRAMMAR}", name=name)
    return name


def check_resource(name: str) -> str:
    """Return the name of a resource: one to eight segments joined by ``/``, at most 200 characters.

    Raises:
        NameRefusedError: Not in the grammar.
    """
    if not _is_text(name) or len(name) > MAX_RESOURCE:
        raise NameRefusedError(
            f"{_shown(name)} is not a resource name: use at most {MAX_RESOURCE} characters",
            name=name,
        )
    segments = name.split("/")
    if len(segments) > MAX_RESOURCE_DEPTH:
        raise NameRefusedError(
            f"{_shown(name)} is not a resource name: use at most {MAX_RESOURCE_DEPTH} segments",
            name=name,
        )
    for segment in segments:
        if not _SEGMENT.fullmatch(segment) or segment.endswith("."):
            raise NameRefusedError(
                f"{_shown(name)} is not a resource name: "
                f"use segments joined by '/', each of {_GRAMMAR}",
                name=name,
            )
    return name


def check_seed(name: str) -> str:
    """Return the name of a seed: one segment.

    Raises:
        NameRefusedError: Not in the grammar.
    """
    return _segment(name, "seed")


def check_tag(name: str) -> str:
    """Return the name of a tag: one segment.

    Raises:
        NameRefusedError: Not in the grammar.
    """
    return _segment(name, "tag")


def check_part(name: str) -> str:
    """Return the name of a part of a seed: one segment.

    Raises:
        NameRefusedError: Not in the grammar.
    """
    return _segment(name, "part")


def check_label(label: str) -> str:
    """Return the label of a seed's part: printable ASCII without ``/``, at most 100 characters.

    A label becomes the name of a folder in a workspace, so it does not begin with a dot, and a
    space may neither begin nor end it.

    Raises:
        NameRefusedError: Not in the grammar.
    """
    if not _is_text(label) or not _LABEL.fullmatch(label) or label.endswith(" "):
        raise NameRefusedError(
            f"{_shown(label)} is not a label: "
            "use printable ASCII without '/', not beginning with '.', at most 100",
            name=label,
        )
    return label


def check_run_id(run_id: str) -> str:
    """Return the id of a run: 1 to 200 characters, none of them a control character.

    Raises:
        NameRefusedError: Not in the grammar.
    """
    if (
        not _is_text(run_id)
        or not 1 <= len(run_id) <= 200
        or any(ord(char) < 32 or 127 <= ord(char) < 160 or _lone(char) for char in run_id)
    ):
        raise NameRefusedError(
            f"{_shown(run_id)} is not a run id: use 1 to 200 characters, no control characters",
            name=run_id,
        )
    return run_id


def _lone(char: str) -> bool:
    return 0xD800 <= ord(char) < 0xE000


def check_entry_name(name: bytes) -> bytes:
    """Return the name of a tree entry: 1 to 255 bytes, no NUL, no ``/``, not ``.`` or ``..``.

    Raises:
        NameRefusedError: Not in the grammar.
    """
    if (
        not 1 <= len(name) <= MAX_ENTRY_NAME
        or b"/" in name
        or b"\0" in name
        or name in (b".", b"..")
    ):
        raise NameRefusedError(f"{_shown(name)} cannot be the name of a file", name=repr(name))
    return name


def check_text(text: str, what: str, *, max_bytes: int = MAX_TEXT) -> str:
    """Return a free text (a description, a reason): valid UTF-8 without NUL, of limited length.

    Args:
        text: The text.
        what: What it is, for the error: ``"description"``.
        max_bytes: Bytes of UTF-8, at most.

    Raises:
        NameRefusedError: NUL, lone surrogates, or too long.
    """
    if not _is_text(text):
        raise NameRefusedError(f"{what} is text, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise NameRefusedError(f"{what} {_shown(text)} is not valid Unicode text") from None
    if "\0" in text:
        raise NameRefusedError(f"{what} {_shown(text)} holds a NUL character")
    if size > max_bytes:
        raise NameRefusedError(f"{what} has {size} bytes; at most {max_bytes} are kept")
    return text


def check_path(path: bytes) -> bytes:
    """Return a path inside a tree: entry names joined by single ``/``; empty for the tree itself.

    Raises:
        NameRefusedError: An empty, ``.`` or ``..`` component, or any that is no entry name.
    """
    if path:
        if len(path) > MAX_PATH:
            raise NameRefusedError(f"path of {len(path)} bytes is over the limit of {MAX_PATH}")
        for name in path.split(b"/"):
            if not name or name in (b".", b".."):
                raise NameRefusedError(
                    f"{_shown(path)} is not a path inside a tree: "
                    "'.', '..' and empty components are not followed",
                    path=os.fsdecode(path),
                )
            check_entry_name(name)
    return path


Kind = Literal["version", "seed", "tag", "digest"]


class Spec(NamedTuple):
    """What a person types to name a thing.

    Attributes:
        kind: Which form it has.
        name: The resource, seed or tag; empty for a digest.
        number: The version's number; None is the newest (and for the other kinds).
        prefix: 6 to 64 hex digits for a digest; else empty.
        path: Where inside; None if no path was given.
    """

    kind: Kind
    name: str
    number: int | None
    prefix: str
    path: bytes | None

    def __str__(self) -> str:
        """Return the text that `parse_spec` reads back as this."""
        return self.base if self.path is None else f"{self.base}:{os.fsdecode(self.path)}"

    @property
    def base(self) -> str:
        """The text without the path inside."""
        if self.kind == "version":
            return f"{self.name}@{'latest' if self.number is None else f'v{self.number}'}"
        return self.prefix if self.kind == "digest" else f"{self.kind}:{self.name}"


def parse_spec(text: str) -> Spec:
    """Read a spec: ``R@vN``, ``R@latest``, ``seed:NAME``, ``tag:NAME`` or 6 or more hex digits.

    Each may be followed by ``:path/inside``; slashes that begin or end the path are dropped.

    Raises:
        RefusedError: None of these, with a hint where one can be given.
        NameRefusedError: A name or path outside its grammar.
    """
    if not _is_text(text) or not text or "\0" in text:
        raise RefusedError(f"{_shown(text)} is not a spec: {_FORMS}", spec=text)
    for kind in _KINDS:
        if text.startswith(f"{kind}:"):
            name, path = _cut_path(text[len(kind) + 1 :])
            check = check_seed if kind == "seed" else check_tag
            return Spec(kind, check(name), None, "", path)
    base, path = _cut_path(text)
    resource, at, which = base.rpartition("@")
    if at:
        check_resource(resource)
        if which == "latest":
            return Spec("version", resource, None, "", path)
        match = _VERSION.fullmatch(which)
        if match is None or int(match[1]) > MAX_NUMBER:
            raise RefusedError(
                f"{_shown(text)} is not a spec: a version is written "
                f"{resource}@v1 or {resource}@latest",
                spec=text,
            )
        return Spec("version", resource, int(match[1]), "", path)
    if _PREFIX.fullmatch(base):
        return Spec("digest", "", None, base, path)
    raise RefusedError(f"{_shown(text)} is not a spec: {_hint(base)}", spec=text)


_KINDS: Final[tuple[Literal["seed", "tag"], ...]] = ("seed", "tag")
_FORMS: Final = "use RESOURCE@vN, RESOURCE@latest, seed:NAME, tag:NAME or 6 or more hex digits"


def _cut_path(text: str) -> tuple[str, bytes | None]:
    base, colon, rest = text.partition(":")
    if not colon:
        return base, None
    try:
        path = os.fsencode(rest)
    except UnicodeEncodeError:
        raise NameRefusedError(f"{_shown(rest)} is not a path inside a tree") from None
    return base, check_path(path.strip(b"/"))


def _hint(base: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]{1,64}", base):
        if base != base.lower():
            return "the digits of a digest are lowercase"
        if len(base) < MIN_PREFIX:
            return (
                f"a digest prefix has {MIN_PREFIX} or more digits; or did you mean {base}@latest?"
            )
    try:
        check_resource(base)
    except NameRefusedError:
        return _FORMS
    return f"did you mean {base}@latest?"
