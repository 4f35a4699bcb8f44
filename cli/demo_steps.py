"""The steps of `cas demo`: each does its work through the library and shows the command for it."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .demo_data import BASELINE_RUN, EVAL_RUN, VIDEOS, make, record_run
from .graph import draw
from .output import count, files_and_size, size
from .session import FINDINGS, Session
from .versions import added_line

if TYPE_CHECKING:
    import cas


def run(session: Session, place: Path, *, kept: bool) -> int:
    """Go through all steps in an empty directory and return the exit code."""
    show = Show(session)
    session.say(f"Working in {session.out.path(str(place))}; commands are as typed there.")
    with _first_versions(show, place) as store:
        _names_and_seed(show, place, store)
        _evolve(show, place, store)
        verified = _copy(show, place, store)
    session.say("")
    session.say(
        "Done: the copy is proven byte for byte."
        if verified
        else "This did not go as it should: please report it."
    )
    if kept:
        session.say(f"All of it is in {session.out.path(str(place))}: try `cas versions` there.")
    if session.json:
        session.out.document(
            {
                "dir": str(place),
                "kept": kept,
                "verified": verified,
                "steps": [step.to_json() for step in show.steps],
            }
        )
    return 0 if verified else FINDINGS


@dataclass
class Step:
    """What one step did, the commands that do the same, and what came out."""

    title: str
    commands: tuple[str, ...]
    result: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {"title": self.title, "commands": list(self.commands), "result": self.result}


class Show:
    """Tells each step as it happens, and keeps it for `--json`."""

    def __init__(self, session: Session) -> None:
        """Nothing has happened yet."""
        self._session = session
        self.steps: list[Step] = []

    def step(self, title: str, *commands: str) -> None:
        """Begin a step."""
        self.steps.append(Step(title, commands))
        out = self._session.out
        self._session.say("")
        self._session.say(out.paint(f"{len(self.steps)}. {title}", "bold"))
        for line in commands:
            self._session.say(out.paint(f"   $ {line}", "blue"))
        out.flush()

    def result(self, *lines: str) -> None:
        """Say what came out of the step."""
        self.steps[-1].result.extend(lines)
        for line in lines:
            self._session.say(f"   {line}")


def _first_versions(show: Show, place: Path) -> "cas.Store":
    import cas

    show.step("Make some data: videos, questions, skills, prompts and the database of a run")
    data = place / "data"
    make(data)
    paths = [path for path in data.rglob("*") if path.is_file()]
    show.result(files_and_size(len(paths), sum(path.stat().st_size for path in paths)))

    show.step(
        "Make a store of them, all or nothing",
        "cas init --videos data/videos --skills data/skills --prompts data/prompts",
    )
    store = cas.Store.init(
        place / ".cas",
        videos=data / "videos",
        skills=data / "skills",
        prompts=data / "prompts",
    )
    for version in store.versions.list():
        show.result(f"{version.spec}: {files_and_size(version.files, version.bytes)}")

    add = store.versions.add
    show.step("Take in one set more", "cas add questions/generated data/questions")
    show.result(added_line(add("questions/generated", data / "questions")))

    show.step("Add again what did not change", "cas add skills data/skills --if-changed")
    show.result(added_line(add("skills", data / "skills", if_changed=True)))

    line = "Then look at the frame before."
    show.step(
        "Edit one skill and take the next version: only the edit is stored",
        f"echo '{line}' >> data/skills/name-a-tool.md",
        "cas add skills data/skills -m 'Look back as well'",
    )
    with (data / "skills" / "name-a-tool.md").open("a") as skill:
        skill.write(f"{line}\n")
    show.result(added_line(add("skills", data / "skills", description="Look back as well")))
    return store


def _names_and_seed(show: Show, place: Path, store: "cas.Store") -> None:
    show.step(
        "See what changed",
        "cas diff skills@v1 skills@v2",
        "cas diff skills@v1 skills@v2 name-a-tool.md",
    )
    for change in store.diff("skills@v1", "skills@v2").changed:
        show.result(f"changed   {change.path.decode()}")
    text = list(store.diff_text("skills@v1", "skills@v2", "name-a-tool.md"))
    show.result(*(line.rstrip("\n") for line in text if line[:1] == "+" != line[1:2]))

    show.step("Say which is live", "cas tag set live skills@v2 --reason 'passed review'")
    tag = store.tags.set("live", "skills@v2", reason="passed review")
    show.result(f"{tag.spec} -> {tag.target}, by {tag.by}")

    show.step(
        "Freeze a seed: skills, prompts and the run that earned them",
        "cas seed create initial --skills skills@v2 --prompts prompts@v1 "
        f"--baseline data/baseline.db --run {BASELINE_RUN}",
    )
    seed = store.seeds.create(
        "initial",
        skills="skills@v2",
        prompts="prompts@v1",
        baseline=place / "data" / "baseline.db",
        baseline_run_id=BASELINE_RUN,
    )
    show.result(f"{seed.spec}: {', '.join(seed.parts)}; {files_and_size(seed.files, seed.bytes)}")


def _evolve(show: Show, place: Path, store: "cas.Store") -> None:
    work = place / "work"
    show.step("Start a workspace from the seed", "cas checkout seed:initial work")
    made = store.checkout("seed:initial", work)
    show.result(f"{files_and_size(made.files, made.bytes)} ({made.mode})")

    show.step(
        "Evolve a skill there",
        "cp -r work/skills/v2 work/skills/v3",
        "echo 'Say how sure you are.' >> work/skills/v3/name-an-animal.md",
        "cas status work",
    )
    shutil.copytree(work / "skills" / "v2", work / "skills" / "v3")
    with (work / "skills" / "v3" / "name-an-animal.md").open("a") as skill:
        skill.write("Say how sure you are.\n")
    status = store.status(work)
    show.result(
        f"{count(len(status.added), 'path')} added, {len(status.changed)} changed, "
        f"{len(status.deleted)} deleted"
    )

    show.step(
        f"A run with skills v3 scores better, and is recorded as {EVAL_RUN}; promote it",
        f"cas seed promote work --version v3 --run {EVAL_RUN} --name evolved -m 'Sure or not'",
    )
    record_run(work / "harness.db", EVAL_RUN, skills="v3", score=0.74)
    seed = store.seeds.promote(
        work,
        version="v3",
        eval_run_id=EVAL_RUN,
        name="evolved",
        description="Sure or not",
    )
    show.result(f"{seed.spec}: from {seed.parent}; {files_and_size(seed.files, seed.bytes)}")

    show.step("Where did it come from?", "cas log seed:evolved --graph")
    show.result(*_lineage(store.log("seed:evolved")))

    show.step("See what it all takes", "cas stats")
    stats = store.stats()
    show.result(
        f"{size(stats.logical_bytes)} as plain copies, "
        f"{size(stats.unique_bytes)} with equal files once, {size(stats.stored_bytes)} stored"
    )


def _lineage(entries: "Iterable[cas.LineageEntry]") -> Iterable[str]:
    def text(entry: "cas.LineageEntry") -> str:
        return "  ".join(filter(None, (entry.spec or str(entry.digest)[:12], entry.description)))

    return draw([(entry.digest, entry.parents, [text(entry)]) for entry in entries])


def _copy(show: Show, place: Path, store: "cas.Store") -> bool:
    copy = place / "copy"
    frame = f"{VIDEOS[0]}/frames/00021.jpg"
    proof = "cas verify --dir copy --against videos@v1"

    def verdict() -> "cas.VerifyReport":
        report = store.verify_directory(copy, against="videos@v1")
        for problem in report.problems:
            show.result(f"{problem.kind}: {problem.location}")
        show.result(
            f"{'ok' if report.ok else 'damaged'}; "
            f"{size(report.checked_bytes)} of {size(report.bytes)} read and hashed"
        )
        return report

    show.step("Copy the videos with any tool, and prove the copy", "cp -r data/videos copy", proof)
    shutil.copytree(place / "data" / "videos", copy)
    sound = verdict().ok

    show.step("Flip one bit in one frame of the copy", proof)
    _flip(copy / frame)
    found = not verdict().ok

    show.step("Prove the store itself", "cas verify")
    report = store.verify()
    show.result(
        f"{'ok' if report.ok else 'damaged'}; {count(report.objects, 'object')}, "
        f"{size(report.checked_bytes)} read and hashed"
    )

    show.step("Heal the copy from it", f"cas cat videos@v1:{frame} > copy/{frame}", proof)
    with store.open(f"videos@v1:{frame}") as good, (copy / frame).open("wb") as bad:
        shutil.copyfileobj(good, bad)
    healed = verdict().ok
    return sound and found and report.ok and healed


def _flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(1000)
        [byte] = file.read(1)
        file.seek(1000)
        file.write(bytes([byte ^ 1]))
