"""A crew does every task once, in order, and this process's other work besides."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cas.workspace.crew import Crew

WORKER = "worker_targets:echo"


@pytest.fixture(autouse=True)
def _targets(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def crew(size, own=lambda message: message, expected=None):
    return Crew(own, WORKER, None, size=size, expected=expected)


@given(
    weights=st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=30),
    steps=st.integers(0, 9),
)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_alone_it_does_every_task_and_every_step(weights, steps):
    taken = []
    with crew(1) as one:
        tasks = [(n, [n], weight) for n, weight in enumerate(weights)]
        done = list(one.map(tasks, (taken.append(n) for n in range(steps))))
    assert done == [(n, [n]) for n in range(len(weights))]
    assert taken == list(range(steps))


def test_other_work_comes_before_tasks_that_workers_may_get_to():
    order = []

    def own(message):
        order.append(message)
        return message

    with crew(1, own) as one:
        tasks = [("here", "here", None), ("shared", "shared", 1)]
        list(one.map(tasks, (order.append(n) for n in range(2))))
    assert order == ["here", 0, 1, "shared"]


def test_other_work_that_fails_ends_it():
    def failing():
        yield
        raise ValueError("no")

    with crew(1) as one, pytest.raises(ValueError, match="no"):
        list(one.map([(1, 1, 1)], failing()))


def test_with_a_worker_results_come_in_order_and_some_tasks_stay_here():
    with crew(2, lambda message: ["here", message], expected=1 << 20) as two:
        tasks = [(n, n, None if n % 3 == 0 else 1) for n in range(40)]
        done = list(two.map(tasks, iter([None] * 5)))
    assert [context for context, _ in done] == list(range(40))
    assert all(reply == ["here", n] for n, reply in done if n % 3 == 0)
    assert all(reply in (["here", n], [None, n]) for n, reply in done)
    assert any(reply == [None, n] for n, reply in done)
