"""Drafts: what a candidate would make of a skill, stored like everything else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cas.catalogue.context import doing
from cas.digest import Digest
from cas.errors import ConflictError, NotFoundError, RefusedError
from cas.learning.draft_steps import Draft, check_unpublished, find_draft
from cas.learning.ids import check_file_id, check_id
from cas.learning.journal import Journal, acting, of
from cas.learning.rows import find_row, read_candidate
from cas.learning.rules import check_leaving, check_published, check_token
from cas.learning.status import DRAFT_READY, check_status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cas.catalogue.context import Context
    from cas.catalogue.diff import Diff
    from cas.catalogue.publication import Part
    from cas.catalogue.sources import Source, Taken
    from cas.eventlog import Event, State
    from cas.learning.model import Candidate
    from cas.progress import Progress

DRAFT_ID_DIGITS = 16
"""Digits of a draft's digest that are its id."""

# Imports inside the methods below are late for start-up time: they need what stores content.


@dataclass(frozen=True, slots=True)
class Drafted:
    """The draft of a candidate.

    Attributes:
        kind: `tree` or `blob`.
        digest: Its digest, which is a spec of it.
        files: Recursive count of what is not a directory.
        bytes: Recursive sum of sizes.
        base: The spec of what it is made from.
        published_as: The spec of the version that it was published as; None if it was not.
    """

    kind: str
    digest: Digest
    files: int
    bytes: int
    base: str
    published_as: str | None


class Drafts(Journal):
    """The drafts of candidates."""

    def draft(
        self,
        candidate_id: str,
        source: Source,
        *,
        status: str = DRAFT_READY,
        token: int | None = None,
        actor: str | None = None,
        ignore: bool = True,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> Candidate:
        """Give a candidate its draft: what its skill is to become.

        The candidate names its skill in the field `base`, as `skills@v3:NAME`. The draft is kept
        from gc from then on. One that the candidate had before is replaced, unless it was
        published.

        Args:
            candidate_id: The candidate.
            source: A directory; a file where the skill is one; or a spec of either.
            status: What the candidate becomes with it.
            token: The claim that it is done under. Without one, nobody must hold the candidate.
            actor: Who does it; by default the holder of the claim, or the user that runs this.
            ignore: Honour `.casignore` files.
            workers: How many processes read and hash; by default as many as pay.
            progress: Called with what was done so far.

        Returns:
            The candidate. Its `draft_id`, by which reports name the draft, is the beginning of
            the draft's digest, and a spec of it; its `draft_digest` is all of it.

        Raises:
            UnknownCandidateError: There is none.
            NotFoundError: There is nothing at `source`, or no such base.
            RefusedError: The candidate has no base, the draft is what the base is already, or one
                of them is a file and the other a directory.
            ConflictError: The candidate was published.
            BeingSynthesizedError: Another holds it.
            LeaseLostError: The token is not that of its claim.
            TransitionRefusedError: The store's table does not allow it.
        """
        from cas.catalogue.publish import publishing
        from cas.catalogue.sources import Taker

        check_id(candidate_id, "candidate")
        check_status(status)
        context = self._context
        with doing(f"taking in a draft of candidate {candidate_id}"), publishing(context) as writer:
            text = self._check_draftable(self._state(), candidate_id, status, token)
            base = find_base(context, candidate_id, text)
            taker = Taker(context, writer, ignore=ignore, workers=workers, progress=progress)
            taken = taker.take(source)
            _compare(candidate_id, base, taken)
            writer.flush()
            event = of(
                "drafted",
                id=candidate_id,
                to=status,
                token=token,
                draft_id=taken.digest.hex()[:DRAFT_ID_DIGITS],
                skill=_skill(base.path),
                draft_type=taken.type,
                size=taken.size,
                digest=bytes(taken.digest),
                files=taken.files,
                resource=base.resource,
                number=base.number,
                path=base.path,
                base_type=base.content[0],
                base_size=base.content[1],
                base_digest=base.content[2],
            )

            def decide(state: State) -> Sequence[Event]:
                if self._check_draftable(state, candidate_id, status, token) != text:
                    raise ConflictError(
                        f"the base of candidate {candidate_id} was changed meanwhile; try again",
                        candidate_id=candidate_id,
                    )
                at, row = find_row(state, candidate_id)
                by = row.held.owner if actor is None and row.held else actor
                had = read_candidate(state, at).draft_skill_name
                told = {**event, "now": self._now(), "actor": acting(by)}
                if had is not None:
                    told.pop("skill", None)
                return [told]

            self._append(decide)
        state = self._seen()
        return read_candidate(state, find_row(state, candidate_id)[0])

    def drafted(self, candidate_id: str) -> Drafted:
        """Return the draft that a candidate has.

        Raises:
            UnknownCandidateError: There is no such candidate.
            NotFoundError: It has no draft.
        """
        draft = self._draft(candidate_id)
        return Drafted(
            kind="tree" if draft.type == "d" else "blob",
            digest=Digest(draft.digest),
            files=draft.files,
            bytes=draft.size,
            base=draft.base,
            published_as=None if draft.published is None else "{}@v{}".format(*draft.published),
        )

    def diff(self, candidate_id: str) -> Diff:
        """Compare the draft of a candidate with what it is made from.

        Where the skill is one file, its path in the result is the file's name.

        Raises:
            UnknownCandidateError: There is none.
            NotFoundError: It has no draft.
        """
        from cas.catalogue.diff import Change, Diff, State, diff_trees
        from cas.catalogue.resolve import TYPE_WORDS

        draft = self._draft(candidate_id)
        if draft.type == "d":
            with doing(f"comparing the draft of candidate {candidate_id} with its base"):
                read = self._context.objects.read
                return diff_trees(read, draft.base_digest, draft.digest)
        change = Change(
            draft.path.rpartition(b"/")[2],
            State(TYPE_WORDS[draft.base_type], draft.base_size, Digest(draft.base_digest)),
            State(TYPE_WORDS[draft.type], draft.size, Digest(draft.digest)),
        )
        return Diff(added=(), removed=(), changed=(change,), renamed=())

    def diff_text(self, candidate_id: str, path: str = "") -> Iterator[str]:
        """Yield a unified diff of one file of the draft against its base, without line ends.

        Args:
            candidate_id: The candidate.
            path: The file inside the skill; empty where the skill is one file.

        Raises:
            UnknownCandidateError: There is none.
            NotFoundError: It has no draft, or neither side has the file.
            RefusedError: It is no file, or too large to compare as text.
        """
        from cas import names
        from cas.catalogue.sides import stored_content
        from cas.catalogue.textdiff import unified

        draft = self._draft(candidate_id)
        inside = names.check_path(os.fsencode(path).strip(b"/"))
        with doing(f"comparing the draft of candidate {candidate_id} with its base"):
            objects = self._context.objects
            sides = (
                (draft.base_type, draft.base_size, draft.base_digest),
                (draft.type, draft.size, draft.digest),
            )
            old, new = (stored_content(objects, content, inside) for content in sides)
            shown = os.fsdecode(inside or draft.path.rpartition(b"/")[2])
            if old is None and new is None:
                raise NotFoundError(
                    f"neither the draft of candidate {candidate_id} nor its base has the file "
                    f"{shown}",
                    path=shown,
                )
            yield from unified(old, new, f"a/{shown}", f"b/{shown}")

    def _draft(self, candidate_id: str) -> Draft:
        check_id(candidate_id, "candidate")
        state = self._state()
        at, _ = find_row(state, candidate_id)
        return the_draft(state, at, candidate_id)

    def _check_draftable(
        self, state: State, candidate_id: str, status: str, token: int | None
    ) -> object:
        """See that a candidate can be given a draft, and return its base as it names it."""
        at, row = find_row(state, candidate_id)
        check_unpublished(candidate_id, find_draft(state, at))
        check_published(row)
        if token is not None:
            check_token(row, token)
        check_leaving(row, status, self._now(), token=token, forced=False)
        return read_candidate(state, at).extra.get("base")


def find_base(context: Context, candidate_id: str, text: object) -> Part:
    """Return the part of a version that a candidate names as its base.

    Raises:
        NotFoundError: There is no such version, or nothing at the path.
        RefusedError: It is not written `RESOURCE@vN:PATH`, or what it names is a link.
    """
    from cas.catalogue.publication import find_part

    if not isinstance(text, str):
        raise RefusedError(
            f"candidate {candidate_id} does not say which skill it is about; give it a base, "
            "such as skills@v3:NAME",
            candidate_id=candidate_id,
        )
    with doing(f"looking up the base of candidate {candidate_id}"):
        return find_part(context, text)


def the_draft(state: State, at: bytes, candidate_id: str) -> Draft:
    """Return the draft of the candidate at a place.

    Raises:
        NotFoundError: It has none.
    """
    draft = find_draft(state, at)
    if draft is None:
        raise NotFoundError(
            f"candidate {candidate_id} has no draft; give it one with "
            f"`cas learn draft {candidate_id} DIR`",
            candidate_id=candidate_id,
        )
    return draft


def _compare(candidate_id: str, base: Part, taken: Taken) -> None:
    """See that content can be a draft of a part.

    Raises:
        RefusedError: It is what the part is already, or a file in place of a directory, or the
            other way round.
    """
    kind, _, digest = base.content
    if (taken.type == "d") != (kind == "d"):
        there, comes = ("a directory", "a file") if kind == "d" else ("a file", "a directory")
        raise RefusedError(
            f"{base.spec} is {there}, and the draft of candidate {candidate_id} is {comes}",
            candidate_id=candidate_id,
        )
    if (taken.type, bytes(taken.digest)) == (kind, digest):
        raise RefusedError(
            f"no changes: the draft of candidate {candidate_id} is what {base.spec} is already",
            candidate_id=candidate_id,
        )


def _skill(path: bytes) -> str | None:
    """Return the name of a skill as reports give it: the last name of its path, if it is one."""
    try:
        return check_file_id(path.rpartition(b"/")[2].decode(), "skill")
    except ValueError:
        return None
