"""The learning log's fold: what each event does to the state, and what it may not do.

The events and keys are specified in `docs/format.md`, "The learning log's events". Every rule is
enforced here: an event that breaks one is refused before its record is written, whoever wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cas.codec import encode
from cas.errors import NewerFormatError, RefusedError
from cas.learning.audit_steps import add_audit
from cas.learning.candidate_steps import change, configure, record
from cas.learning.claim_steps import claim, release, renew
from cas.learning.draft_steps import attach, conclude, intend
from cas.learning.fields import number_of
from cas.learning.import_steps import drop_parts, keep_part, take_in
from cas.learning.keys import INIT, TOKEN_SHIFT, Place
from cas.learning.knowledge_steps import add_report, set_performance

if TYPE_CHECKING:
    from collections.abc import Callable

    from cas.eventlog import MutableState


def fold(state: MutableState, event: dict[str, Any], position: int, index: int) -> None:
    """Apply one event of the learning log to its state.

    Raises:
        ConflictError: It is not allowed as things stand.
        NotFoundError: There is no such candidate.
        RefusedError: Something else is wrong with the event.
        NewerFormatError: Its type is not known here.
    """
    kind = event["type"]
    if (kind == "init") != (position == 1 and index == 0):
        raise RefusedError("a learning log begins with one init event")
    step = STEPS.get(kind)
    if step is None:
        raise NewerFormatError(
            f"the learning log holds an event of type {kind!r}, which a newer version wrote; "
            "update cas-store",
            type=kind,
        )
    step(state, event, Place(position, index))


def _init(state: MutableState, event: dict[str, Any], _place: Place) -> None:
    state.put(INIT, encode(event))


def _rebuilt(state: MutableState, event: dict[str, Any], _place: Place) -> None:
    shift = number_of(event, "shift")
    if shift < int.from_bytes(state.get(TOKEN_SHIFT) or b""):
        raise RefusedError("tokens cannot go back")
    state.put(TOKEN_SHIFT, shift.to_bytes(8))


STEPS: Final[dict[str, Callable[[MutableState, dict[str, Any], Place], None]]] = {
    "init": _init,
    "rebuilt": _rebuilt,
    "configured": configure,
    "recorded": record,
    "changed": change,
    "claimed": claim,
    "renewed": renew,
    "released": release,
    "audited": add_audit,
    "performance": set_performance,
    "report": add_report,
    "drafted": attach,
    "publishing": intend,
    "published": conclude,
    "publication-refused": conclude,
    "import-part": keep_part,
    "import-dropped": drop_parts,
    "imported": take_in,
}
"""What each type of event does."""
