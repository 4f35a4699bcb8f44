"""Claims: who works at a candidate, for how long, under which fencing token."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cas.errors import EnvironmentFailure, RefusedError
from cas.learning.claim_steps import LONGEST_LEASE
from cas.learning.ids import check_id
from cas.learning.journal import Journal, acting, of
from cas.learning.keys import TOKENS, Place, body_key
from cas.learning.model import Candidate, Claim, Lease
from cas.learning.queue import Next, next_rows
from cas.learning.rows import candidate_of, find_row, iso
from cas.learning.rules import check_token
from cas.learning.status import SYNTHESIZING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cas.eventlog import Event, State

QUARTER: Final = 900.0
"""Seconds of a lease that nobody asked otherwise for."""


class Claims(Journal):
    """The claims of a store."""

    def claim(
        self,
        candidate_id: str,
        owner: str,
        lease: float | timedelta = QUARTER,
        *,
        force: bool = False,
    ) -> Claim:
        """Claim a candidate: it becomes `synthesizing`, and is the owner's until the lease ends.

        A lease that is over leaves the candidate with its holder until somebody claims it.

        Args:
            candidate_id: The candidate.
            owner: Who claims it.
            lease: How long, in seconds or as a timedelta, by the store's clock.
            force: Also if another holds it, it has its draft, or the store's table of transitions
                does not allow it; the audit says so.

        Raises:
            UnknownCandidateError: There is none.
            BeingSynthesizedError: Another holds it; says who, until when.
            AlreadyDraftedError: It has its draft.
            BeingPublishedError: Its draft is being published.
            TransitionRefusedError: The store's table does not allow it.
        """
        check_id(candidate_id, "candidate")

        def choose(state: State, _now: int) -> Next:
            return Next([find_row(state, candidate_id)], [None, None, None])

        return self._claim(choose, owner, lease, force=force)[0]

    def claim_next(
        self, owner: str, lease: float | timedelta = QUARTER, *, kind: str | None = None
    ) -> Claim | None:
        """Claim the next candidate: one whose holder's lease is over, else the oldest open one.

        Args:
            owner: Who claims it.
            lease: How long, in seconds or as a timedelta, by the store's clock.
            kind: Only candidates of this kind.

        Returns:
            The claim; None where there is no such candidate.
        """
        return next(iter(self.claim_many(1, owner, lease, kind=kind)), None)

    def claim_many(
        self,
        count: int,
        owner: str,
        lease: float | timedelta = QUARTER,
        *,
        kind: str | None = None,
    ) -> list[Claim]:
        """Claim several candidates in one record, as `claim_next`.

        Args:
            count: How many, at most; of them as many as there are.
            owner: Who claims them.
            lease: How long, in seconds or as a timedelta, by the store's clock.
            kind: Only candidates of this kind.
        """
        if not 0 < count <= TOKENS:
            raise RefusedError(f"claim from 1 to {TOKENS} candidates at a time, not {count}")
        if kind is not None:
            check_id(kind, "kind")

        def choose(state: State, now: int) -> Next:
            return next_rows(state, now, kind, count)

        return self._claim(choose, owner, lease, force=False)

    def _claim(
        self,
        choose: Callable[[State, int], Next],
        owner: str,
        lease: float | timedelta,
        *,
        force: bool,
    ) -> list[Claim]:
        length = lease_ns(lease)
        check_id(owner, "owner")
        now = 0
        chosen: list[Candidate] = []

        def decide(state: State) -> Sequence[Event]:
            # What is returned is read before the record is written: a claim that is made is told.
            nonlocal now, chosen
            now = self._now()
            rows, floors = choose(state, now)
            at = iso(now)
            chosen = [
                candidate_of(
                    row._replace(status=SYNTHESIZING, updated_at=at), state.get(body_key(place))
                )
                for place, row in rows
            ]
            event = of("claimed", owner=owner, now=now, lease=length, forced=force or None)
            events = [{**event, "id": candidate.candidate_id} for candidate in chosen]
            if events and floors[1:] != [None, None]:
                events[0]["floors"] = floors
            return events

        position = self._append(decide).position
        state = self._seen()
        return [
            Claim(
                candidate,
                Place(position, ordinal).token(state),
                iso(now + length),
                owner,
            )
            for ordinal, candidate in enumerate(chosen)
        ]

    def renew(self, candidate_id: str, token: int, lease: float | timedelta = QUARTER) -> Claim:
        """Begin the lease of a claim anew.

        Args:
            candidate_id: The candidate.
            token: That of the claim.
            lease: How long from now; the lease never gets shorter.

        Raises:
            UnknownCandidateError: There is none.
            LeaseLostError: Another holds it now, or nobody.
        """
        check_id(candidate_id, "candidate")
        length = lease_ns(lease)
        renewed: list[Claim] = []

        def decide(state: State) -> Sequence[Event]:
            place, row = find_row(state, candidate_id)
            check_token(row, token)
            assert row.held is not None
            now = self._now()
            expires = max(row.held.expires_ns, now + length)
            claim = Claim(
                candidate_of(row, state.get(body_key(place))), token, iso(expires), row.held.owner
            )
            renewed[:] = [claim]
            return [of("renewed", id=candidate_id, token=token, now=now, lease=length)]

        self._append(decide)
        return renewed[0]

    def release(self, candidate_id: str, token: int, *, actor: str | None = None) -> None:
        """Give a candidate back, with the status that it had before it was claimed.

        Args:
            candidate_id: The candidate.
            token: That of the claim.
            actor: Who gives it back; by default the holder.

        Raises:
            UnknownCandidateError: There is none.
            LeaseLostError: Another holds it now, or nobody.
            BeingPublishedError: Its draft is being published.
        """
        check_id(candidate_id, "candidate")

        def decide(state: State) -> Sequence[Event]:
            _, row = find_row(state, candidate_id)
            by = row.held.owner if actor is None and row.held else actor
            return [of("released", id=candidate_id, token=token, now=self._now(), actor=acting(by))]

        self._append(decide)

    def lease(self, candidate_id: str) -> Lease | None:
        """Return who holds a candidate, None if nobody does.

        Raises:
            UnknownCandidateError: There is none.
        """
        check_id(candidate_id, "candidate")
        _, row = find_row(self._state(), candidate_id)
        if row.held is None:
            return None
        try:
            now = self._now()
        except EnvironmentFailure:  # where nothing can be written only this machine's clock is left
            now = time.time_ns()
        return Lease(row.held.owner, iso(row.held.expires_ns), row.held.expires_ns > now)


def lease_ns(lease: float | timedelta) -> int:
    """Return the length of a lease in ns.

    Raises:
        RefusedError: It is not longer than nothing, or longer than a year.
    """
    seconds = lease.total_seconds() if isinstance(lease, timedelta) else lease
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise RefusedError(f"a lease is a number of seconds, not {ascii(lease)[:80]}")
    if not math.isfinite(seconds) or not 0 < (length := round(seconds * 1e9)) <= LONGEST_LEASE:
        raise RefusedError(f"a lease of {seconds} s: it is longer than nothing, at most a year")
    return length
