"""Making a damaged log anew: beside the damaged one, whose place it takes in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.catalogue.context import now
from cas.eventlog import EventLog
from cas.eventlog.salvage import salvage
from cas.repair.quarantine import free_key, local_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.catalogue.context import Context
    from cas.eventlog import Event, Fold, LogFinding
    from cas.eventlog.salvage import Salvaged
    from cas.repair.result import Diary


class NewLog:
    """A log that is made of what is left of a damaged one, and of a copy.

    Args:
        context: The store, to which nobody else writes.
        name: The log's.
        fold: What its events do.
        copy: Another store. If it is a copy of this one, its log is one of this one's.
        begin: Fields of the first event, where nothing is left.
    """

    def __init__(
        self, context: Context, name: str, fold: Fold, copy: Context | None, begin: Event
    ) -> None:
        """Save what can be saved."""
        self._backend = context.backend
        self._local = local_files(context.backend)
        self._key = f"log/{name}"
        beside = f"{name}.new"
        if any(self._backend.list(f"log/{beside}/")):
            # What a repair left that was cut short, before its last step or right after it.
            self._local.replace_folder(
                f"log/{beside}", free_key(self._backend, f"log/{beside}"), ""
            )
        copies = [copy.backend] if copy is not None and copy.id == context.id else []
        self.saved: Salvaged = salvage(self._backend, name, fold, copies, beside)
        init = {"type": "init", "store_id": context.id, "rebuilt_at": now(), **begin}
        self.log = self.saved.log or EventLog.create(self._backend, beside, fold, [init])

    def put_in_place(self, findings: Iterable[LogFinding], diary: Diary) -> None:
        """Have the new log take the place of the damaged one, which is put aside."""
        aside = free_key(self._backend, self._key)
        self._local.replace_folder(f"{self._key}.new", self._key, aside)
        for finding in findings:
            diary.heal(finding.location, None, f"made anew: {finding.detail}")
        if any(self._backend.list(f"{aside}/")):
            diary.quarantined.append(aside)
