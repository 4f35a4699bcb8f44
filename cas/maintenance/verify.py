"""Verify: prove a store, or what one spec reaches, or a directory against a spec.

A verification looks at four things: the two logs, that everything which they name reaches is
there, every byte of every pack, loose object and index table, and the store's small files. It
changes nothing but caches.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cas.catalogue.context import doing
from cas.errors import DamagedLogError
from cas.eventlog import LogFinding
from cas.maintenance import cursor
from cas.maintenance.proving import Extent, Proven, anywhere, named, prove, units
from cas.maintenance.reach import Reach, Root, affected, split
from cas.maintenance.report import Problem, VerifyReport
from cas.refs import CATALOGUE
from cas.spill import Spill
from cas.workspace import damaged_memories
from cas.workspace import verify_workspace as compare_workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from cas.catalogue.context import Context
    from cas.catalogue.resolve import Resolved
    from cas.learning import Learning
    from cas.progress import Progress
    from cas.refs import Purge
    from cas.workspace import DirectoryCheck

MOST_AFFECTED: Final = 1000
"""Names and paths that one problem lists, at most; how many more there are is said."""

_MEMORY: Final = 32 << 20


def verify_store(
    context: Context,
    *,
    quick: bool = False,
    sample: float | None = None,
    budget: float | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Prove a whole store.

    Args:
        context: The open store.
        quick: Structure and sizes only.
        sample: Read about this percentage of the bytes, beginning anywhere.
        budget: Begin to read nothing more after so many seconds; the next run goes on from there.
        workers: How many processes read and hash.
        progress: Called with what was done so far.

    Raises:
        EnvironmentFailure: A worker process cannot be started.
    """
    begun = time.monotonic()
    with suppress(DamagedLogError):  # which is found out again below, and said where
        context.heed_purges()
    objects = context.objects
    objects.reload()
    reach = Reach(objects)
    problems: list[Problem] = []
    roots: list[Root] = []

    def check_the_rest() -> Iterator[None]:
        from cas.learning import LEARNING, Learning  # late: workers are at work by now

        learning = Learning(context)
        for log, findings, found in (
            (CATALOGUE, context.refs.check(), reach.roots(context.refs)),
            (LEARNING, learning.verify(), _held(learning)),
        ):
            wrong = [_bad_log(finding) for finding in findings]
            try:
                roots.extend(found)
            except DamagedLogError as error:
                wrong = wrong or [_bad_log(LogFinding(None, f"log/{log}", str(error)))]
            problems.extend(wrong)
        yield from reach.check(roots)
        reach.check_purged()
        problems.extend(_small_files(context))

    after = b""
    if budget is not None:
        after = cursor.load(context)
    elif sample is not None:
        after = anywhere()
    totals = objects.totals()
    packed = sum(size for _, size in objects.packs())
    total = packed + sum(size for _, size in objects.loose_objects())
    proven = prove(
        objects,
        units(objects, after),
        Extent(
            quick=quick,
            sample=sample,
            deadline=None if budget is None else begun + budget,
        ),
        expected=total,
        shared=packed,
        tables=True,
        meanwhile=check_the_rest(),
        workers=workers,
        progress=progress,
    )
    if budget is not None:
        cursor.save(context, b"" if proven.complete else proven.last)
    problems += proven.problems + reach.problems
    return _report(context, roots, problems, totals.objects, total, proven, quick, reach.purged)


def verify_spec(
    context: Context,
    resolved: Resolved,
    *,
    quick: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Prove what one spec reaches: every object in it is read and hashed.

    Args:
        context: The open store.
        resolved: What the spec names.
        quick: Only see that everything is there with the right size.
        workers: How many processes read and hash.
        progress: Called with what was done so far.
    """
    objects = context.objects
    objects.reload()
    reach = Reach(objects)
    own = None if resolved.path else resolved.manifest
    root = Root(resolved.spec, own or resolved.digest, resolved.tree)
    with Spill(_MEMORY, unique=True) as reached:
        for _ in reach.check([root], reached):
            pass
        count = total = 0
        for _, size in map(split, reached):
            count += 1
            total += size
        proven = prove(
            objects,
            [] if quick else named(map(split, reached)),
            Extent(),
            expected=total,
            shared=total,
            workers=workers,
            progress=progress,
        )
    problems = reach.problems + proven.problems
    return _report(context, [root], problems, count, total, proven, quick, reach.purged)


def verify_workspace(
    workspace: str | PathLike[str], *, workers: int | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Prove a workspace against its own memory: needs no store.

    Args:
        workspace: Its directory.
        workers: How many processes read and hash.
        progress: Called with what was done so far.

    Raises:
        NotFoundError: There is no workspace.
        DamagedError: Its memory is damaged.
    """
    path = Path(workspace)
    with doing(f"verifying {path}"):
        return directory_report(compare_workspace(path, workers=workers, progress=progress), path)


def directory_report(check: DirectoryCheck, directory: Path) -> VerifyReport:
    """Return what the comparison of a directory found, in the words of a verification."""
    return VerifyReport(
        ok=check.ok,
        objects=check.files,
        bytes=check.bytes,
        checked_bytes=check.checked_bytes,
        coverage=1.0,
        problems=tuple(
            Problem(
                kind=difference.kind,
                digest=difference.digest,
                location=os.fsdecode(os.path.join(os.fsencode(directory), difference.path)),
                detail=difference.detail,
                affects=(os.fsdecode(difference.path),),
            )
            for difference in check.differences
        ),
    )


# --- inside --------------------------------------------------------------------------------------


def _report(
    context: Context,
    roots: Sequence[Root],
    problems: Sequence[Problem],
    objects: int,
    total: int,
    proven: Proven,
    quick: bool,
    purged: set[bytes],
) -> VerifyReport:
    """Put together what was found, each thing once, with the names that it hits."""
    found = {(p.digest, p.location if p.digest is None else ""): p for p in reversed(problems)}
    bad = frozenset(problem.digest for problem in found.values() if problem.digest is not None)
    hit: dict[bytes, list[str]] = {}
    if bad:
        for digest, spec in affected(context.objects, roots, bad):
            hit.setdefault(digest, []).append(spec)
    read = min(proven.read, total)
    return VerifyReport(
        ok=not found,
        objects=objects,
        bytes=total,
        checked_bytes=read,
        coverage=read / total if total else float(not quick),
        problems=tuple(_with_names(p, hit) for p in reversed(found.values())),
        quick=quick,
        purged=tuple(_told(purge) for purge in context.purges if purge.digest in purged),
    )


def _told(purge: Purge) -> str:
    return f"{', '.join(purge.affects) or purge.digest} {purge.told}"


def _with_names(problem: Problem, hit: dict[bytes, list[str]]) -> Problem:
    if problem.digest is None or problem.digest not in hit:
        return problem
    names = sorted(dict.fromkeys([*problem.affects, *hit[problem.digest]]))
    detail = problem.detail
    if len(names) > MOST_AFFECTED:
        more = f"hits {len(names)} names and paths, of which {MOST_AFFECTED} are listed"
        detail = f"{detail}; {more}" if detail else more
    return replace(problem, detail=detail, affects=tuple(names[:MOST_AFFECTED]))


def _bad_log(finding: LogFinding) -> Problem:
    at = "" if finding.position is None else f"record {finding.position}: "
    detail = at + finding.detail
    return Problem(kind="bad_ref", digest=None, location=finding.location, detail=detail)


def _held(learning: Learning) -> Iterator[Root]:
    """Give what the learning log keeps alive."""
    for digest, kind, holder in learning.kept_digests():
        yield Root(holder, digest, digest if kind == "tree" else None)


def _small_files(context: Context) -> list[Problem]:
    """Check what is neither object nor log: the reserve and the memories of workspaces."""
    found = [
        Problem(kind="corrupt", digest=None, location=key, detail=detail)
        for key, detail in damaged_memories(context.backend)
    ]
    local = context.backend.local
    detail = "" if local is None else local.check_reserve()
    if detail:
        found.append(Problem(kind="corrupt", digest=None, location="reserve", detail=detail))
    return found
