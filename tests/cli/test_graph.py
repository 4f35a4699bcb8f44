"""Lineages drawn as text."""

import re

from hypothesis import given
from hypothesis import strategies as st

from cas_cli.graph import draw


def drawn(*nodes: tuple[str, str]) -> list[str]:
    return list(draw([(name, list(parents), [name]) for name, parents in nodes]))


def test_a_line_of_descent_is_one_column():
    assert drawn(("c", "b"), ("b", "a"), ("a", "")) == ["*  c", "*  b", "*  a"]


def test_a_merge_opens_a_column_and_a_fork_closes_it():
    assert drawn(("d", "bc"), ("c", "a"), ("b", "a"), ("a", "")) == [
        "*  d",
        "├─╮",
        "│ *  c",
        "* │  b",
        "├─╯",
        "*  a",
    ]


def test_text_of_several_lines_stays_beside_its_line():
    lines = list(draw([("b", ["a"], ["b", "more"]), ("a", [], ["a", "end"])]))
    assert lines == ["*  b", "│  more", "*  a", "   end"]


def test_parents_that_are_not_listed_are_left_out():
    assert drawn(("b", "xa"), ("a", "y")) == ["*  b", "*  a"]


def test_a_parent_listed_too_early_still_comes_below_its_child():
    assert drawn(("a", ""), ("b", "a")) == ["*  b", "*  a"]


@st.composite
def lineages(draw_: st.DrawFn) -> list[tuple[int, list[int], list[str]]]:
    """All that one node came from, by numbers that are lower for parents."""
    top = draw_(st.integers(0, 11))
    parents = {top: draw_(st.lists(st.integers(0, top - 1), max_size=3)) if top else []}
    for node in reversed(range(top)):
        if any(node in of for of in parents.values()):
            parents[node] = draw_(st.lists(st.integers(0, node - 1), max_size=3)) if node else []
    return [(node, of, [f"n{node}"]) for node, of in parents.items()]


@given(lineages())
def test_every_link_of_any_lineage_is_drawn_and_no_other(nodes):
    lines = list(draw(nodes))
    assert re.findall(r"n\d+", "\n".join(lines)) == [f"n{node}" for node, _, _ in nodes]
    assert links(lines) == {(node, parent) for node, parents, _ in nodes for parent in parents}


def links(lines: list[str]) -> set[tuple[int, int]]:
    """Read a drawing back by following every column down: child and parent of each link."""
    found: set[tuple[int, int]] = set()
    # Which nodes' links run down in a column.
    running: dict[int, set[int]] = {}
    place = node = -1
    for line in lines:
        drawn_node = re.search(r"n(\d+)$", line)
        if drawn_node:
            place, node = line.index("*"), int(drawn_node.group(1))
            found |= {(child, node) for child in running.get(place, ())}
            running[place] = {node}
            continue
        left, *_, right = (at for at, mark in enumerate(line) if mark in "├┤╭╮╰╯")
        there = right if left == place else left
        if line[right] == "╯":
            running[left] = {node} | running.get(there, set())
            running[right] = set()
        elif line[there] in "╭╮":
            running[there] = {node}
        else:
            running[there] = running.get(there, set()) | {node}
    return found
