"""Candidates: recorded, changed, looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cas.learning.document import encode_document
from cas.learning.ids import check_id
from cas.learning.journal import Journal, acting, of
from cas.learning.keys import (
    COUNT,
    ROW,
    body_key,
    id_key,
    kind_prefix,
    status_prefix,
)
from cas.learning.rows import (
    Row,
    candidate_of,
    find_row,
    read_candidate,
)
from cas.learning.status import OPEN, check_status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cas.eventlog import Event, State
    from cas.learning.model import Candidate

MERGE: Final = "merge_skills"
"""The kind of a candidate that proposes to merge skills."""

BATCH_BYTES: Final = 2 << 20
"""Bytes of documents that one record takes."""
BATCH: Final = 2000
"""Candidates that one record takes."""


class Board(Journal):
    """The candidates of a store."""

    # --- recording -------------------------------------------------------------------------------

    def record(self, candidate: Candidate, *, actor: str | None = None) -> Candidate:
        """Add a candidate.

        Args:
            candidate: What to add.
            actor: Who adds it; by default the user that runs this.

        Returns:
            It, with the times that the store gave it.

        Raises:
            ConflictError: There is one of this id.
            NotFoundError: Its `base`, if it has one, is not there.
            RefusedError: A field cannot be kept, or `base` is not written `RESOURCE@vN:PATH`.
        """
        return self.record_all([candidate], actor=actor)[0]

    def record_if_absent(
        self, candidate: Candidate, *, actor: str | None = None
    ) -> tuple[Candidate, bool]:
        """Add a candidate unless there is one of this id.

        Returns:
            The candidate as it is now, and whether this call added it.

        Raises:
            NotFoundError: As for `record`.
            RefusedError: Likewise.
        """
        checked = candidate.checked()
        self._check_base(checked.candidate_id, checked.extra.get("base"))
        key = id_key(checked.candidate_id)
        event = recorded_event(checked, acting(actor))

        def decide(state: State) -> Sequence[Event]:
            return [] if state.get(key) is not None else [{**event, "now": self._now()}]

        created = bool(self._append(decide).events)
        return self._candidate(self._seen(), checked.candidate_id), created

    def record_all(
        self, candidates: Iterable[Candidate], *, actor: str | None = None
    ) -> list[Candidate]:
        """Add candidates, as many as fit with each record; those of one record all or none.

        Up to `BATCH` candidates and `BATCH_BYTES` share a record, which costs little more than one
        candidate does. Where a later record is refused, the earlier ones stay.

        Args:
            candidates: What to add.
            actor: Who adds them; by default the user that runs this.

        Returns:
            Them, with the times that the store gave them.

        Raises:
            ConflictError: There is one of an id; none of its record was added.
            NotFoundError: The `base` of one is not there; likewise.
            RefusedError: A field cannot be kept; likewise.
        """
        by = acting(actor)
        added: list[Candidate] = []
        batch: list[Event] = []
        size = 0
        for candidate in candidates:
            checked = candidate.checked()
            self._check_base(checked.candidate_id, checked.extra.get("base"))
            event = recorded_event(checked, by)
            batch.append(event)
            size += len(event["body"])
            if len(batch) >= BATCH or size >= BATCH_BYTES:
                added += self._record(batch)
                batch, size = [], 0
        return [*added, *self._record(batch)] if batch else added

    def _record(self, events: Sequence[Event]) -> Iterator[Candidate]:
        def decide(_state: State) -> Sequence[Event]:
            now = self._now()
            return [{**event, "now": now} for event in events]

        self._append(decide)
        return (self._candidate(self._seen(), event["id"]) for event in events)

    # --- changing --------------------------------------------------------------------------------

    def update(
        self,
        candidate_id: str,
        *,
        actor: str | None = None,
        token: int | None = None,
        **fields: Any,
    ) -> Candidate:
        """Change fields of a candidate; the audit has it as `candidate_updated`.

        Args:
            candidate_id: The candidate.
            actor: Who changes it; by default the user that runs this.
            token: Only if it is held by this claim.
            **fields: What to set. With `status`, the rules of `transition` hold.

        Raises:
            UnknownCandidateError: There is none.
            LeaseLostError: Another holds it now.
            RefusedError: A field cannot be kept, or is not to be changed.
        """
        return self.change(
            candidate_id,
            fields.pop("status", None),
            fields,
            event_type="candidate_updated",
            token=token,
            actor=actor,
        )

    def transition(
        self,
        candidate_id: str,
        status: str,
        event_type: str | None = None,
        payload: Mapping[str, Any] | None = None,
        token: int | None = None,
        *,
        actor: str | None = None,
        force: bool = False,
        **fields: Any,
    ) -> Candidate:
        """Give a candidate another status; its audit event takes effect with it.

        Args:
            candidate_id: The candidate.
            status: What it becomes.
            event_type: What the audit calls it; by default `candidate_<status>`.
            payload: What the audit keeps with it.
            token: The claim that it is done under. Without one, nobody must hold the candidate.
            actor: Who does it; by default the holder of the claim, or the user that runs this.
            force: Do it whoever holds the candidate and whatever the store's table of
                transitions says; the audit says so.
            **fields: Other fields to set.

        Raises:
            UnknownCandidateError: There is none.
            BeingSynthesizedError: Another holds it.
            LeaseLostError: The token is not that of its claim.
            TransitionRefusedError: The store's table does not allow it.
            BeingPublishedError: Its draft is being published.
            RefusedError: A field cannot be kept, or is not to be changed.
        """
        return self.change(
            candidate_id,
            check_status(status),
            fields,
            event_type=event_type,
            payload=payload,
            token=token,
            actor=actor,
            force=force,
        )

    def change(
        self,
        candidate_id: str,
        status: str | None,
        fields: Mapping[str, Any],
        *,
        event_type: str | None = None,
        payload: Mapping[str, Any] | None = None,
        token: int | None = None,
        actor: str | None = None,
        force: bool = False,
    ) -> Candidate:
        """Do what `transition` does, or with no status `update`, to fields of any name.

        Those two take fields as arguments, so that one cannot be called `token` there.
        """
        check_id(candidate_id, "candidate")
        if event_type is None:
            event_type = "candidate_updated" if status is None else f"candidate_{status}"
        what = f"candidate {candidate_id}"
        self._check_base(candidate_id, fields.get("base"))
        changes = encode_document(dict(fields), what) if fields else None
        told = encode_document({} if payload is None else dict(payload), f"payload of {what}")

        def decide(state: State) -> Sequence[Event]:
            by = actor
            if by is None and token is not None:
                _, row = find_row(state, candidate_id)
                by = row.held.owner if row.held else None
            return [
                of(
                    "changed",
                    id=candidate_id,
                    now=self._now(),
                    to=status,
                    set=changes,
                    event_type=event_type,
                    payload=told,
                    actor=acting(by),
                    token=token,
                    forced=force or None,
                )
            ]

        self._append(decide)
        return self._candidate(self._seen(), candidate_id)

    def _check_base(self, candidate_id: str, base: object) -> None:
        """See that the skill that a candidate says it is about, if it does, is there."""
        if base is not None:
            from cas.learning.drafts import find_base  # late: it reads objects

            find_base(self._context, candidate_id, base)

    # --- looking ---------------------------------------------------------------------------------

    def get(self, candidate_id: str) -> Candidate:
        """Return a candidate.

        Raises:
            UnknownCandidateError: There is none.
        """
        check_id(candidate_id, "candidate")
        return self._candidate(self._state(), candidate_id)

    def counts(self) -> dict[str, int]:
        """Return how many candidates there are of each status, sorted by status."""
        counts: dict[str, int] = {}
        for key, number in self._state().scan(COUNT):
            status = key[len(COUNT) :].partition(b"\x00")[0].decode()
            counts[status] = counts.get(status, 0) + int.from_bytes(number, "big")
        return counts

    def merge_candidates(self) -> list[Candidate]:
        """Return the open candidates of the kind `merge_skills`, oldest first."""
        return self.list(OPEN, MERGE)

    def each(self, status: str | None = None, kind: str | None = None) -> Iterator[Candidate]:
        """Give candidates as `list` does, without having them all in memory."""
        state = self._state()
        if kind is not None:
            check_id(kind, "kind")
        if status is not None:
            check_status(status)
        if status is None and kind is None:
            for key, encoded in state.scan(ROW):
                place = key[len(ROW) :]
                yield candidate_of(Row.decode(encoded), state.get(body_key(place)))
            return
        for place in _places(state, status, kind):
            yield read_candidate(state, place)

    def list(self, status: str | None = None, kind: str | None = None) -> list[Candidate]:
        """Return candidates in the order in which they were recorded.

        Args:
            status: Only those that have it now.
            kind: Only those of this kind.

        Raises:
            NameRefusedError: One of them is not in its grammar.
        """
        return [*self.each(status, kind)]

    def _candidate(self, state: State, candidate_id: str) -> Candidate:
        place, row = find_row(state, candidate_id)
        return candidate_of(row, state.get(body_key(place)))


def recorded_event(candidate: Candidate, by: str) -> dict[str, Any]:
    """Return the event that adds a candidate, without its time."""
    rest = {"reason": candidate.reason, "last_error": candidate.last_error}
    body = candidate.extra | rest
    return of(
        "recorded",
        id=candidate.candidate_id,
        kind=candidate.kind,
        status=candidate.status,
        draft_skill_name=candidate.draft_skill_name,
        draft_id=candidate.draft_id,
        created_at=candidate.created_at,
        updated_at=candidate.updated_at,
        body=encode_document(body, f"candidate {candidate.candidate_id}"),
        actor=by,
    )


def _places(state: State, status: str | None, kind: str | None) -> Iterator[bytes]:
    """Give the places of candidates by status, kind or both, oldest first."""
    if kind is None:
        assert status is not None
        prefix = status_prefix(status)
    else:
        prefix = kind_prefix(kind, status)
    keys = (key[-12:] for key, _ in state.scan(prefix))
    return keys if status is not None else iter(sorted(keys))
