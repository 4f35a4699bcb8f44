"""How skills do: one snapshot for each version of a skill, the last one wins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cas.errors import RefusedError
from cas.learning.document import decode_document, encode_document
from cas.learning.journal import Journal, of
from cas.learning.keys import PERFORMANCE
from cas.learning.model import PerformanceSnapshot
from cas.learning.rows import iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cas.eventlog import Event, State


class Performance(Journal):
    """The performance of the skills behind the candidates."""

    def set_performance(self, snapshot: PerformanceSnapshot) -> PerformanceSnapshot:
        """Set how a version of a skill does, in place of what was said before.

        Returns:
            The snapshot, with the time that the store gave it unless it came with one.

        Raises:
            RefusedError: A field cannot be kept, or there are more successes than activations.
        """
        checked = snapshot.checked()
        stored = checked

        def decide(_state: State) -> Sequence[Event]:
            nonlocal stored
            now = self._now()
            stored = replace(checked, recorded_at=checked.recorded_at or iso(now))
            return [{**performance_event(stored), "now": now}]

        self._append(decide)
        return stored

    def performance(self) -> list[PerformanceSnapshot]:
        """Return the last snapshot of each version of each skill, sorted by skill and version."""
        return list(self._snapshots())

    def low_performing(
        self, minimum_activations: int = 2, success_ratio_threshold: float = 0.5
    ) -> list[PerformanceSnapshot]:
        """Return the snapshots of what was used often enough and did too badly, worst first.

        Args:
            minimum_activations: Used at least so often.
            success_ratio_threshold: With a share of successes below this, from 0.0 to 1.0.

        Raises:
            RefusedError: The threshold is no share.
        """
        if not 0.0 <= success_ratio_threshold <= 1.0:
            raise RefusedError(
                f"a success ratio lies between 0 and 1, not at {success_ratio_threshold}"
            )
        low = [
            snapshot
            for snapshot in self._snapshots()
            if snapshot.activations >= max(minimum_activations, 1)
            and snapshot.success_ratio < success_ratio_threshold
        ]
        return sorted(low, key=lambda snapshot: snapshot.success_ratio)

    def _snapshots(self) -> Iterator[PerformanceSnapshot]:
        for _, encoded in self._state().scan(PERFORMANCE):
            yield PerformanceSnapshot.from_dict(decode_document(encoded))


def performance_event(snapshot: PerformanceSnapshot) -> dict[str, Any]:
    """Return the event that sets a snapshot, without its time."""
    what = f"the performance of {snapshot.skill_name} {snapshot.version}"
    return of(
        "performance",
        skill_name=snapshot.skill_name,
        version=snapshot.version,
        body=encode_document(snapshot.to_dict(), what),
    )
