"""What may happen to a candidate as it is now: claims, fencing tokens, transitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.errors import (
    AlreadyDraftedError,
    BeingPublishedError,
    BeingSynthesizedError,
    LeaseLostError,
    TransitionRefusedError,
)
from cas.learning.document import decode_document
from cas.learning.keys import CONFIG
from cas.learning.rows import iso
from cas.learning.status import DRAFTED, SYNTHESIZING, may_follow

if TYPE_CHECKING:
    from cas.eventlog import State
    from cas.learning.rows import Row
    from cas.learning.status import Transitions


def check_claimable(row: Row, now: int, *, forced: bool) -> None:
    """See that a candidate can be claimed.

    Raises:
        BeingPublishedError: Its draft is being published.
        BeingSynthesizedError: It is claimed, and the lease is not over.
        AlreadyDraftedError: It has its draft.
    """
    check_published(row)
    if forced:
        return
    if row.held is not None and row.held.expires_ns > now:
        until = iso(row.held.expires_ns)
        raise BeingSynthesizedError(
            f"candidate {row.candidate_id} is being synthesised by {row.held.owner} until {until}; "
            "claim another, or wait",
            candidate_id=row.candidate_id,
            owner=row.held.owner,
            expires_at=until,
        )
    if row.status in DRAFTED or (row.draft_id is not None and row.status != SYNTHESIZING):
        draft = "" if row.draft_id is None else f" {row.draft_id}"
        raise AlreadyDraftedError(
            f"candidate {row.candidate_id} has its draft{draft} already and is {row.status}; "
            "claim another, or force it",
            candidate_id=row.candidate_id,
            draft_id=row.draft_id,
            status=row.status,
        )


def check_published(row: Row) -> None:
    """See that no draft of a candidate is being published.

    Raises:
        BeingPublishedError: One is.
    """
    if row.intent is not None:
        raise BeingPublishedError(
            f"candidate {row.candidate_id} is being published; "
            "publish it again to bring that to its end",
            candidate_id=row.candidate_id,
        )


def check_token(row: Row, token: int) -> None:
    """See that a token is that of the claim that a candidate is held by.

    Raises:
        LeaseLostError: It is not.
    """
    if row.held is not None and row.held.token == token:
        return
    if row.held is None:
        now = f"nobody holds it now and its status is {row.status}"
    else:
        now = f"{row.held.owner} holds it now"
    raise LeaseLostError(
        f"the claim {token} on candidate {row.candidate_id} is lost: {now}; "
        "throw the work away, or claim it again",
        candidate_id=row.candidate_id,
        token=token,
        owner=row.held.owner if row.held else None,
        status=row.status,
    )


def check_leaving(row: Row, to: str, now: int, *, token: int | None, forced: bool) -> None:
    """See that a candidate may leave its status.

    Raises:
        BeingPublishedError: Its draft is being published.
        BeingSynthesizedError: Another holds a claim on it.
    """
    check_published(row)
    if row.held is not None and token is None and not forced:
        until = f"until {iso(row.held.expires_ns)}; give the token of that claim, wait, or force it"
        if row.held.expires_ns <= now:
            until = "whose lease is over; claim it"
        raise BeingSynthesizedError(
            f"candidate {row.candidate_id} cannot become {to}: it is being synthesised by "
            f"{row.held.owner} {until}",
            candidate_id=row.candidate_id,
            owner=row.held.owner,
            expires_at=iso(row.held.expires_ns),
        )


def check_transition(state: State, row: Row, to: str, *, forced: bool) -> None:
    """See that the store's table allows a transition.

    Raises:
        TransitionRefusedError: It does not.
    """
    if forced:
        return
    config = state.get(CONFIG)
    table: Transitions | None
    table = None if config is None else decode_document(config).get("transitions")
    if table is not None and not may_follow(table, row.status, to):
        allowed = ", ".join(table[row.status]) or "nothing"
        raise TransitionRefusedError(
            f"candidate {row.candidate_id} is {row.status} and cannot become {to}: "
            f"this store allows {allowed}",
            candidate_id=row.candidate_id,
            status=row.status,
            to=to,
            allowed=table[row.status],
        )
