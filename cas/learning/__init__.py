"""Learning: candidates, claims, audit, performance and reports, on a log of their own.

See `docs/learning.md` for how to use it and `docs/format.md`, "The learning log's events".
"""

from cas.learning.board import Board
from cas.learning.claims import Claims
from cas.learning.drafts import Drafted, Drafts
from cas.learning.fold import fold as learning_fold
from cas.learning.intake import Intake, TakenIn
from cas.learning.journal import LEARNING, create_learning
from cas.learning.model import (
    AuditEvent,
    Candidate,
    Claim,
    EvalReport,
    Lease,
    PerformanceSnapshot,
    SafetyReport,
)
from cas.learning.performance import Performance
from cas.learning.policy import Policy, TransitionsChange
from cas.learning.publishing import Published, Publishing
from cas.learning.reports import Reports
from cas.learning.trail import Trail

__all__ = [
    "LEARNING",
    "AuditEvent",
    "Candidate",
    "Claim",
    "Drafted",
    "EvalReport",
    "Learning",
    "Lease",
    "PerformanceSnapshot",
    "Published",
    "SafetyReport",
    "TakenIn",
    "TransitionsChange",
    "create_learning",
    "learning_fold",
]


class Learning(Board, Claims, Trail, Policy, Drafts, Publishing, Performance, Reports, Intake):
    """The learning side of a store.

    What it gives is read from the log when it is asked. One that stays open pays only for what was
    appended since.
    """
