"""`cas diff`: what differs between two states."""

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Output, count, size
from .session import FINDINGS, Session, command

if TYPE_CHECKING:
    import cas

Stat = Annotated[bool, typer.Option("--stat", help="Show sizes and totals as well.")]
ExitCode = Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if anything differs.")]

_LINE_COLOURS = {"+": "green", "-": "red", "@": "blue"}


app = typer.Typer(rich_markup_mode=None)


@command(app, "diff")
def diff(
    session: Session,
    old: Annotated[str, typer.Argument(metavar="A", help="A SPEC, a directory or a file.")],
    new: Annotated[str, typer.Argument(metavar="B", help="A SPEC, a directory or a file.")],
    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", help="Compare this one file as text.", show_default=False),
    ] = None,
    stat: Stat = False,
    exit_code: ExitCode = False,
) -> int:
    """Show what was added, removed, changed and renamed from A to B.

    Where A and B are files (SPEC:PATH), or with PATH, the two files are compared as text.
    """
    store = session.store()
    if path is not None or _is_file(store, old) or _is_file(store, new):
        differs = show_text(session, store.diff_text(old, new, path or ""))
    else:
        differs = show_diff(session, store.diff(old, new), stat=stat)
    return FINDINGS if exit_code and differs else 0


def _is_file(store: "cas.Store", state: str) -> bool:
    """Tell whether a state is one file; like the library, take what exists for a path."""
    if os.path.lexists(state):
        return os.path.isfile(state)
    return ":" in state and store.resolve(state).kind == "blob"


def show_text(session: Session, lines: Iterable[str]) -> bool:
    """Print a text diff, and say whether anything differs."""
    if session.json:
        text = "\n".join(line.removesuffix("\n") for line in lines)
        session.out.document({"differs": bool(text), "text": text})
        return bool(text)
    differs = False
    for line in lines:
        differs = True
        shown = line.removesuffix("\n")
        colour = "bold" if shown.startswith(("+++", "---")) else _LINE_COLOURS.get(shown[:1])
        session.out.line(session.out.paint(shown, colour) if colour else shown)
    return differs


def show_diff(session: Session, found: "cas.Diff", *, stat: bool) -> bool:
    """Print what differs, one path a line, and say whether anything does."""
    if session.json:
        session.out.document(found.to_json())
    else:
        for line in _lines(found, session.out, stat):
            session.out.line(line)
    return bool(found)


def _lines(found: "cas.Diff", out: Output, stat: bool) -> Iterator[str]:
    def line(word: str, colour: str, path: str, sizes: str) -> str:
        return f"{out.paint(word.ljust(8), colour)}  " + (f"{sizes:>22}  " if stat else "") + path

    for change in found.removed:
        yield line("removed", "red", out.path(change.path), _sizes(change.old, None))
    for change in found.added:
        yield line("added", "green", out.path(change.path), _sizes(None, change.new))
    for change in found.changed:
        yield line("changed", "yellow", out.path(change.path), _sizes(change.old, change.new))
    for rename in found.renamed:
        paths = f"{out.path(rename.old_path)} -> {out.path(rename.path)}"
        yield line("renamed", "blue", paths, _sizes(None, rename.new))
    if stat:
        yield _totals(found)


def _sizes(old: Any, new: Any) -> str:
    if old is None or new is None:
        return size((new or old).size)
    return f"{size(old.size)} -> {size(new.size)}"


def _totals(found: "cas.Diff") -> str:
    parts = [
        f"{len(changes):,} {word}"
        for word, changes in (
            ("removed", found.removed),
            ("added", found.added),
            ("changed", found.changed),
            ("renamed", found.renamed),
        )
        if changes
    ]
    if not parts:
        return "nothing differs"
    before = _content(change.old for change in (*found.removed, *found.changed))
    after = _content(change.new for change in (*found.added, *found.changed))
    total = sum(map(len, (found.removed, found.added, found.changed, found.renamed)))
    return f"{count(total, 'path')}: {', '.join(parts)}; {size(before)} before, {size(after)} after"


def _content(states: Iterable[Any]) -> int:
    return sum(state.size for state in states if state is not None and state.type != "dir")
