"""The learning folder of an old layout: JSON lines and reports, in and out."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any, Final

from cas import fs
from cas.errors import RefusedError
from cas.layouts.results import Skipped
from cas.layouts.told import members
from cas.learning import AuditEvent, Candidate, EvalReport, PerformanceSnapshot, SafetyReport
from cas.learning.fields import MOST
from cas.learning.intake import check_fits
from cas.learning.rows import iso, ns_of
from cas.workspace.handles import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cas.learning import Learning
    from cas.workspace.handles import Handles

CANDIDATES: Final = b"learning-candidates.jsonl"
AUDIT: Final = b"learning-audit.jsonl"
PERFORMANCE: Final = b"performance.jsonl"
REPORTS: Final[dict[bytes, type[SafetyReport | EvalReport]]] = {
    b"safety-reports": SafetyReport,
    b"eval-reports": EvalReport,
}
NAMES: Final = frozenset((CANDIDATES, AUDIT, PERFORMANCE, *REPORTS))
"""What a learning folder holds."""

_BEFORE: Final = b"report-"
_AFTER: Final = b".json"
_TIMES: Final = b"times.json"
_LONGEST: Final = 16 << 20
"""Bytes of a line or a report, at most."""
_PIECE: Final = 1 << 20

_Report = SafetyReport | EvalReport


class Board:
    """What a learning folder holds; each value is read once, when it is asked for.

    Args:
        handles: The folders below the layout's directory.
        skipped: Takes what cannot be read.
    """

    def __init__(self, handles: Handles, skipped: list[Skipped]) -> None:
        """Read nothing yet."""
        self._handles = handles
        self._skipped = skipped

    def candidates(self) -> Iterator[Candidate]:
        """Give the candidates; of an id that comes twice, the first."""
        return self._values(CANDIDATES, Candidate.from_dict, lambda found: found.candidate_id)

    def audit(self) -> Iterator[AuditEvent]:
        """Give the audit in its order."""
        return self._values(AUDIT, AuditEvent.from_dict, lambda found: found.event_id)

    def performance(self) -> Iterator[PerformanceSnapshot]:
        """Give the snapshots; the last one of a version of a skill counts."""
        return self._values(PERFORMANCE, PerformanceSnapshot.from_dict, None)

    def reports(self) -> Iterator[_Report]:
        """Give the reports, those of one draft in the order in which they were recorded.

        That and when is what the times of their files tell, or an export wrote beside them.
        """
        for folder, kind in REPORTS.items():
            for skill in self._folders(folder):
                for draft in self._folders(folder + b"/" + skill):
                    yield from self._of_draft(folder + b"/" + skill + b"/" + draft, kind)

    def _values(
        self, file: bytes, read: Callable[[Any], Any], name: Callable[[Any], str] | None
    ) -> Iterator[Any]:
        seen: set[str] = set()
        for number, line in enumerate(self._lines(file), 1):
            try:
                value = read(_document(line)).checked()
                check_fits(value)
                if name is not None and name(value) in seen:
                    raise RefusedError(f"says {name(value)!r} once more")
            except RefusedError as error:
                self._skip(file, f"line {number} {error}")
                continue
            if name is not None:
                seen.add(name(value))
            yield value

    def _lines(self, file: bytes) -> Iterator[bytes]:
        fd = self._open(b"", file)
        if fd is None:
            return
        with open(fd, "rb") as lines:
            while line := lines.readline(_LONGEST + 1):
                yield line
                while len(line) > _LONGEST and not line.endswith(b"\n"):
                    line = lines.readline(_LONGEST + 1)  # the rest of one that is too long

    def _of_draft(self, folder: bytes, kind: type[_Report]) -> Iterator[_Report]:
        skill, draft = folder.split(b"/")[1:]
        found = []
        told: dict[str, str] = {}
        for entry in self._entries(folder):
            name = os.fsencode(entry.name)
            if name == _TIMES:
                told = self._times(folder)
            elif name.startswith(_BEFORE) and name.endswith(_AFTER):
                found.append((entry.stat(follow_symlinks=False).st_mtime_ns, name))
            else:
                self._skip(folder + b"/" + name, "is no report-ID.json")
        order = {report_id: number for number, report_id in enumerate(told)}

        def place(file: tuple[int, bytes]) -> tuple[int, tuple[int, bytes]]:
            return order.get(_report_id(file[1]), len(order)), file

        for written_ns, name in sorted(found, key=place):
            fd = self._open(folder, name)
            if fd is None:
                continue
            try:
                with open(fd, "rb") as file:
                    content = _document(file.read(_LONGEST + 1))
                report_id = _report_id(name)
                recorded_at = told.get(report_id) or iso(min(max(written_ns, 0), MOST))
                names = os.fsdecode(skill), os.fsdecode(draft), report_id
                report = kind(*names, content, recorded_at)
                check_fits(report)
                yield report
            except RefusedError as error:
                self._skip(folder + b"/" + name, str(error))

    def _times(self, folder: bytes) -> dict[str, str]:
        """Return when each report of a draft was recorded, in order, as an export wrote it."""
        fd = self._open(folder, _TIMES)
        if fd is None:
            return {}
        with open(fd, "rb") as file:
            content = file.read(_LONGEST + 1)
        try:
            told: dict[str, str] = dict(_document(content))
            for recorded_at in told.values():
                ns_of(recorded_at)
        except (RefusedError, TypeError, ValueError):
            self._skip(folder + b"/" + _TIMES, "does not tell when reports were recorded")
            return {}
        return told

    def _folders(self, path: bytes) -> Iterator[bytes]:
        for entry in self._entries(path):
            name = os.fsencode(entry.name)
            if entry.is_dir(follow_symlinks=False):
                yield name
            else:
                self._skip(path + b"/" + name, "is no folder")

    def _entries(self, path: bytes) -> list[os.DirEntry[str]]:
        """Return what is in a folder, sorted; nothing where there is none."""
        try:
            with scan(self._handles.get(path)) as entries:
                return sorted(entries, key=lambda entry: os.fsencode(entry.name))
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            self._skip(path, "is no folder")
            return []

    def _open(self, folder: bytes, name: bytes) -> int | None:
        """Open a file, or say why it is skipped; None where there is none, too."""
        path = folder + b"/" + name if folder else name
        try:
            fd = fs.open_read(name, self._handles.get(folder))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._skip(path, f"cannot be read: {error.strerror}")
            return None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            self._skip(path, "is no regular file")
            return None
        return fd

    def _skip(self, path: bytes, reason: str) -> None:
        self._skipped.append(Skipped(path, reason))


def _report_id(name: bytes) -> str:
    return os.fsdecode(name.removeprefix(_BEFORE).removesuffix(_AFTER))


def _document(data: bytes) -> Any:
    """Read one JSON document.

    Raises:
        RefusedError: It is none; the message goes on a sentence.
    """
    if len(data) > _LONGEST:
        raise RefusedError(f"is longer than {_LONGEST >> 20} MiB")
    if not data.strip():
        raise RefusedError("is blank")
    try:
        return json.loads(data, object_pairs_hook=members)
    except RefusedError:
        raise
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"is no JSON document: {error}") from None


# --- out -----------------------------------------------------------------------------------------


def write_board(handles: Handles, learning: Learning) -> dict[str, int]:
    """Write a learning folder's files into a directory that has none of them.

    Args:
        handles: The folders below that directory.
        learning: What to write; what there is none of makes no file.

    Returns:
        How many candidates, audit events, snapshots and reports were written.
    """
    root = handles.get(b"")
    reports = 0
    for folder, kind in REPORTS.items():
        for skill, draft in learning.drafts(kind):
            get = learning.safety_reports if kind is SafetyReport else learning.eval_reports
            path = b"/".join((folder, os.fsencode(skill), os.fsencode(draft)))
            reports += _write_reports(handles, path, get(skill, draft))
    return {
        "candidates": _write_lines(root, CANDIDATES, learning.each()),
        "audit_events": _write_lines(root, AUDIT, learning.audit_events()),
        "performance": _write_lines(root, PERFORMANCE, learning.performance()),
        "reports": reports,
    }


def _write_lines(root: int, name: bytes, values: Iterable[Any]) -> int:
    count = 0
    fd = -1
    piece = bytearray()
    try:
        for value in values:
            if fd < 0:
                fd = fs.create_excl(name, 0o666, root)
            piece += json.dumps(value.to_dict()).encode("ascii") + b"\n"
            count += 1
            if len(piece) >= _PIECE:
                fs.write_all(fd, piece)
                piece.clear()
        if fd >= 0:
            fs.write_all(fd, piece)
    finally:
        if fd >= 0:
            os.close(fd)
    return count


def _write_reports(handles: Handles, path: bytes, reports: Iterable[_Report]) -> int:
    """Write the reports of one draft.

    The times of their files tell when they were recorded and, by their nanoseconds, in which order.
    Where they cannot, because a clock was set back or the filesystem keeps them coarsely, a file
    beside them does.
    """
    times: list[tuple[str, str]] = []
    written_ns, is_told = -1, True
    for report in reports:
        if not times:
            _make(handles, path)
        times.append((report.report_id, report.recorded_at))
        name = _BEFORE + os.fsencode(report.report_id) + _AFTER
        written_ns = max(ns_of(report.recorded_at), written_ns + 1)
        fd = fs.create_excl(name, 0o666, handles.get(path))
        try:
            fs.write_all(fd, json.dumps(report.content, indent=2).encode("ascii") + b"\n")
            fs.set_times(fd, written_ns)
            kept = os.fstat(fd).st_mtime_ns == written_ns
        finally:
            os.close(fd)
        is_told = is_told and kept and iso(written_ns) == report.recorded_at
    if not is_told:
        fd = fs.create_excl(_TIMES, 0o666, handles.get(path))
        try:
            fs.write_all(fd, json.dumps(times, indent=2).encode("ascii") + b"\n")
        finally:
            os.close(fd)
    return len(times)


def _make(handles: Handles, path: bytes) -> None:
    above, _, name = path.rpartition(b"/")
    try:
        fs.mkdir(name, dir_fd=handles.get(above))
    except FileExistsError:
        pass
    except FileNotFoundError:
        _make(handles, above)
        fs.mkdir(name, dir_fd=handles.get(above))
