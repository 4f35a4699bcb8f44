"""Bringing to an end what a publisher began and did not end.

The catalogue decides: where it did, the outcome is written to the learning log; where it did not,
and whoever began is gone, the publication is refused there first. See `docs/format.md`,
"Publishing a draft".
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from cas import locking
from cas.catalogue.context import LOCK_TIMEOUT, user
from cas.errors import BusyError
from cas.learning.draft_steps import Draft, Intent, find_draft
from cas.learning.keys import PUBLISHING
from cas.learning.rows import find_row, read_row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from cas.catalogue.context import Context
    from cas.catalogue.publication import Decision, Publication
    from cas.eventlog import Event, EventLog, State

PATIENCE: Final = 60 * 10**9
"""Nanoseconds by the store's clock after which nobody waits for a publisher any more."""


def settle(context: Context, log: EventLog) -> bool:
    """Bring publications to their end, all of those that no live publisher is at.

    Returns:
        Whether any came to its end.

    Raises:
        EnvironmentFailure: The medium is read-only, full, or fails; nothing is lost.
        DamagedError: The catalogue is damaged.
    """
    settled = False
    for key, _ in log.state.scan(PUBLISHING):
        row = read_row(log.state, key[len(PUBLISHING) :])
        if row.intent is not None:
            intent = Intent._make(row.intent)
            settled = _settle(context, log, row.candidate_id, intent) or settled
    return settled


def being_published(context: Context) -> AbstractContextManager[None]:
    """Show that a publisher lives, to those who would give up for it what it began.

    That is a courtesy between processes of one machine: whether it is seen or not, a publication
    is decided once.
    """
    path = _lock(context)
    return nullcontext() if path is None else locking.shared(path, LOCK_TIMEOUT)


def conclude(
    context: Context, log: EventLog, candidate_id: str, intent: Intent, decision: Decision
) -> None:
    """Write to the learning log how the catalogue decided, unless somebody did."""
    version = decision.version

    def decide(state: State) -> Sequence[Event]:
        _, row = find_row(state, candidate_id)
        if row.intent is None or row.intent[0] != intent.identity:
            return []
        told = {
            "id": candidate_id,
            "publication": intent.identity,
            "now": context.backend.now_ns(),
        }
        if version is None:
            reason = {"actor": user(), "reason": decision.reason}
            return [{"type": "publication-refused", **told, **reason}]
        named = {"resource": version.resource, "number": version.number}
        return [{"type": "published", **told, **named}]

    # What was decided may have been read before it was durable, and must not be outlived.
    context.refs.log.settle()
    log.append(lambda state, _position: decide(state))


def _settle(context: Context, log: EventLog, candidate_id: str, intent: Intent) -> bool:
    from cas.catalogue.publication import (  # late: start-up time
        find_decision,
        give_up_publication,
    )

    context.refs.refresh()
    decision = find_decision(context.refs, intent.identity)
    if decision is None:
        if not _is_given_up(context, intent):
            return False
        at, _ = find_row(log.state, candidate_id)
        draft = find_draft(log.state, at)
        assert draft is not None, "what is being published has a draft"
        decision = give_up_publication(
            context,
            publication_of(candidate_id, draft, intent),
            user(),
            f"{intent.actor} began to publish candidate {candidate_id} and did not get to make "
            "a version; publish it again",
        )
    conclude(context, log, candidate_id, intent, decision)
    return True


def publication_of(candidate_id: str, draft: Draft, intent: Intent) -> Publication:
    """Return what an intent is about to publish."""
    from cas.catalogue.publication import Part, Publication  # late: start-up time

    return Publication(
        identity=intent.identity,
        candidate=candidate_id,
        reports=tuple(intent.reports),
        by=intent.actor,
        description=intent.description,
        base=Part(
            resource=draft.resource,
            number=draft.number,
            path=draft.path,
            content=(draft.base_type, draft.base_size, draft.base_digest),
        ),
        draft=(draft.type, draft.size, draft.digest, draft.files),
    )


def _is_given_up(context: Context, intent: Intent) -> bool:
    """Say whether nobody lives who may be at a publication, or has been at it for too long."""
    path = _lock(context)
    if path is not None:
        try:
            with locking.exclusive(path, None, blocking=False):
                return True
        except BusyError:
            pass
    return context.backend.now_ns() - intent.at_ns > PATIENCE


def _lock(context: Context) -> Path | None:
    local = context.backend.local
    return None if local is None else local.root / "locks" / "publication"
