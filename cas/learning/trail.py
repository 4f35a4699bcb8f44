"""The audit as it is read and added to; what it is lies in `cas.learning.audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cas.learning.audit import entries, entry_at
from cas.learning.document import encode_document
from cas.learning.ids import check_id
from cas.learning.journal import Journal, acting, of
from cas.learning.keys import RECORDED, Place
from cas.learning.rows import find_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cas.learning.model import AuditEvent

_LAST: Final = (1 << 32) - 2
"""Above the index of any event in a record."""


class Trail(Journal):
    """The audit of a store."""

    def audit(self, candidate_id: str | None = None) -> list[AuditEvent]:
        """Return the audit of one candidate, or of all, in the order of the log.

        Raises:
            UnknownCandidateError: There is no such candidate, and nothing is known of one.
        """
        return list(self.audit_events(candidate_id))

    def audit_events(self, candidate_id: str | None = None) -> Iterator[AuditEvent]:
        """Give the audit of one candidate, or of all, without having it all in memory.

        Raises:
            UnknownCandidateError: As for `audit`.
        """
        state = self._state()
        if candidate_id is not None:
            check_id(candidate_id, "candidate")
        found = False
        for _, event in entries(state, self._context.id, candidate_id):
            found = True
            yield event
        if candidate_id is not None and not found:
            find_row(state, candidate_id)

    def is_empty(self) -> bool:
        """Say whether nothing was ever recorded: no candidate, snapshot or report."""
        state = self._state()
        return all(next(state.scan(prefix), None) is None for prefix in RECORDED)

    def audit_end(self) -> str:
        """Return a mark for `audit_since`: the end of the audit as it is now."""
        return Place(self.refresh(), _LAST).mark

    def audit_since(self, mark: str = "") -> tuple[list[AuditEvent], str]:
        """Return the audit events behind a mark, and the mark behind those: to follow the audit.

        Args:
            mark: What `audit_end` or this returned before; empty for the beginning.

        Raises:
            RefusedError: It is no mark.
        """
        after = Place.of_mark(mark) if mark else None
        found = list(entries(self._state(), self._context.id, after=after))
        return [event for _, event in found], found[-1][0].mark if found else mark

    def append_audit(
        self,
        candidate_id: str,
        event_type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        actor: str | None = None,
    ) -> AuditEvent:
        """Note something about a candidate that changes nothing of it.

        Args:
            candidate_id: The candidate.
            event_type: What happened.
            payload: What the audit keeps with it.
            actor: Who did it; by default the user that runs this.

        Raises:
            UnknownCandidateError: There is none.
            RefusedError: It cannot be kept.
        """
        told = encode_document({} if payload is None else dict(payload), "payload")
        event = of(
            "audited",
            id=check_id(candidate_id, "candidate"),
            event_type=check_id(event_type, "event type"),
            payload=told,
            actor=acting(actor),
        )
        appended = self._append(lambda _state: [{**event, "now": self._now()}])
        return entry_at(self._seen(), Place(appended.position, 0), self._context.id)
