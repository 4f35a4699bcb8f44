"""The difference between two texts, line by line, in the form that `patch` reads."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 8 << 20
"""The largest file that is compared as text."""

_CONTEXT = 3
_PROBE = 8000
"""Bytes in which a NUL shows that a file is no text, as git does it."""
_SMALL = 1_000_000
"""Pairs of lines that `difflib` compares in no time, whatever they hold."""
_MAX_WORK = 50_000_000
"""Pairs of lines that take it seconds in the worst case. Past that they count as replaced."""

Opcode = tuple[str, int, int, int, int]
"""What happens (`equal`, or else) to lines i1 to i2 of the old text and j1 to j2 of the new."""


def is_binary(content: bytes) -> bool:
    """Tell whether a file is no text: there is a NUL near its beginning."""
    return b"\0" in content[:_PROBE]


def unified(old: bytes | None, new: bytes | None, old_name: str, new_name: str) -> Iterator[str]:
    """Yield the lines of a unified diff, each without its line end.

    Bytes that are not UTF-8 come as lone surrogates, as file names do (`surrogateescape`).

    Args:
        old: The old content; None where there is no such file.
        new: The new content; None where there is no such file.
        old_name: What to call the old file.
        new_name: What to call the new file.
    """
    if old == new:
        return
    before = "/dev/null" if old is None else old_name
    after = "/dev/null" if new is None else new_name
    if is_binary(old or b"") or is_binary(new or b""):
        yield f"Binary files {before} and {after} differ"
        return
    a, b = _lines(old or b""), _lines(new or b"")
    yield f"--- {before}"
    yield f"+++ {after}"
    for group in _groups(a, b):
        yield from _hunk(a, b, group)


def _lines(content: bytes) -> list[bytes]:
    """Cut at line feeds alone: what else a Unicode text may break at, `patch` knows nothing of."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _common(a: list[bytes], b: list[bytes]) -> int:
    count = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        count += 1
    return count


def _opcodes(a: list[bytes], b: list[bytes]) -> Iterator[Opcode]:
    """Yield what turns one text into the other, in bounded time.

    Long texts are first cut at the lines that are unique in both and in the same order (patience
    diff, Bram Cohen), so that only what lies between two of them is compared line by line.
    """
    at_a = at_b = 0
    cuts = _anchors(a, b) if len(a) * len(b) > _SMALL else []
    for i, j in [*cuts, (len(a), len(b))]:
        for kind, i1, i2, j1, j2 in _piece(a[at_a:i], b[at_b:j]):
            yield kind, at_a + i1, at_a + i2, at_b + j1, at_b + j2
        if i < len(a) and j < len(b):
            yield "equal", i, i + 1, j, j + 1
        at_a, at_b = i + 1, j + 1


def _piece(a: list[bytes], b: list[bytes]) -> Iterator[Opcode]:
    """Compare what lies between two anchors; most edits leave both its ends alone."""
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    end_a, end_b = len(a) - tail, len(b) - tail
    if head:
        yield "equal", 0, head, 0, head
    if (end_a - head) * (end_b - head) <= _MAX_WORK:
        matcher = difflib.SequenceMatcher(None, a[head:end_a], b[head:end_b], autojunk=True)
        for kind, i1, i2, j1, j2 in matcher.get_opcodes():
            yield kind, head + i1, head + i2, head + j1, head + j2
    else:
        yield "replace", head, end_a, head, end_b
    if tail:
        yield "equal", end_a, len(a), end_b, len(b)


def _anchors(a: list[bytes], b: list[bytes]) -> list[tuple[int, int]]:
    """Return the longest run of lines unique in both texts that come in the same order."""
    once_a, once_b = _unique(a), _unique(b)
    pairs = sorted((i, once_b[line]) for line, i in once_a.items() if line in once_b)
    piles: list[int] = []
    tops: list[int] = []
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        pile = bisect_left(piles, j)
        before.append(tops[pile - 1] if pile else -1)
        if pile == len(piles):
            piles.append(j)
            tops.append(number)
        else:
            piles[pile] = j
            tops[pile] = number
    found: list[tuple[int, int]] = []
    number = tops[-1] if tops else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]


def _unique(lines: list[bytes]) -> dict[bytes, int]:
    counts = Counter(lines)
    return {line: at for at, line in enumerate(lines) if counts[line] == 1}


def _groups(a: list[bytes], b: list[bytes]) -> Iterator[list[Opcode]]:
    """Yield the groups of changes that stand near each other, each with its context."""
    group: list[Opcode] = []
    same: Opcode | None = None
    for code in _opcodes(a, b):
        if code[0] == "equal":
            start = code if same is None else same
            same = ("equal", start[1], code[2], start[3], code[4])
            continue
        if same is not None:
            _, i1, i2, j1, j2 = same
            if group and i2 - i1 > 2 * _CONTEXT:
                yield [*group, ("equal", i1, i1 + _CONTEXT, j1, j1 + _CONTEXT)]
                group = []
            cut = 0 if group else max(i2 - i1 - _CONTEXT, 0)
            group.append(("equal", i1 + cut, i2, j1 + cut, j2))
            same = None
        group.append(code)
    if group:
        if same is not None:
            _, i1, i2, j1, j2 = same
            end = min(i2 - i1, _CONTEXT)
            group.append(("equal", i1, i1 + end, j1, j1 + end))
        yield group


def _hunk(a: list[bytes], b: list[bytes], group: list[Opcode]) -> Iterator[str]:
    first, last = group[0], group[-1]
    old = _range(first[1], last[2])
    new = _range(first[3], last[4])
    yield f"@@ -{old} +{new} @@"
    for kind, i1, i2, j1, j2 in group:
        if kind == "equal":
            yield from _marked(" ", a[i1:i2])
            continue
        yield from _marked("-", a[i1:i2])
        yield from _marked("+", b[j1:j2])


def _range(start: int, stop: int) -> str:
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _marked(mark: str, lines: list[bytes]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix(b"\n").decode("utf-8", "surrogateescape")
        if not line.endswith(b"\n"):
            yield "\\ No newline at end of file"
