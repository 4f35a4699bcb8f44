"""Healing the learning log: what can be read of it, and the log of a copy.

Unlike the catalogue it cannot be rebuilt from objects. Records behind a gap build on what is lost,
so they are put aside with the damaged log rather than told again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.learning import LEARNING, Learning, learning_fold
from cas.repair.logs import NewLog

if TYPE_CHECKING:
    from cas.catalogue.context import Context
    from cas.repair.result import Diary


def heal_learning(context: Context, copy: Context | None, diary: Diary) -> None:
    """Heal the learning log, if it is damaged.

    Args:
        context: The store, to which nobody else writes and whose catalogue is sound.
        copy: Another store. If it is a copy of this one, its log is one of this one's.
        diary: Takes note of what is done.
    """
    findings = Learning(context).verify()
    if not findings:
        return
    new = NewLog(context, LEARNING, learning_fold, copy, {})
    new.put_in_place(findings, diary)
    if new.saved.lost:
        diary.notices.append(
            "not all of the learning log could be read: candidates, claims and reports are as they "
            "were when its last sound record was written"
        )
