"""Databases of a harness, made for a test."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os


def record_run(
    database: str | os.PathLike[str],
    run_id: str,
    *,
    skills: str | None = "v1",
    prompts: str | None = "v1",
    status: str = "completed",
    answers: int = 3,
) -> None:
    """Record a run with some predictions, in a database that is made if it does not exist.

    Args:
        database: The file.
        run_id: The run, which is not there yet.
        skills: Its skills version; None for NULL.
        prompts: Its prompts version; None for NULL.
        status: Its status.
        answers: How many predictions it made.
    """
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS _runs (run_id TEXT PRIMARY KEY, status TEXT,"
            " skills_version TEXT, prompts_version TEXT)"
        )
        connection.execute(
            "CREATE TABLE IF NOT EXISTS predictions (run_id TEXT, question TEXT, answer TEXT)"
        )
        connection.execute(
            "INSERT INTO _runs VALUES (?, ?, ?, ?)", (run_id, status, skills, prompts)
        )
        connection.executemany(
            "INSERT INTO predictions VALUES (?, ?, ?)",
            [(run_id, f"q{number}", f"{run_id} says {number}") for number in range(answers)],
        )


def runs_in(database: str | os.PathLike[str]) -> dict[str, int]:
    """Return how many predictions each run of a database has."""
    with closing(sqlite3.connect(database)) as connection:
        return dict(
            connection.execute(
                "SELECT _runs.run_id, count(predictions.run_id) FROM _runs"
                " LEFT JOIN predictions USING (run_id) GROUP BY _runs.run_id"
            )
        )
