"""Steps of the fold for what is known of skills and drafts: performance and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cas.codec import encode_plain
from cas.digest import raw_hash
from cas.errors import ConflictError, RefusedError
from cas.learning.document import MAX_DOCUMENT, MAX_REPORT
from cas.learning.fields import digest_of, document_of, id_of, map_of, number_of
from cas.learning.ids import check_file_id
from cas.learning.keys import held_key, performance_key, report_id_key, report_prefix
from cas.learning.model import PerformanceSnapshot

if TYPE_CHECKING:
    from cas.eventlog import MutableState
    from cas.learning.keys import Place

SAFETY: Final = "safety"
EVAL: Final = "eval"
INLINE: Final = 4 << 10
"""Bytes up to which a report lies in the log; a longer one is an object of the store."""


def set_performance(state: MutableState, event: dict[str, Any], _place: Place) -> None:
    """Set the snapshot of a version of a skill."""
    snapshot = PerformanceSnapshot.from_dict(map_of(event, "body", max_bytes=MAX_DOCUMENT))
    snapshot.checked()
    if (snapshot.skill_name, snapshot.version) != (event.get("skill_name"), event.get("version")):
        raise RefusedError("a performance event names the skill and version that it is about")
    state.put(performance_key(snapshot.skill_name, snapshot.version), event["body"])


def add_report(state: MutableState, event: dict[str, Any], place: Place) -> None:
    """Add a report on a draft; one of its name must not be there."""
    kind = event.get("kind")
    if kind not in (SAFETY, EVAL):
        raise RefusedError(f"a report is {SAFETY} or {EVAL}")
    skill, draft, report = (
        check_file_id(event.get(field), what)
        for field, what in (("skill_name", "skill"), ("draft_id", "draft"), ("id", "report"))
    )
    size, digest = number_of(event, "size"), digest_of(event)
    content = event.get("content")
    if content is not None:
        document_of(event, "content", max_bytes=INLINE)
        if len(content) != size or raw_hash(content) != digest:
            raise RefusedError("the content of a report does not have its digest and size")
    elif not INLINE < size <= MAX_REPORT:
        raise RefusedError(f"a report of {size} bytes is no object of its own")
    key = report_id_key(kind, skill, draft, report)
    if state.get(key) is not None:
        raise ConflictError(
            f"{kind} report {report} on {skill} {draft} exists; add it under another id",
            report_id=report,
        )
    state.put(key, place.key)
    value = [report, number_of(event, "now"), id_of(event, "actor", "actor"), size, digest, content]
    state.put(report_prefix(kind, skill, draft) + place.key, encode_plain(value))
    if content is None:
        state.put(held_key(digest, f"learn:{kind}/{skill}/{draft}/{report}"), b"blob")
