"""Reports on drafts: whether they are safe, and how well they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from cas.codec import decode_sealed
from cas.digest import Digest, raw_hash
from cas.errors import ConflictError, NotFoundError
from cas.learning.document import MAX_REPORT, decode_document, encode_document
from cas.learning.ids import check_file_id
from cas.learning.journal import Journal, acting, of
from cas.learning.keys import HELD, REPORT, report_id_key, report_prefix
from cas.learning.knowledge_steps import EVAL, INLINE, SAFETY
from cas.learning.model import EvalReport, SafetyReport
from cas.learning.rows import iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cas.eventlog import Event, State

_R = TypeVar("_R", SafetyReport, EvalReport)
_KINDS: dict[type[SafetyReport | EvalReport], str] = {
    SafetyReport: SAFETY,
    EvalReport: EVAL,
}


class Reports(Journal):
    """The safety and eval reports of a store."""

    def add_safety_report(self, report: SafetyReport, *, actor: str | None = None) -> SafetyReport:
        """Add a safety report on a draft.

        Args:
            report: The report; a long one becomes an object of the store.
            actor: Who adds it; by default the user that runs this.

        Returns:
            It, with the time that the store gave it; the one that is there if it is the same.

        Raises:
            ConflictError: There is one of this id that says something else.
            RefusedError: It cannot be kept.
        """
        return self._add_report(report, actor)

    def add_eval_report(self, report: EvalReport, *, actor: str | None = None) -> EvalReport:
        """Add an eval report on a draft, as `add_safety_report`."""
        return self._add_report(report, actor)

    def safety_report(
        self, skill_name: str, draft_id: str, report_id: str | None = None
    ) -> SafetyReport:
        """Return a safety report on a draft, by default the one that was added last.

        Raises:
            NotFoundError: There is none.
        """
        return self._report(SafetyReport, skill_name, draft_id, report_id)

    def eval_report(
        self, skill_name: str, draft_id: str, report_id: str | None = None
    ) -> EvalReport:
        """Return an eval report on a draft, by default the one that was added last.

        Raises:
            NotFoundError: There is none.
        """
        return self._report(EvalReport, skill_name, draft_id, report_id)

    def safety_reports(self, skill_name: str, draft_id: str) -> list[SafetyReport]:
        """Return the safety reports on a draft in the order in which they were added."""
        return self._reports(SafetyReport, skill_name, draft_id)

    def eval_reports(self, skill_name: str, draft_id: str) -> list[EvalReport]:
        """Return the eval reports on a draft in the order in which they were added."""
        return self._reports(EvalReport, skill_name, draft_id)

    def drafts(self, kind: type[SafetyReport | EvalReport]) -> Iterator[tuple[str, str]]:
        """Give each skill and draft that there are reports of a kind on, sorted."""
        before = None
        prefix = REPORT + _KINDS[kind].encode() + b"\x00"
        for key, _ in self._state().scan(prefix):
            skill_name, draft_id, _ = key[len(prefix) :].split(b"\x00", 2)
            if (skill_name, draft_id) != before:
                before = skill_name, draft_id
                yield skill_name.decode(), draft_id.decode()

    def kept_digests(self) -> Iterator[tuple[Digest, str, str]]:
        """Give the objects that the log keeps alive: digest, `blob` or `tree`, and who holds it.

        The holder is `learn:` and the candidate's id for a draft, and
        `learn:safety/SKILL/DRAFT/REPORT` or `learn:eval/…` for a report.
        """
        for key, kind in self._as_it_is().scan(HELD):
            digest, label = key[len(HELD) : len(HELD) + 32], key[len(HELD) + 33 :]
            yield Digest(digest), kind.decode(), label.decode()

    def _add_report(self, report: _R, actor: str | None) -> _R:
        event, content = report_event(report, acting(actor))
        names = (event["kind"], report.skill_name, report.draft_id)

        def decide(state: State) -> Sequence[Event]:
            place = state.get(report_id_key(*names, report.report_id))
            if place is None:
                return [{**event, "now": self._now()}]
            found = state.get(report_prefix(*names) + place)
            assert found is not None, "the fold writes both together"
            if decode_sealed(found)[4] != event["digest"]:
                raise ConflictError(
                    f"{names[0]} report {report.report_id} on {names[1]} {names[2]} exists and "
                    "says something else; add it under another id",
                    report_id=report.report_id,
                )
            return []

        if "content" in event:
            self._append(decide)
        else:
            from cas.catalogue.publish import publishing  # late: start-up time

            with publishing(self._context) as writer:
                writer.put(content)
                writer.flush()
                self._append(decide)
        return self._find_report(self._seen(), type(report), names, report.report_id)

    def _report(self, kind: type[_R], skill_name: str, draft_id: str, report_id: str | None) -> _R:
        return self._find_report(self._state(), kind, _names(kind, skill_name, draft_id), report_id)

    def _reports(self, kind: type[_R], skill_name: str, draft_id: str) -> list[_R]:
        names = _names(kind, skill_name, draft_id)
        found = self._state().scan(report_prefix(*names))
        return [self._read_report(kind, names, encoded) for _, encoded in found]

    def _find_report(
        self, state: State, kind: type[_R], names: tuple[str, str, str], report_id: str | None
    ) -> _R:
        prefix = report_prefix(*names)
        encoded = None
        if report_id is None:
            _, encoded = next(state.scan(prefix, reverse=True), (b"", None))
        else:
            check_file_id(report_id, "report")
            place = state.get(report_id_key(*names, report_id))
            encoded = None if place is None else state.get(prefix + place)
        if encoded is None:
            which = "" if report_id is None else f" {report_id}"
            raise NotFoundError(
                f"{names[0]} report{which} on {names[1]} {names[2]} not found",
                skill_name=names[1],
                draft_id=names[2],
                report_id=report_id,
            )
        return self._read_report(kind, names, encoded)

    def _read_report(self, kind: type[_R], names: tuple[str, str, str], encoded: bytes) -> _R:
        report_id, at, _actor, _size, digest, content = decode_sealed(encoded)
        if content is None:
            content = self._context.objects.read(digest, max_bytes=MAX_REPORT)
        return kind(names[1], names[2], report_id, decode_document(content), iso(at))


def report_event(report: SafetyReport | EvalReport, by: str) -> tuple[dict[str, Any], bytes]:
    """Return the event that adds a report, without its time, and the report's bytes.

    Raises:
        RefusedError: It cannot be kept.
    """
    report.check_names()
    kind = _KINDS[type(report)]
    what = f"{kind} report {report.report_id}"
    content = encode_document(report.content, what, max_bytes=MAX_REPORT)
    event = of(
        "report",
        kind=kind,
        skill_name=report.skill_name,
        draft_id=report.draft_id,
        id=report.report_id,
        digest=raw_hash(content),
        size=len(content),
        content=content if len(content) <= INLINE else None,
        actor=by,
    )
    return event, content


def _names(
    kind: type[SafetyReport | EvalReport], skill_name: str, draft_id: str
) -> tuple[str, str, str]:
    check_file_id(skill_name, "skill")
    check_file_id(draft_id, "draft")
    return _KINDS[kind], skill_name, draft_id
