"""Which status may follow which in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.learning.document import decode_document, encode_document
from cas.learning.journal import Journal, of
from cas.learning.keys import CONFIG
from cas.learning.status import Transitions, check_transitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Policy(Journal):
    """The rules that a store has for its candidates."""

    def transitions(self) -> Transitions | None:
        """Return the store's table of transitions; None where any is allowed."""
        config = self._state().get(CONFIG)
        found: Transitions | None = None
        if config is not None:
            found = decode_document(config).get("transitions")
        return found

    def set_transitions(self, table: Mapping[str, Iterable[str]] | None) -> None:
        """Say for this store which status may follow which.

        Args:
            table: From a status to those that may follow it; a status that it does not name may
                become anything, one with none following stays what it is. None allows all again.

        Raises:
            RefusedError: It is no such table.
        """
        checked = None if table is None else check_transitions(table)
        config = encode_document({"transitions": checked}, "configuration")
        self._append_all([of("configured", config=config)])
