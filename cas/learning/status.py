"""Statuses of candidates: their grammar, the known ones, and which may follow which."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cas.errors import NameRefusedError, RefusedError

OPEN: Final = "open"
QUEUED: Final = "queued"
SYNTHESIZING: Final = "synthesizing"
DRAFT_READY: Final = "draft_ready"
IN_REVIEW: Final = "in_review"
APPROVED: Final = "approved"
PUBLISHED: Final = "published"
REJECTED: Final = "rejected"
SUPERSEDED: Final = "superseded"
FAILED: Final = "failed"

KNOWN: Final = (
    OPEN,
    QUEUED,
    SYNTHESIZING,
    DRAFT_READY,
    IN_REVIEW,
    APPROVED,
    PUBLISHED,
    REJECTED,
    SUPERSEDED,
    FAILED,
)
"""The statuses that mean something here; others are allowed, too."""

DRAFTED: Final = frozenset({DRAFT_READY, IN_REVIEW, APPROVED, PUBLISHED})
"""Statuses of a candidate whose draft is made."""

Transitions = dict[str, list[str]]
"""From a status to those that may follow it; what is no key may become anything."""

_STATUS: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_MOST: Final = 1000


def check_status(status: Any) -> str:
    """Return a status: a letter, then letters, digits, ``_``, ``.`` and ``-``, at most 64.

    Raises:
        NameRefusedError: Not in the grammar.
    """
    if not isinstance(status, str) or not _STATUS.fullmatch(status):
        raise NameRefusedError(
            f"{ascii(status)[:80]} is not a status: use a letter, then letters, digits, "
            "'_', '.' and '-', at most 64",
            name=status,
        )
    return status


def check_transitions(table: Any) -> Transitions:
    """Return a table of transitions.

    Raises:
        RefusedError: It is no map from statuses to lists of statuses.
    """
    if not isinstance(table, Mapping) or len(table) > _MOST:
        raise RefusedError("a table of transitions maps statuses to lists of those that may follow")
    checked: Transitions = {}
    for status, following in table.items():
        if isinstance(following, str) or not isinstance(following, Iterable):
            raise RefusedError(f"what may follow {ascii(status)[:80]} is a list of statuses")
        checked[check_status(status)] = sorted({check_status(name) for name in following})
    return checked


def may_follow(table: Transitions, before: str, after: str) -> bool:
    """Say whether a table allows a transition; to stay what it is, any candidate may."""
    return before == after or after in table.get(before, (after,))
