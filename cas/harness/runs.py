"""What a harness says of a run, and whether that lets it earn a seed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from cas import names
from cas.errors import NotFoundError, RefusedError
from cas.sqlite_copy import read_live

Path = str | os.PathLike[str]

FINISHED: Final = frozenset(
    {"completed", "complete", "finished", "done", "succeeded", "success", "ok"}
)
"""What the column `status` says, in any case of letters, of a run that is finished."""

END_TIMES: Final = ("finished_at", "completed_at", "ended_at")
"""Where there is no `status`, the first of these columns that exists tells by not being NULL."""


@dataclass(frozen=True, slots=True)
class RunVersions:
    """The versions that a run says it used, as its row has them.

    Attributes:
        skills: The label of its skills.
        prompts: The label of its prompts.
    """

    skills: str
    prompts: str


def run_row(db: Path, run_id: str) -> dict[str, Any]:
    """Return the row of a run in `_runs` by column; text that is not UTF-8 is surrogate-escaped.

    Raises:
        NotFoundError: `db` does not exist, or holds no such run.
        RefusedError: `db` is not a SQLite database of a harness, or holds the run twice.
    """
    names.check_run_id(run_id)

    def read(uri: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
            connection.execute("BEGIN")
            columns = [row[1] for row in connection.execute("PRAGMA table_info(_runs)")]
            if "run_id" not in map(str.lower, columns):
                raise RefusedError(
                    f"{os.fspath(db)!r} is of no harness: it has no table _runs with a run_id"
                )
            rows = connection.execute(
                "SELECT * FROM _runs WHERE run_id = ? COLLATE BINARY LIMIT 2", (run_id,)
            )
            columns = [column[0] for column in rows.description]
            return [dict(zip(columns, row, strict=True)) for row in rows]

    found = read_live(db, read)
    if not found:
        raise NotFoundError(f"run {run_id} not found in {os.fspath(db)!r}", run=run_id)
    if len(found) > 1:
        raise RefusedError(f"run {run_id} is in {os.fspath(db)!r} more than once", run=run_id)
    return found[0]


def check_run(
    db: Path, run_id: str, *, skills_version: str | None = None, force: bool = False
) -> RunVersions:
    """Check that a run may earn a seed, and return the versions that it used.

    The run is finished if its `status` is one of `FINISHED`; without such a column, if the first of
    `END_TIMES` that exists is not NULL; without any of them, nothing says that it is not.

    Args:
        db: The database.
        run_id: The run.
        skills_version: The version that the run must have used: `v2`, which a row that says
            `skills-v2`, `skills@v2` or `skills/v2` means too.
        force: Also take a run that is not finished.

    Raises:
        NotFoundError: `db` does not exist, or holds no such run.
        RefusedError: The run is not finished, names no skills or prompts version, or others.
    """
    row = {name.lower(): value for name, value in run_row(db, run_id).items()}
    if not force:
        _check_finished(row, run_id)
    skills = _label(row, run_id, "skills")
    prompts = _label(row, run_id, "prompts")
    if skills_version is not None and not same_version("skills", skills, skills_version):
        raise RefusedError(
            f"run {run_id} used skills {skills}, not {skills_version}: "
            f"name {skills}, or a run of {skills_version}",
            run=run_id,
        )
    return RunVersions(skills, prompts)


def same_version(resource: str, label: str, asked: str) -> bool:
    """Tell whether a label means the version asked for, with or without its resource before it."""
    return _bare(resource, label) == _bare(resource, asked)


def _bare(resource: str, label: str) -> str:
    rest = label.removeprefix(resource)
    return rest[1:] if rest != label and rest[:1] in ("-", "_", "@", "/", ":") else label


def _check_finished(row: dict[str, Any], run_id: str) -> None:
    if "status" in row:
        status = row["status"]
        if not isinstance(status, str) or status.strip().lower() not in FINISHED:
            raise RefusedError(
                f"run {run_id} is not finished: its status is {status!r}; "
                "wait for it, or force it to be taken",
                run=run_id,
            )
        return
    for column in END_TIMES:
        if column in row:
            if row[column] is None:
                raise RefusedError(
                    f"run {run_id} is not finished: {column} is NULL; "
                    "wait for it, or force it to be taken",
                    run=run_id,
                )
            return


def _label(row: dict[str, Any], run_id: str, resource: str) -> str:
    version = row.get(f"{resource}_version")
    if version is None:
        raise RefusedError(
            f"run {run_id} names no {resource} version: {resource}_version is NULL or missing",
            run=run_id,
        )
    if not isinstance(version, str | int):
        raise RefusedError(
            f"run {run_id} has a {resource}_version that is no text: {version!r}", run=run_id
        )
    return names.check_label(str(version))
