"""Draws a lineage as lines of text: children above their parents, one column a line of descent."""

from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def draw(nodes: Sequence[tuple[Node, Sequence[Node], Sequence[str]]]) -> Iterator[str]:
    """Yield the lines of a graph.

    A column that ended stays empty until a new line of descent takes it, so no line ever moves
    sideways and every link is one row.

    Args:
        nodes: `(node, its parents, its lines of text)`, newest first; parents that are not among
            the nodes are left out.
    """
    # What each column leads down to; None is an empty one.
    columns: list[Node | None] = []
    for node, parents, text in _children_first(nodes):
        place = columns.index(node) if node in columns else _free(columns)
        columns[place] = node
        yield f"{_row(columns, place, '*')}  {text[0]}".rstrip()
        below = _row(columns, place, "│" if parents else " ")
        for line in text[1:]:
            yield f"{below}  {line}".rstrip()
        yield from _links(columns, place, parents)
        while columns and columns[-1] is None:
            columns.pop()


def _children_first(
    nodes: Sequence[tuple[Node, Sequence[Node], Sequence[str]]],
) -> Iterator[tuple[Node, list[Node], Sequence[str]]]:
    """Yield the nodes in their order, but none before all its children."""
    present = {node for node, _, _ in nodes}
    waiting = dict.fromkeys(present, 0)
    kept = [
        (node, [parent for parent in dict.fromkeys(parents) if parent in present], text)
        for node, parents, text in nodes
    ]
    for _, parents, _ in kept:
        for parent in parents:
            waiting[parent] += 1
    while kept:
        # A digest cannot lead back to itself, so there is always one without waiting children.
        at = next(index for index, (node, _, _) in enumerate(kept) if not waiting[node])
        node, parents, text = kept.pop(at)
        for parent in parents:
            waiting[parent] -= 1
        yield node, parents, text


def _free(columns: list[Node | None]) -> int:
    if None not in columns:
        columns.append(None)
    return columns.index(None)


def _row(columns: Sequence[object], place: int, mark: str) -> str:
    return " ".join(
        mark if at == place else " " if column is None else "│" for at, column in enumerate(columns)
    )


def _links(columns: list[Node | None], place: int, parents: Sequence[Node]) -> Iterator[str]:
    """Lead a column on to the parents, and yield a row for each that another column leads to."""
    known = [parent for parent in parents if parent in columns]
    fresh = [parent for parent in parents if parent not in columns]
    columns[place] = fresh.pop(0) if fresh else None
    for left, parent in enumerate(known, start=1):
        there = columns.index(parent)
        if columns[place] is not None or left < len(known):
            yield _link(columns, place, there, "├┤")
        else:
            # Two columns become one, which is the left one.
            yield _link(columns, place, there, "├╯")
            columns[there], columns[min(place, there)] = None, parent
    for parent in fresh:
        there = _free(columns)
        yield _link(columns, place, there, "├╮" if place < there else "╭┤")
        columns[there] = parent


def _link(columns: Sequence[object], place: int, there: int, ends: str) -> str:
    """Return the row that links two columns, with these marks at its left and right end."""
    first, last = min(place, there), max(place, there)
    row = ""
    for at, column in enumerate(columns):
        if at in (first, last):
            row += ends[at == last]
        elif column is None:
            row += "─" if first < at < last else " "
        else:
            row += "│"
        row += "─" if first <= at < last else " "
    return row.rstrip()
