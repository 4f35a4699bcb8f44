"""Which status may follow which in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cas.codec import decode_sealed
from cas.learning.document import decode_document, encode_document
from cas.learning.journal import Journal, acting, of
from cas.learning.keys import CONFIG, CONFIGURED
from cas.learning.rows import iso
from cas.learning.status import Transitions, check_transitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class TransitionsChange(NamedTuple):
    """One change of a store's table of transitions."""

    transitions: Transitions | None
    """The table that was set; None where any transition was allowed again."""
    actor: str
    """Who set it."""
    created_at: str
    """When: UTC, ISO 8601, by the store's clock."""


class Policy(Journal):
    """The rules that a store has for its candidates."""

    def transitions(self) -> Transitions | None:
        """Return the store's table of transitions; None where any is allowed."""
        config = self._state().get(CONFIG)
        return None if config is None else _table(config)

    def transitions_history(self) -> list[TransitionsChange]:
        """Return every table of transitions that the store had, in order: who set it, and when."""
        changes = (decode_sealed(told) for _, told in self._state().scan(CONFIGURED))
        return [TransitionsChange(_table(config), by, iso(at)) for at, by, config in changes]

    def set_transitions(
        self, table: Mapping[str, Iterable[str]] | None, *, actor: str | None = None
    ) -> None:
        """Say for this store which status may follow which.

        Args:
            table: From a status to those that may follow it; a status that it does not name may
                become anything, one with none following stays what it is. None allows all again.
            actor: Who says so; by default the user that runs this.

        Raises:
            RefusedError: It is no such table.
        """
        checked = None if table is None else check_transitions(table)
        config = encode_document({"transitions": checked}, "configuration")
        event = of("configured", config=config, actor=acting(actor))
        self._append(lambda _state: [{**event, "now": self._now()}])


def _table(config: bytes) -> Transitions | None:
    table: Transitions | None = decode_document(config).get("transitions")
    return table
