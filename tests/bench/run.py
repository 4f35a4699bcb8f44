"""The speed table of the project, measured: `python tests/bench/run.py --corpus DIR --work DIR`.

Every operation is timed as a whole process, start-up included, in turns with its yardstick (git,
cp, b3sum) on one fresh file system, warm cache, durability on; the median of the pairwise ratios is
what counts, since absolute times do not travel between machines or even minutes.

Needs root (loop devices), git, b3sum, mkfs.ext4 and mkfs.xfs. The corpus is a folder with
`skills/v1` … `skills/v5` (20,000 small files; each version changes about 1 %), `videos/v1` (a few
large files, one of them a duplicate) and `frames/v1` (20,000 files of about 40 KB).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

GIT = [
    "git",
    *("-c", "core.compression=0"),
    *("-c", "gc.auto=0"),
    *("-c", "user.name=bench"),
    *("-c", "user.email=bench@localhost"),
]
MIB = 1 << 20


# ------------------------------------------------------------------ one run of one command
def run(command: Sequence[str] | str, cwd: Path | None = None) -> float:
    """Seconds of wall clock of one command that must succeed."""
    start = time.perf_counter()
    done = subprocess.run(
        command, shell=isinstance(command, str), cwd=cwd, capture_output=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{command}: exit {done.returncode}\n{done.stderr.decode(errors='replace')}")
    return seconds


def peak_memory(command: Sequence[str]) -> float:
    """Largest sum of the proportional set sizes of a command and its children, in MiB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        total = 0
        for pid in [process.pid, *children(process.pid)]:
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1])
        peak = max(peak, total / 1024)
        time.sleep(0.03)
    if process.returncode:
        sys.exit(f"{command}: exit {process.returncode}")
    return peak


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


# ------------------------------------------------------------------ file systems
@contextlib.contextmanager
def mounted(work: Path, kind: str, gib: int) -> Iterator[Path]:
    """A fresh file system of a kind on a sparse image, mounted; gone afterwards."""
    image, point = work / f"{kind}.img", work / kind
    with image.open("wb") as file:
        file.truncate(gib << 30)
    quiet = ["-q", "-F"] if kind == "ext4" else ["-q", "-f"]
    run([f"mkfs.{kind}", *quiet, str(image)])
    loop = subprocess.run(
        ["losetup", "--find", "--show", "--direct-io=on", str(image)],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    point.mkdir(exist_ok=True)
    run(["mount", "-t", kind, loop, str(point)])
    try:
        yield point
    finally:
        run(["umount", str(point)])
        run(["losetup", "--detach", loop])
        image.unlink()


# ------------------------------------------------------------------ the operations
class Bench:
    def __init__(self, cas: str, corpus: Path, work: Path, runs: int) -> None:
        self.cas, self.corpus, self.work, self.runs = cas, corpus, work, runs
        self.rows: list[dict[str, object]] = []
        self.start_up = 0.0

    def command(self, store: Path, *words: str) -> list[str]:
        return [self.cas, "--store", str(store), "--no-progress", *words]

    def pair(
        self,
        name: str,
        limit: float,
        ours: Callable[[int], float],
        yardstick: Callable[[int], float],
        *,
        less_start_up: bool = False,
    ) -> None:
        """Run both in turns; the warm-up pair is not counted."""
        mine, theirs, ratios = [], [], []
        for i in range(self.runs + 1):
            b = yardstick(i)
            a = ours(i)
            if i:
                mine.append(a)
                theirs.append(b)
                ratios.append((a - self.start_up if less_start_up else a) / b)
        self.report(name, limit, statistics.median(ratios), mine, theirs)

    def report(
        self, name: str, limit: float, ratio: float, mine: list[float], theirs: list[float]
    ) -> None:
        row = {
            "operation": name,
            "limit": limit,
            "ratio": round(ratio, 3),
            "holds": ratio <= limit,
            "seconds": round(statistics.median(mine), 3),
            "yardstick": round(statistics.median(theirs), 3) if theirs else None,
        }
        self.rows.append(row)
        print(json.dumps(row), flush=True)

    # -------------------------------------------------------------- start-up
    def startup(self) -> None:
        python = str(Path(self.cas).with_name("python"))
        typer = [python, "-c", "import typer"]
        for option in ("--version", "--help"):
            words = [self.cas, option]
            self.pair(f"cas {option}", 2.0, lambda _, w=words: run(w), lambda _: run(typer))
        self.start_up = statistics.median(run([self.cas, "--version"]) for _ in range(7))
        print(json.dumps({"start_up": round(self.start_up, 3)}), flush=True)

    # -------------------------------------------------------------- small files
    def small(self) -> None:
        with mounted(self.work, "ext4", 12) as disk:
            source = disk / "skills"
            shutil.copytree(self.corpus / "skills/v1", source)
            os.sync()
            git = [*GIT, f"--git-dir={disk / 'git'}", f"--work-tree={source}"]
            add_commit = f"{' '.join(git)} add -A && {' '.join(git)} commit -q -m x"
            store = disk / "store"

            def git_first(_: int) -> float:
                shutil.rmtree(disk / "git", ignore_errors=True)
                run(["git", "init", "-q", "--bare", str(disk / "git")])
                os.sync()
                return run(add_commit)

            def cas_first(_: int) -> float:
                shutil.rmtree(store, ignore_errors=True)
                run([self.cas, "init", str(store)])
                os.sync()
                return run(self.command(store, "add", "skills", str(source)))

            self.pair("add small, empty store / git add+commit", 0.7, cas_first, git_first)
            self.pair(
                "add small again / git add",
                4.0,
                lambda _: run(self.command(store, "add", "skills", str(source))),
                lambda _: run([*git, "add", "-A"]),
                less_start_up=True,
            )

            def change(i: int) -> float:
                shutil.copytree(
                    self.corpus / f"skills/v{(i + 1) % 5 + 1}",
                    source,
                    dirs_exist_ok=True,
                    copy_function=copy_if_other,
                )
                os.sync()
                time.sleep(0.1)
                return run(add_commit)

            self.pair(
                "add small, 1 % changed / git add+commit",
                2.0,
                lambda _: run(self.command(store, "add", "skills", str(source))),
                change,
                less_start_up=True,
            )
            self.checkouts(disk, store, git)
            self.pair(
                "verify small / git fsck --full",
                0.7,
                lambda _: run(self.command(store, "verify")),
                lambda _: run([*git, "fsck", "--full", "--no-progress"]),
            )

    def checkouts(self, disk: Path, store: Path, git: list[str]) -> None:
        def git_checkout(tail: str) -> float:
            shutil.rmtree(disk / "tree", ignore_errors=True)
            run([*git, "worktree", "prune"])
            os.sync()
            tree = " ".join(git[:-1])
            return run(f"{tree} worktree add -q --detach {disk / 'tree'} HEAD{tail}")

        def cas_checkout(*options: str) -> float:
            shutil.rmtree(disk / "out", ignore_errors=True)
            os.sync()
            return run(
                self.command(store, "checkout", "skills@latest", str(disk / "out"), *options)
            )

        self.pair(
            "checkout small / git checkout + sync",
            1.0,
            lambda _: cas_checkout(),
            lambda _: git_checkout(" && sync"),
        )
        self.pair(
            "checkout small --no-sync / git checkout",
            1.0,
            lambda _: cas_checkout("--no-sync"),
            lambda _: git_checkout(""),
        )

    # -------------------------------------------------------------- large files, frames
    def copied(self, kind: str, name: str, limits: tuple[float, float]) -> None:
        """Add and checkout of one corpus folder against `cp -r` followed by `sync`."""
        with mounted(self.work, kind, 24) as disk:
            source, store = disk / "source", disk / "store"
            shutil.copytree(self.corpus / name, source)
            os.sync()

            def cp(_: int) -> float:
                shutil.rmtree(disk / "copy", ignore_errors=True)
                os.sync()
                return run(f"cp -r --reflink=never {source} {disk / 'copy'} && sync")

            def add(_: int) -> float:
                shutil.rmtree(disk / "copy", ignore_errors=True)
                shutil.rmtree(store, ignore_errors=True)
                run([self.cas, "init", str(store)])
                os.sync()
                return run(self.command(store, "add", "videos", str(source)))

            def checkout(_: int) -> float:
                shutil.rmtree(disk / "copy", ignore_errors=True)
                shutil.rmtree(disk / "out", ignore_errors=True)
                os.sync()
                words = ("checkout", "videos@latest", str(disk / "out"))
                seconds = run(self.command(store, *words))
                shutil.rmtree(disk / "out")
                return seconds

            self.pair(f"add {name} on {kind} / cp -r + sync", limits[0], add, cp)
            self.pair(f"checkout {name} on {kind} / cp -r + sync", limits[1], checkout, cp)
            if kind == "ext4" and name.startswith("videos"):
                loose = f"find {store / 'loose'} -type f -print0 | xargs -0 b3sum"
                self.pair(
                    "verify large / b3sum",
                    1.5,
                    lambda _: run(self.command(store, "verify")),
                    lambda _: run(loose),
                    less_start_up=True,
                )

    def large(self) -> None:
        self.copied("ext4", "videos/v1", (1.3, 1.2))

    def xfs(self) -> None:
        self.copied("xfs", "videos/v1", (0.3, 0.3))

    def frames(self) -> None:
        self.copied("ext4", "frames/v1", (1.3, 1.2))

    # -------------------------------------------------------------- scale
    def scale(self) -> None:
        """Ten times the files cost ten times as much, in bounded memory."""
        with mounted(self.work, "ext4", 24) as disk:
            for i in range(10):
                shutil.copytree(
                    self.corpus / "skills/v1",
                    disk / f"big/{i}",
                    copy_function=lambda a, b, i=i: unlike(a, b, i),
                )
            os.sync()
            small, big, store = disk / "big/0", disk / "big", disk / "store"

            def add(source: Path) -> float:
                shutil.rmtree(store, ignore_errors=True)
                run([self.cas, "init", str(store)])
                os.sync()
                return run(self.command(store, "add", "skills", str(source)))

            self.pair("add 200,000 files / 10 x add 20,000", 1.15,
                      lambda _: add(big), lambda _: 10 * add(small))  # fmt: skip
            out = disk / "out"
            steps = {
                "add": ("add", "again", str(big)),
                "checkout": ("checkout", "again@latest", str(out)),
                "verify": ("verify",),
                "status": ("status", str(out)),
            }
            shutil.rmtree(store)
            run([self.cas, "init", str(store)])
            for name, words in steps.items():
                peak = peak_memory(self.command(store, *words))
                self.report(f"{name} 200,000 files: peak MiB", 200, peak, [peak], [])

    def versions(self) -> None:
        """The 1,000th version of a set costs what the second did."""
        with mounted(self.work, "ext4", 12) as disk:
            source, store = disk / "set", disk / "store"
            shutil.copytree(self.corpus / "skills/v1", source)
            run([self.cas, "init", str(store)])
            target = next(p for p in sorted(source.rglob("*")) if p.is_file())
            costs = []
            for i in range(1000):
                target.write_text(f"generation {i}\n")
                time.sleep(0.03)
                costs.append(run(self.command(store, "add", "skills", str(source))))
            early, late = statistics.median(costs[1:20]), statistics.median(costs[-20:])
            self.report("add version 1,000 / version 2", 1.15, late / early, [late], [early])
            self.pair("versions, 1,000 of them: seconds", 1.0,
                      lambda _: run(self.command(store, "versions")), lambda _: 1.0)  # fmt: skip


def copy_if_other(source: str, target: str) -> str:
    """Copy only what differs, so that unchanged files keep their stat."""
    a = Path(source).read_bytes()
    if not Path(target).exists() or Path(target).read_bytes() != a:
        Path(target).write_bytes(a)
    return target


def unlike(source: str, target: str, salt: int) -> str:
    """A file of the same size and other content."""
    content = Path(source).read_bytes()
    mark = b"%d" % salt
    Path(target).write_bytes(mark + content[len(mark) :])
    return target


PARTS = ("startup", "small", "large", "xfs", "frames", "scale", "versions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for the disk images")
    parser.add_argument("--cas", default=str(Path(sys.executable).with_name("cas")))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(args.cas, args.corpus, args.work, args.runs)
    bench.startup()
    for part in args.only:
        if part != "startup":
            getattr(bench, part)()
    failed = [row["operation"] for row in bench.rows if not row["holds"]]
    print(json.dumps({"operations": len(bench.rows), "over their limit": failed}))


if __name__ == "__main__":
    main()
