"""`.casignore`: which entries an ingest leaves out.

The grammar is that of gitignore, down to its corners, on the bytes of names; a property test holds
it against git itself. It is translated here rather than by a library because the libraries judge a
path together with everything above it. The walk knows better: it never descends into an ignored
folder, and may find a folder kept inside of which a file is not.

A pattern without a slash, or with one at its end only, is held against the name, any other against
the path below the file's folder. ``*`` and ``?`` match no slash, ``**`` between slashes any number
of folders, ``!`` takes back, a slash at the end asks for a folder. The last pattern that matches
decides, and files deeper down go before those above.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"
_NEVER = b"(?!)"
_BROKEN = -2

_CLASSES = {
    b"alnum": bytes(c for c in range(128) if bytes([c]).isalnum()),
    b"alpha": bytes(c for c in range(128) if bytes([c]).isalpha()),
    b"blank": b" \t",
    b"cntrl": bytes([*range(32), 127]),
    b"digit": b"0123456789",
    b"graph": bytes(range(33, 127)),
    b"lower": bytes(c for c in range(128) if bytes([c]).islower()),
    b"print": bytes(range(32, 127)),
    b"punct": bytes(c for c in range(33, 127) if not bytes([c]).isalnum()),
    b"space": b" \t\n\r",
    b"upper": bytes(c for c in range(128) if bytes([c]).isupper()),
    b"xdigit": b"0123456789abcdefABCDEF",
}


class _Pattern(NamedTuple):
    matches: re.Pattern[bytes]
    by_name: bool
    folders_only: bool
    ignores: bool


class Rules:
    """The patterns that hold in one folder: its own and those of the folders above.

    Args:
        above: The rules of the folder above, if it has any.
        folder: Path of the folder below the root; b"" is the root.
        text: Content of its `.casignore`.
    """

    __slots__ = ("_any_name", "_any_path", "_patterns", "_skip", "above")

    def __init__(self, above: Rules | None, folder: bytes, text: bytes) -> None:
        """Translate the patterns; a line that can match nothing is left out, as git does."""
        self.above = above
        self._skip = len(folder) + 1 if folder else 0
        self._patterns = tuple(_parse(text))[::-1]
        self._any_name = _any_of(self._patterns, by_name=True)
        self._any_path = _any_of(self._patterns, by_name=False)

    def ignores(self, path: bytes, name: bytes, *, is_folder: bool) -> bool:
        """Tell whether an entry is left out, given that no folder above it is.

        Args:
            path: Its path below the root.
            name: The last part of the path.
            is_folder: Whether it is a folder; a symlink to one is not.
        """
        rules: Rules | None = self
        while rules is not None:
            verdict = rules.verdict(path, name, is_folder=is_folder)
            if verdict is not None:
                return verdict
            rules = rules.above
        return False

    def verdict(self, path: bytes, name: bytes, *, is_folder: bool) -> bool | None:
        """Tell what this folder's own patterns say of an entry; None if none matches it."""
        path = path[self._skip :]
        if (self._any_name is None or self._any_name.fullmatch(name) is None) and (
            self._any_path is None or self._any_path.fullmatch(path) is None
        ):
            return None
        for pattern in self._patterns:
            if pattern.folders_only and not is_folder:
                continue
            if pattern.matches.fullmatch(name if pattern.by_name else path) is not None:
                return pattern.ignores
        return None


def _any_of(patterns: tuple[_Pattern, ...], *, by_name: bool) -> re.Pattern[bytes] | None:
    """One expression for all patterns of a sort: most entries match none of them."""
    parts = [b"(?:%s)" % p.matches.pattern for p in patterns if p.by_name is by_name]
    return re.compile(b"|".join(parts), re.DOTALL) if parts else None


def _parse(text: bytes) -> Iterator[_Pattern]:
    for line in text.removeprefix(_BOM).split(b"\n"):
        if line.startswith(b"#"):
            continue
        glob = _without_trailing_spaces(line.removesuffix(b"\r"))
        ignores = not glob.startswith(b"!")
        if not ignores:
            glob = glob[1:]
        folders_only = glob.endswith(b"/")
        if folders_only:
            glob = glob[:-1]
        if not glob:
            continue
        by_name = b"/" not in glob
        expression = _translate(glob if by_name else glob.removeprefix(b"/"))
        if expression != _NEVER:
            yield _Pattern(re.compile(expression, re.DOTALL), by_name, folders_only, ignores)


def _without_trailing_spaces(line: bytes) -> bytes:
    """Cut spaces at the end, up to one that a backslash keeps."""
    end = at = 0
    while at < len(line):
        if line[at : at + 1] == b"\\":
            at += 1
            if at == len(line):
                return line
            end = at + 1
        elif line[at : at + 1] != b" ":
            end = at + 1
        at += 1
    return line[:end]


def _translate(glob: bytes) -> bytes:
    """Return the regular expression of a glob, in the manner of git's wildmatch."""
    parts: list[bytes] = []
    at = 0
    literal = True  # no special character so far
    while at < len(glob):
        char = glob[at : at + 1]
        if char == b"*":
            stars = at
            while glob[at : at + 1] == b"*":
                at += 1
            # git compares what comes before the first special character by itself, so that two
            # stars right after it stand at the beginning of what is matched.
            alone = literal or glob[stars - 1 : stars] == b"/"
            literal = False
            if at - stars > 1 and alone and glob[at : at + 1] == b"/":
                at += 1
                parts.append(b"(?:.*/)?")
            elif at - stars > 1 and alone and at == len(glob):
                parts.append(b".*")
            else:
                parts.append(b"[^/]*")
            continue
        at += 1
        literal = literal and char not in b"?[\\"
        if char == b"?":
            parts.append(b"[^/]")
        elif char == b"[":
            bracket = _Bracket(glob, at)
            if not bracket.closed:
                return _NEVER
            parts.append(_one_of(bracket.chars))
            at = bracket.end
        elif char == b"\\":
            if at == len(glob):
                return _NEVER
            parts.append(re.escape(glob[at : at + 1]))
            at += 1
        else:
            parts.append(re.escape(char))
    return b"".join(parts)


def _one_of(chars: set[int]) -> bytes:
    chars.discard(ord("/"))  # a bracket never matches a slash
    if not chars:
        return _NEVER
    return b"[" + b"".join(b"\\x%02x" % c for c in sorted(chars)) + b"]"


class _Bracket:
    """A bracket expression: the bytes that it matches, and where the glob goes on.

    One that is not closed, or names a class that does not exist, makes the whole glob match
    nothing.
    """

    def __init__(self, glob: bytes, at: int) -> None:
        """Read the expression whose "[" is before `at`."""
        self._glob = glob
        self._at = at
        self.chars: set[int] = set()
        self.closed = self._read()
        self.end = self._at + 1

    def _read(self) -> bool:
        negated = self._peek() in (b"!", b"^")
        self._at += negated
        previous = -1  # what a range may begin with
        first = True
        while first or self._peek() != b"]":
            first = False
            if not self._peek():
                return False
            previous = self._member(previous)
            if previous == _BROKEN:
                return False
            self._at += 1
        if negated:
            self.chars = set(range(256)) - self.chars
        return True

    def _member(self, previous: int) -> int:
        """Take one member and return what a range could begin with, or `_BROKEN`."""
        char = self._peek()
        if char == b"-" and previous >= 0 and self._peek(1) not in (b"", b"]"):
            self._at += 1 + (self._peek(1) == b"\\")
            if not self._peek():
                return _BROKEN
            self.chars.update(range(previous, ord(self._peek()) + 1))
            return -1
        if char == b"[" and self._peek(1) == b":":
            close = self._glob.find(b"]", self._at + 2)
            if close < 0:
                return _BROKEN
            if close > self._at + 2 and self._glob[close - 1 : close] == b":":
                members = _CLASSES.get(self._glob[self._at + 2 : close - 1])
                if members is None:
                    return _BROKEN
                self.chars.update(members)
                self._at = close
                return -1
        if char == b"\\":
            self._at += 1
            if not self._peek():
                return _BROKEN
        self.chars.add(ord(self._peek()))
        return ord(self._peek())

    def _peek(self, ahead: int = 0) -> bytes:
        return self._glob[self._at + ahead : self._at + ahead + 1]
