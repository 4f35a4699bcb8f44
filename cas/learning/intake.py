"""Taking in what came from elsewhere: candidates with their audit, performance and reports."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cas.codec import decode_sealed, encode
from cas.learning.audit import entry_at, find_event
from cas.learning.board import recorded_event
from cas.learning.document import encode_document
from cas.learning.import_steps import is_there, stale
from cas.learning.journal import Journal, acting, of
from cas.learning.keys import performance_key, report_id_key, report_prefix
from cas.learning.model import AuditEvent, Candidate, PerformanceSnapshot
from cas.learning.performance import performance_event
from cas.learning.reports import report_event
from cas.learning.rows import ns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cas.eventlog import State
    from cas.learning.model import EvalReport, SafetyReport
    from cas.objects import ObjectWriter

    _Report = SafetyReport | EvalReport

PART: Final = 4 << 20
"""Bytes of events that one record of an import takes, about."""
ABANDONED: Final = 24 * 3600 * 10**9
"""Nanoseconds after which an import that came to no end is dropped by the next one."""


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What an import brought.

    Attributes:
        candidates: How many are new.
        audit_events: How many are new.
        performance: How many snapshots are new.
        reports: How many are new.
        known: How many of all these were here before, and stayed as they are here.
        differing: What was here before under its name and says something else here; none of it
            was taken in.
    """

    candidates: int
    audit_events: int
    performance: int
    reports: int
    known: int
    differing: tuple[str, ...]


class Intake(Journal):
    """Imports into the learning log."""

    def take_in(
        self,
        *,
        candidates: Iterable[Candidate] = (),
        audit: Iterable[AuditEvent] = (),
        performance: Iterable[PerformanceSnapshot] = (),
        reports: Iterable[SafetyReport | EvalReport] = (),
        actor: str | None = None,
    ) -> TakenIn:
        """Take in what was recorded elsewhere, with its own times and ids: all of it or nothing.

        What is here already stays as it is here, so an import may be repeated, and a candidate
        that was worked at since keeps its new status. The audit is that which comes with the
        candidates; its events may be about candidates that are not there.

        Args:
            candidates: Of an id that comes twice, the first counts.
            audit: In order; likewise.
            performance: Of a version of a skill that comes twice, the last counts.
            reports: In order; the first of an id counts. One with no time gets that of now.
            actor: Who does it; by default the user that runs this.

        Raises:
            RefusedError: Something of it cannot be kept; nothing was taken in.
            EnvironmentFailure: The medium is full or fails; likewise.
        """
        from cas.catalogue.publish import publishing  # late: start-up time

        by = acting(actor)
        newest = {(shot.skill_name, shot.version): shot for shot in performance}
        state = self._state()
        taking = _Taking(state, self._context.id, self._now())
        everything = taking.events(candidates, audit, newest.values())
        reports = list(reports)
        # Reports may become objects, which gc must not sweep before the log names them.
        with publishing(self._context) if reports else nullcontext() as writer:
            pieces = list(_pieces(_with_reports(everything, taking, reports, by, writer)))
            if writer is not None:
                writer.flush()
            if pieces:
                self._write(pieces)
        return taking.result()

    def _write(self, pieces: Sequence[bytes]) -> None:
        """Append an import that consists of these lists of events."""
        for import_id in stale(self._seen(), self._now() - ABANDONED):
            self._append_all([of("import-dropped", id=import_id)])
        import_id = os.urandom(8).hex()
        for number, piece in enumerate(pieces[:-1]):
            part = of("import-part", id=import_id, part=number, events=piece, now=self._now())
            self._append_all([part])
        parts = len(pieces) - 1
        self._append_all([of("imported", id=import_id, parts=parts, events=pieces[-1])])


def check_fits(value: Candidate | AuditEvent | PerformanceSnapshot | _Report) -> None:
    """See that `Intake.take_in` takes a value, whose fields were checked.

    Raises:
        RefusedError: It does not; one such value would refuse the whole import.
    """
    if isinstance(value, Candidate):
        recorded_event(value, "import")
    elif isinstance(value, AuditEvent):
        _audited(value)
    elif isinstance(value, PerformanceSnapshot):
        performance_event(value)
    else:
        report_event(value, "import")


class _Taking:
    """Sorts out what is new."""

    def __init__(self, state: State, store_id: str, now: int) -> None:
        self._state = state
        self._now = now
        self._store_id = store_id
        self._names: set[tuple[str, ...]] = set()
        self._counts = {"recorded": 0, "audited": 0, "performance": 0, "report": 0}
        self._known = 0
        self._differing: list[str] = []

    def events(
        self,
        candidates: Iterable[Candidate],
        audit: Iterable[AuditEvent],
        performance: Iterable[PerformanceSnapshot],
    ) -> Iterator[dict[str, Any]]:
        for candidate in candidates:
            event = recorded_event(candidate.checked(), "import") | {"quiet": True}
            if self.is_new(event, (event["id"],)):
                yield event
        for told in map(AuditEvent.checked, audit):
            event = _audited(told)
            if self.is_new(event, (event["event_id"],)):
                yield event
            else:
                self._compare_audit(told)
        for snapshot in performance:
            event = performance_event(snapshot.checked())
            if self.is_new(event, (event["skill_name"], event["version"])):
                yield event
            else:
                self._compare_performance(event)

    def is_new(self, event: dict[str, Any], name: tuple[str, ...]) -> bool:
        """Count an event, and say whether what it brings is not there yet."""
        kind = event["type"]
        if (kind, *name) in self._names or is_there(self._state, event):
            self._known += 1
            return False
        self._names.add((kind, *name))
        self._counts[kind] += 1
        event["now"] = self._now
        return True

    def compare_report(self, event: dict[str, Any]) -> None:
        names = (event["kind"], event["skill_name"], event["draft_id"])
        place = self._state.get(report_id_key(*names, event["id"]))
        found = None if place is None else self._state.get(report_prefix(*names) + place)
        if found is not None and decode_sealed(found)[4] != event["digest"]:
            self._differs(f"{names[0]} report {event['id']} on {names[1]} {names[2]}")

    def _compare_audit(self, told: AuditEvent) -> None:
        place = find_event(self._state, told.event_id)
        if place is not None:
            found = entry_at(self._state, place, self._store_id)
            if found != replace(told, created_at=told.created_at or found.created_at):
                self._differs(f"audit event {told.event_id}")

    def _compare_performance(self, event: dict[str, Any]) -> None:
        name = event["skill_name"], event["version"]
        if self._state.get(performance_key(*name)) not in (None, event["body"]):
            self._differs(f"the performance of {name[0]} {name[1]}")

    def _differs(self, what: str) -> None:
        self._known -= 1
        self._differing.append(what)

    def result(self) -> TakenIn:
        return TakenIn(
            candidates=self._counts["recorded"],
            audit_events=self._counts["audited"],
            performance=self._counts["performance"],
            reports=self._counts["report"],
            known=self._known,
            differing=tuple(self._differing),
        )


def _with_reports(
    events: Iterable[dict[str, Any]],
    taking: _Taking,
    reports: Sequence[SafetyReport | EvalReport],
    by: str,
    writer: ObjectWriter | None,
) -> Iterator[dict[str, Any]]:
    """Give events, then those of the new reports, whose content is stored if it is long."""
    yield from events
    for report in reports:
        event, content = report_event(report, by)
        names = (event["kind"], event["skill_name"], event["draft_id"], event["id"])
        if not taking.is_new(event, names):
            taking.compare_report(event)
            continue
        if report.recorded_at:
            event["now"] = ns_of(report.recorded_at)
        if "content" not in event:
            assert writer is not None
            writer.put(content)
        yield event


def _audited(event: AuditEvent) -> dict[str, Any]:
    """Return the event that takes in an audit event."""
    return of(
        "audited",
        id=event.candidate_id,
        event_id=event.event_id,
        event_type=event.event_type,
        created_at=event.created_at,
        actor=event.actor,
        payload=encode_document(event.payload, f"payload of audit event {event.event_id}"),
        extra=encode_document(event.extra, f"audit event {event.event_id}"),
        to=event.to_status,
        token=event.token,
        forced=event.forced or None,
        **{"from": event.from_status},
    )


def _pieces(events: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Encode events as lists of about `PART` bytes each."""
    piece: list[dict[str, Any]] = []
    size = 0
    for event in events:
        piece.append(event)
        size += 200 + sum(len(value) for value in event.values() if isinstance(value, bytes))
        if size >= PART:
            yield encode(piece)
            piece, size = [], 0
    if piece:
        yield encode(piece)
