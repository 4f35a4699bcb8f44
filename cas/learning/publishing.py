"""Publishing: the draft of a candidate becomes the next version of its resource, once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas.catalogue.context import doing
from cas.codec import decode_sealed
from cas.errors import ConflictError, NotFoundError, RefusedError
from cas.learning.draft_steps import Draft, Intent, find_draft
from cas.learning.drafts import the_draft
from cas.learning.ids import check_id
from cas.learning.journal import Journal, acting, of
from cas.learning.keys import report_prefix
from cas.learning.knowledge_steps import EVAL, SAFETY
from cas.learning.rows import Row, find_row, read_candidate
from cas.names import check_text, parse_spec
from cas.refs import PUBLICATION_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cas.catalogue.version import Version
    from cas.eventlog import Event, State
    from cas.learning.model import Candidate


@dataclass(frozen=True, slots=True)
class Published:
    """What a publication made, or had made before.

    Attributes:
        candidate: The candidate, as it is now.
        version: The version that its draft is in.
        unchanged: Whether it was published before, here or where it came from, or another process
            was quicker.
    """

    candidate: Candidate
    version: Version
    unchanged: bool

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return self.version.to_json() | {
            "unchanged": self.unchanged,
            "candidate_id": self.candidate.candidate_id,
            "candidate": self.candidate.to_dict(),
        }


class Publishing(Journal):
    """Publications of drafts."""

    def publish(
        self,
        candidate_id: str,
        description: str = "",
        *,
        token: int | None = None,
        actor: str | None = None,
    ) -> Published:
        """Make the next version of a resource with one skill replaced by a candidate's draft.

        The version goes on top of the newest one, and holds of it all but the skill; the skill
        must be there what the draft was made from. The candidate becomes `published` and the audit
        has it, all as one step: killed at any point, it is brought to its end, or undone, by
        whoever looks at a candidate next, and publishing again goes on where it was left. A
        candidate that was published already gives the same version again; so does one whose
        version came from another store, or out of a repair, and names it and its draft.

        The version says in `meta` which `candidate` and `draft` it is from, and which
        `safety_report` and `eval_report`, the last ones on the draft, speak for it.

        Args:
            candidate_id: The candidate.
            description: Why, for the version.
            token: The claim that it is done under. Without one, nobody must hold the candidate.
            actor: Who publishes; by default the holder of the claim, or the user that runs this.

        Raises:
            UnknownCandidateError: There is none.
            NotFoundError: It has no draft, or was published as a version that is lost.
            ConflictError: The skill was changed since the version that the draft is made from, or
                the candidate has another base by now.
            BeingSynthesizedError: Another holds it.
            LeaseLostError: The token is not that of its claim.
            TransitionRefusedError: The store's table does not allow it.
        """
        from cas.catalogue.publication import publish_part
        from cas.learning.settling import being_published, conclude, publication_of

        check_id(candidate_id, "candidate")
        check_text(description, "description")
        context = self._context
        own = os.urandom(PUBLICATION_SIZE)
        with doing(f"publishing candidate {candidate_id}"), being_published(context):
            self._append(
                lambda state: self._intend(state, candidate_id, own, description, token, actor)
            )
            state = self._seen()
            at, row = find_row(state, candidate_id)
            draft = the_draft(state, at, candidate_id)
            made = False
            if draft.published is None:
                if row.intent is None:
                    raise ConflictError(
                        f"candidate {candidate_id} took so long to publish that another process "
                        "gave it up; publish it again",
                        candidate_id=candidate_id,
                    )
                intent = Intent._make(row.intent)
                decision = publish_part(context, publication_of(candidate_id, draft, intent))
                log = self._open()
                assert log is not None
                conclude(context, log, candidate_id, intent, decision)
                if decision.version is None:
                    raise ConflictError(decision.reason, candidate_id=candidate_id)
                made = intent.identity == own and not decision.there
            return self._published(candidate_id, unchanged=not made)

    def _intend(
        self,
        state: State,
        candidate_id: str,
        identity: bytes,
        description: str,
        token: int | None,
        actor: str | None,
    ) -> Sequence[Event]:
        """Return the intent, or nothing where the draft is published or about to be."""
        at, row = find_row(state, candidate_id)
        draft = the_draft(state, at, candidate_id)
        if draft.published is not None or row.intent is not None:
            return []
        self._check_same_base(state, at, candidate_id, draft)
        by = row.held.owner if actor is None and row.held else actor
        return [
            of(
                "publishing",
                id=candidate_id,
                publication=identity,
                now=self._now(),
                actor=acting(by),
                token=token,
                description=description,
                reports=list(_latest_reports(state, row)),
            )
        ]

    def _published(self, candidate_id: str, *, unchanged: bool) -> Published:
        from cas.catalogue.version import version_from_ref

        state = self._seen()
        at, _ = find_row(state, candidate_id)
        draft = find_draft(state, at)
        assert draft is not None
        assert draft.published is not None
        resource, number = draft.published
        self._context.refs.refresh()
        ref = self._context.refs.version(resource, number)
        version = None if ref is None else version_from_ref(ref)
        if version is None or version.meta.get("candidate") != candidate_id:
            spec = f"{resource}@v{number}"
            raise NotFoundError(
                f"candidate {candidate_id} was published as {spec}, and that version is lost; "
                "repair the store from one that has it, or record another candidate",
                candidate_id=candidate_id,
                version=spec,
            )
        return Published(read_candidate(state, at), version, unchanged)

    def _check_same_base(self, state: State, at: bytes, candidate_id: str, draft: Draft) -> None:
        """See that a draft is made from what its candidate names now.

        Raises:
            ConflictError: It is not.
        """
        base = read_candidate(state, at).extra.get("base")
        try:
            spec = parse_spec(str(base))
            same = (spec.name, spec.number, spec.path) == (draft.resource, draft.number, draft.path)
        except RefusedError:
            same = False
        if not same:
            raise ConflictError(
                f"the base of candidate {candidate_id} is another one now than its draft is made "
                "from; give it a draft that is made from that",
                candidate_id=candidate_id,
            )


def _latest_reports(state: State, row: Row) -> Iterator[str]:
    """Give the last safety and the last eval report on a draft, as ``safety/ID``, if there are."""
    if row.draft_skill_name is None or row.draft_id is None:
        return
    for kind in (SAFETY, EVAL):
        prefix = report_prefix(kind, row.draft_skill_name, row.draft_id)
        for _, encoded in state.scan(prefix, reverse=True):
            yield f"{kind}/{decode_sealed(encoded)[0]}"
            break
