"""Repair: verify, heal what is wrong, verify again.

Everything is put right by adding good copies first and taking bad ones away last, so a repair that
is killed has made nothing worse, and the next one goes on.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cas import locking
from cas.catalogue.context import LOCK_TIMEOUT
from cas.maintenance.verify import verify_store
from cas.progress import Meter
from cas.repair.catalogue import heal_catalogue
from cas.repair.content import Healer, tidy_quarantine
from cas.repair.learning import heal_learning
from cas.repair.memories import heal_memory
from cas.repair.quarantine import local_files
from cas.repair.result import Diary, Repaired
from cas.repair.sources import NamesSource, Sources, open_source

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from cas.catalogue.context import Context
    from cas.maintenance.report import Problem, VerifyReport
    from cas.progress import Progress

_ROUNDS: Final = 8
"""Verifications that still found something new to heal, at most."""
_FILES: Final = ("packs/", "loose/", "index/")
_OBJECTS: Final = (*_FILES, "nowhere")


def repair(
    context: Context,
    source: str | os.PathLike[str],
    *,
    budget: float | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Repaired:
    """Heal a store with good copies from somewhere else; see `Store.repair`."""
    local_files(context.backend)
    begun = time.monotonic()
    diary = Diary(Meter(progress, "repair"))
    bad: set[bytes] = set()
    checked = 0

    def wanted(digest: bytes) -> bool:
        objects = context.objects
        return digest in bad or (
            not objects.index.holds(digest) and objects.loose.size(digest) is None
        )

    def verify() -> VerifyReport:
        nonlocal checked
        left = None if budget is None else max(0.0, begun + budget - time.monotonic())
        found = verify_store(context, budget=left, workers=workers, progress=progress)
        bad.update(p.digest for p in found.problems if p.digest is not None)
        if budget is None:
            return found
        # Each round reads on where the last one ended, so all of them together are what was read.
        checked = min(found.bytes, checked + found.checked_bytes)
        return replace(
            found,
            checked_bytes=checked,
            coverage=checked / found.bytes if found.bytes else 1.0,
        )

    with open_source(source, context, wanted) as given:
        report = verify()
        before: set[tuple[object, ...]] = set()
        for _ in range(_ROUNDS):
            found = {(p.kind, p.digest, p.location) for p in report.problems}
            if not found - before:
                break
            before |= found
            with _alone(context):
                sources = Sources(NamesSource(context.refs), given)
                _heal(context, sources, diary, report.problems)
            report = verify()
        with _alone(context):
            staying = tidy_quarantine(context)
    diary.meter.finish()
    quarantined = [key for key in diary.quarantined if _stays(key, staying)]
    return Repaired(
        healed=tuple(diary.healed),
        quarantined=tuple(dict.fromkeys(quarantined)),
        notices=tuple(dict.fromkeys(diary.notices)),
        report=report,
    )


def _heal(context: Context, sources: Sources, diary: Diary, problems: tuple[Problem, ...]) -> None:
    """Heal what one verification found."""
    if any(problem.location.startswith(_OBJECTS) for problem in problems):
        # What these say of unchanged files rests on nothing ever getting lost.
        for entry in list(context.backend.list("cache/stat/")):
            context.backend.delete(entry.key)
    healer = Healer(context, sources, diary)
    healer.heal(p for p in problems if p.location.startswith(_FILES))
    heal_catalogue(context, sources.store, healer, diary)
    heal_learning(context, sources.store, diary)
    # Only now is it known for certain what was purged, which nobody brings.
    healer.bring(p.digest for p in problems if p.digest is not None and p.kind == "missing")
    for problem in problems:
        if problem.location.startswith("workspaces/"):
            heal_memory(context, sources.store, problem.location, diary)
        elif problem.location == "reserve":
            context.backend.delete("reserve")
            local_files(context.backend).refill_reserve()
            diary.heal("reserve", None, "set aside anew")


def _stays(key: str, staying: list[str]) -> bool:
    return any(there == key or there.startswith(f"{key}/") for there in staying)


@contextmanager
def _alone(context: Context) -> Iterator[None]:
    """Keep everyone else from publishing, sweeping and merging.

    Raises:
        BusyError: Someone does, and does not end.
    """
    local = local_files(context.backend)
    local.make_directories(["locks"])
    with (
        locking.exclusive(local.path("locks/publish"), LOCK_TIMEOUT),
        locking.exclusive(local.path("locks/merge"), LOCK_TIMEOUT),
    ):
        yield
