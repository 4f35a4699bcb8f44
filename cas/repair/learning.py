"""Healing the learning log: what can be read of it, and the log of a copy.

Unlike the catalogue it cannot be rebuilt from objects. What later records say, behind a gap, is
told again as far as it is still valid. Tokens go on behind all that may have been given, so that
nobody who holds a claim that is lost can be taken for one who holds it now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.errors import ConflictError, NotFoundError, RefusedError
from cas.learning import LEARNING, Learning, learning_fold
from cas.learning.keys import TOKEN_SHIFT
from cas.repair.logs import NewLog

if TYPE_CHECKING:
    from cas.catalogue.context import Context
    from cas.eventlog import Event, EventLog
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
    told = 0
    if new.saved.lost:
        _shift_tokens(new.log, new.saved.reach)
        told = sum(_tell(new.log, event) for event in new.saved.leftover)
    new.put_in_place(findings, diary)
    if new.saved.lost:
        left = len(new.saved.leftover)
        diary.notices.append(
            f"not all of the learning log, which reached {new.saved.reach}, could be read: what "
            f"the part that is lost says is not known; of {left} events behind it {told} were "
            "told again"
        )


def _shift_tokens(log: EventLog, reach: int) -> None:
    """See that no token is given that may have been given before."""
    log.refresh()
    before = int.from_bytes(log.state.get(TOKEN_SHIFT) or b"")
    shift = before + max(0, reach - log.position)
    log.append(lambda _state, _position: [{"type": "rebuilt", "shift": shift}])


def _tell(log: EventLog, event: Event) -> bool:
    """Append an event of which it is not known what it was built on, if it is valid as it is."""
    if event["type"] in ("init", "rebuilt"):
        return False
    try:
        log.append(lambda _state, _position: [event])
    except (ConflictError, NotFoundError, RefusedError):
        return False
    return True
