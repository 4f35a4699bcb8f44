"""Databases of a harness: a consistent copy, one run alone, and whether a run may become a seed.

A harness keeps its runs in a SQLite database with a table `_runs` (one row a run: `run_id`, and as
far as it has them `status`, `finished_at`, `skills_version`, `prompts_version`) and a table
`predictions` (rows with a `run_id`). The source is always opened read-only, never created, and read
in one transaction, with what its WAL holds.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cas import names
from cas.harness.extract import copy_run
from cas.harness.place import new_file
from cas.harness.runs import END_TIMES, FINISHED, RunVersions, check_run, run_row, same_version
from cas.sqlite_copy import copy_live, read_live

if TYPE_CHECKING:
    from cas.harness.runs import Path

__all__ = [
    "END_TIMES",
    "FINISHED",
    "RunVersions",
    "check_run",
    "extract_run",
    "run_row",
    "same_version",
    "snapshot",
]


def snapshot(src: Path, dst: Path) -> None:
    """Copy a database whole, as one consistent state, to a new file.

    The copy holds every transaction that was committed before the call, also those that only the
    WAL has and while a writer goes on. It is made by SQLite's own backup, is one file, and is
    durable when this returns. A failure leaves no `dst`.

    Args:
        src: The database. It is opened read-only and never created; its directory may be read-only.
        dst: The file to make.

    Raises:
        NotFoundError: `src` does not exist.
        ConflictError: `dst`, or a side file that SQLite would take for its, exists.
        RefusedError: `src` is not a SQLite database, or a damaged one.
        BusyError: A writer kept `src` locked.
        EnvironmentFailure: Files could not be read or written.
    """
    with new_file(dst) as temporary:
        copy_live(src, temporary)


def extract_run(src_db: Path, dst_db: Path, run_id: str) -> None:
    """Copy one run out of a database into a new one: its rows of `_runs` and `predictions`.

    Both tables are made by the statements that made the originals, so keys, types, constraints,
    generated columns, STRICT and WITHOUT ROWID are the same; rows keep their rowids, and text that
    is not valid in its encoding its bytes. Indexes, views and triggers come along as far as they
    need nothing but these two tables (no trigger fires while rows are copied), as do
    `user_version`, `application_id`, `encoding`, `page_size`, and where AUTOINCREMENT stands. Other
    tables are left out, with their data and whatever needs them.

    The result is one state of the source, and durable when this returns. A failure leaves no
    `dst_db`.

    Args:
        src_db: The database. It is opened read-only and never created.
        dst_db: The file to make.
        run_id: Which run.

    Raises:
        NotFoundError: `src_db` does not exist, or holds no such run.
        ConflictError: `dst_db`, or a side file that SQLite would take for its, exists.
        RefusedError: `src_db` is not a SQLite database of a harness, or needs functions or
            collations that only the program that made it has.
        BusyError: A writer kept `src_db` locked.
        EnvironmentFailure: Files could not be read or written.
    """
    names.check_run_id(run_id)
    with new_file(dst_db) as temporary:
        scratch = os.path.dirname(temporary)
        read_live(src_db, lambda uri: copy_run(uri, temporary, run_id), scratch=scratch)
