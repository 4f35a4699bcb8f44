"""Every command that changes a store, killed at each of its system calls that change the disk.

The kill comes from outside, when the call is made, so that nothing in the process can tidy up. A
few calls of each command in the ordinary run; all of them with CAS_SOAK=1.
"""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys

import pytest

import cas
from cas.testing.runs import record_run
from cas.testing.stores import check_names_are_whole
from cas.testing.strategies import materialise

CHANGING = (
    "copy_file_range,fallocate,fchmod,fchmodat,fchown,fdatasync,fsync,ftruncate,link,linkat,mkdir,"
    "mkdirat,pwrite64,rename,renameat,renameat2,rmdir,sendfile,symlinkat,sync_file_range,syncfs,"
    "unlink,unlinkat,utimensat,write"
)
"""Other architectures lack some of these: strace is asked to let that pass with `?`."""
SILENT = ("checkout", "clone", "gc", "repack")
"""Commands that change no name."""
SOME = 1 if os.environ.get("CAS_SOAK") else 16

COMMANDS = {
    "add": ("add", "skills", "set"),
    "edit": ("edit", "skills@v1", "--put", "new=set/a", "--rm", "old"),
    "tag set": ("tag", "set", "live", "skills@v2"),
    "remove": ("remove", "skills@v2"),
    "seed create": (
        *("seed", "create", "second", "--skills", "set", "--prompts", "old"),
        *("--baseline", "run.db", "--run", "r1"),
    ),
    "checkout": ("checkout", "skills@v1", "out"),
    "update": ("checkout", "skills@v2", "work", "--update"),
    "import": ("import", "layout"),
    "pull": ("pull", "other/.cas"),
    "clone": ("clone", "store", "copy"),
    "gc": ("gc", "--grace", "0s"),
    "repack": ("repack", "--level", "3"),
    "learn record": ("learn", "record", "--id", "c2", "--kind", "k"),
    "learn claim": ("learn", "claim", "c1", "--owner", "w"),
}

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A store with a bit of everything, to be copied for every try."""
    home = tmp_path_factory.mktemp("origin")
    materialise({b"old": ("file", b"old")}, home / "old")
    materialise({b"a": ("file", b"new"), b"big": ("file", b"z" * 1_200_000)}, home / "set")
    materialise({b"meta.json": ("file", b"{}"), b"x": ("file", b"x")}, home / "layout/prompts/v3")
    record_run(home / "run.db", "r1")
    with cas.Store.init(home / "store") as store:
        store.versions.add("skills", home / "old")
        store.versions.add("skills", home / "set")
        store.tags.set("live", "skills@v1")
        store.versions.add("skills", home / "run.db")
        store.versions.remove("skills@v3")
        store.learning.record(cas.Candidate("c1", "k"))
    with cas.Store.init(home / "other/.cas") as other:
        other.versions.add("videos", home / "set")
    return home


@pytest.fixture
def attempt(origin, tmp_path):
    """Return a fresh copy of it."""
    numbers = iter(range(10**6))

    def fresh():
        home = tmp_path / str(next(numbers))
        shutil.copytree(origin, home)
        with cas.Store.open(home / "store") as store:
            store.checkout("skills@v1", home / "work")
        return home

    return fresh


def run(home, words, *strace):
    return subprocess.run(
        [*strace, sys.executable, "-m", "cas_cli", "--store", "store", *words],
        cwd=home,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def calls(home, words):
    """Return how often a command makes each call that changes something."""
    optional = ",".join(f"?{call}" for call in CHANGING.split(","))
    trace = home / "trace"
    done = run(home, words, "strace", "-f", "-qq", "-e", f"trace={optional}", "-o", str(trace))
    assert done.returncode == 0, done.stderr
    made = collections.Counter(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE))
    assert made["linkat"] or made["link"] or made["renameat"] or made["rename"], made
    return made


@needs_strace
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_command_killed_at_any_system_call_did_all_or_nothing(attempt, words):
    made = calls(attempt(), words)
    points = [(call, n) for call, count in sorted(made.items()) for n in range(1, count + 1)]
    killed = 0
    for call, n in points[len(words) % SOME :: SOME]:
        home = attempt()
        with cas.Store.open(home / "store") as store:
            before = names(store)
        inject = f"inject={call}:signal=KILL:when={n}"
        done = run(home, words, "strace", "-f", "-qq", "-o", "/dev/null", "-e", inject)
        killed += done.returncode != 0
        with cas.Store.open(home / "store") as store:
            check_names_are_whole(store)
            assert store.verify(workers=1).ok
            after = names(store)
            assert done.returncode != 0 or after != before or words[0] in SILENT
        if words[0] == "checkout" and "--update" not in words:
            assert not (home / "out").exists() or (home / "out/old").read_bytes() == b"old"
        again = run(home, words)
        # What had been done already is a conflict with itself for those that make a name anew.
        assert (
            again.returncode == 0
            or (again.returncode in (3, 4) and after != before)
            or (again.returncode == 4 and words[0] in ("checkout", "clone"))
        ), (call, n, again.stderr)
        with cas.Store.open(home / "store") as store:
            assert store.verify(workers=1).ok
        shutil.rmtree(home)
    assert killed
    print(f"{' '.join(words[:2])}: killed at {killed} of {len(points)} system calls")


def names(store):
    """Return all that names and candidates say."""
    return (
        [(v.spec, v.digest) for v in store.versions.list()],
        [(s.spec, s.digest) for s in store.seeds.list()],
        [(t.name, t.digest) for t in store.tags.list()],
        [candidate.to_dict() for candidate in store.learning.list()],
    )
