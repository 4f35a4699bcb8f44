"""The data of `cas demo`: small, and of the same kinds as the real thing."""

import json
import random
import sqlite3
from pathlib import Path

VIDEOS = ("kitchen", "garden", "street")
BASELINE_RUN = "20260101_120000"
EVAL_RUN = "20260102_090000"

_FRAMES = 40
_TITLE_FRAMES = 10
"""Frames at the beginning of every video that are the same in all."""
_TOPICS = (
    "count what moves", "follow a hand", "read small text", "tell day from night",
    "find the first time", "find the last time", "compare two frames", "name a tool",
    "name an animal", "estimate a distance",
)  # fmt: skip


def make(directory: Path) -> None:
    """Write videos, questions, skills, prompts and the database of a run below a directory."""
    chance = random.Random(2026)  # noqa: S311 - frames that are the same every time, not secrets
    titles = [_frame(chance) for _ in range(_TITLE_FRAMES)]
    for video in VIDEOS:
        folder = directory / "videos" / video
        (folder / "frames").mkdir(parents=True)
        frames = titles + [_frame(chance) for _ in range(_FRAMES - _TITLE_FRAMES)]
        for number, frame in enumerate(frames, start=1):
            (folder / "frames" / f"{number:05}.jpg").write_bytes(frame)
        scenes = [{"start": start, "end": start + 9} for start in range(1, _FRAMES, 10)]
        (folder / "tree.json").write_text(json.dumps({"video": video, "scenes": scenes}, indent=1))
        (folder / "embeddings.bin").write_bytes(chance.randbytes(4 * 256 * len(scenes)))
    _texts(directory)
    _database(directory / "baseline.db")


def _frame(chance: random.Random) -> bytes:
    return b"\xff\xd8\xff\xe0" + chance.randbytes(chance.randrange(20_000, 40_000)) + b"\xff\xd9"


def _texts(directory: Path) -> None:
    for name in ("questions", "skills/lib", "prompts"):
        (directory / name).mkdir(parents=True)
    for video in VIDEOS:
        asked = [
            {"id": f"{video}-{n}", "question": f"How often: {t}?"} for n, t in enumerate(_TOPICS)
        ]
        (directory / "questions" / f"{video}.json").write_text(json.dumps(asked, indent=1))
    for topic in _TOPICS:
        name = topic.replace(" ", "-")
        steps = "\n".join(f"{n}. Look at frame {n * 7}, then {topic}." for n in range(1, 60))
        (directory / "skills" / f"{name}.md").write_text(f"# How to {topic}\n\n{steps}\n")
    (directory / "skills" / "lib" / "seconds.py").write_text(
        "def seconds(frame):\n    return frame / 25\n"
    )
    for role in ("system", "answer", "review"):
        (directory / "prompts" / f"{role}.md").write_text(
            f"You are the part that does the {role}.\n"
        )


def _database(path: Path) -> None:
    database = sqlite3.connect(path)
    with database:
        database.executescript(
            "CREATE TABLE _runs (run_id TEXT PRIMARY KEY, status TEXT NOT NULL,"
            " skills_version TEXT, prompts_version TEXT, score REAL);"
            "CREATE TABLE predictions (run_id TEXT REFERENCES _runs, question TEXT, answer TEXT);"
        )
    database.close()
    record_run(path, BASELINE_RUN, skills="v2", score=0.61)


def record_run(path: Path, run: str, *, skills: str, score: float) -> None:
    """Add a finished run, with its predictions, to a database."""
    database = sqlite3.connect(path)
    with database:
        database.execute(
            "INSERT INTO _runs VALUES (?, 'completed', ?, 'v1', ?)", (run, skills, score)
        )
        database.executemany(
            "INSERT INTO predictions VALUES (?, ?, ?)",
            [(run, f"{video}-{n}", str(n)) for video in VIDEOS for n in range(len(_TOPICS))],
        )
    database.close()
