"""Publishing on a disk: killed at every step, by kill -9 at random, and raced by processes."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

import cas
from cas.errors import BeingPublishedError, ConflictError
from cas.learning.keys import PUBLISHING
from cas.testing import faults
from cas.testing.stores import check_names_are_whole
from cas.testing.strategies import materialise

# Files that a killed process held open are closed by the system, here by the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

KILLS = 200 if os.environ.get("CAS_SOAK") else 8
CANDIDATES = 10 * KILLS + 100
RACERS = 6

PUBLISHING_ALL = """
import sys, cas
learning = cas.Store.open(sys.argv[1]).learning
print("ready", flush=True)
for name in sys.argv[2:]:
    print(name, learning.publish(name).version.number, flush=True)
"""

PUBLISHING_ONE = """
import sys, time, cas
store = cas.Store.open(sys.argv[1])
learning = store.learning
learning.get(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
published = learning.publish(sys.argv[2])
print(published.version.number, published.unchanged, flush=True)
"""


def make(home, candidates):
    """Make a store in which each candidate has a draft of a skill of its own."""
    names = [f"c{i:03}" for i in range(candidates)]
    skill = {b"SKILL.md": ("file", b"as it was")}
    materialise({name.encode(): skill for name in names}, home / "skills")
    drafts = {name.encode(): {b"SKILL.md": ("file", name.encode())} for name in names}
    materialise(drafts, home / "drafts")
    (home / "old").write_bytes(b"as it was")
    with cas.Store.init(home / "store", skills=home / "skills") as store:
        learning = store.learning
        store.versions.add("drafts", home / "drafts")
        for name in names:
            learning.record(cas.Candidate(name, "improve", extra={"base": f"skills@v1:{name}"}))
            learning.draft(name, f"drafts@v1:{name}")
    return names


def made(store):
    """Return candidate → number for the versions that publications made."""
    found = {}
    for version in store.versions.list("skills"):
        if version.source == "learning":
            assert version.meta["candidate"] not in found, "published twice"
            found[version.meta["candidate"]] = version.number
    return found


def check_settled(store, names):
    """See that candidates and versions agree, and nothing is under way."""
    learning = store.learning
    versions = made(store)
    for name in names:
        candidate = learning.get(name)
        assert candidate.status == ("published" if name in versions else "draft_ready")
        published = f"skills@v{versions[name]}" if name in versions else None
        assert candidate.extra.get("published_as") == published
        kinds = [event.event_type for event in learning.audit(name)]
        assert kinds.count("candidate_published") == (name in versions)
    assert not list(learning._state().scan(PUBLISHING))
    return versions


def test_a_crash_at_any_step_of_a_publication_leaves_a_version_or_none(tmp_path):
    (name,) = make(tmp_path, 1)
    seen = set()
    for number, injection in enumerate(faults.every_crash()):
        root = tmp_path / f"try{number}"
        shutil.copytree(tmp_path / "store", root)
        store = cas.Store.open(root)
        with injection:
            store.learning.publish(name)
        with cas.Store.open(root) as again:
            if number % 2:
                # Another who wants to do something else is not kept from it.
                with pytest.raises(cas.ConflictError) as refused:
                    again.learning.claim(name, "me")
                assert not isinstance(refused.value, BeingPublishedError)
            done = bool(check_settled(again, [name]))
            seen.add(done)
            published = again.learning.publish(name)
            assert (published.version.number, published.unchanged) == (2, done)
            check_settled(again, [name])
            assert len(check_names_are_whole(again)) == 3
        shutil.rmtree(root)
    assert seen == {False, True}


def lose_the_catalogue(root, tmp_path):
    """Lose all that says which names there are, and have a repair find versions by themselves."""
    shutil.rmtree(root / "log/catalogue")
    (tmp_path / "elsewhere").mkdir(exist_ok=True)
    with cas.Store.mend(root, tmp_path / "elsewhere") as store:
        assert store.repair(tmp_path / "elsewhere", workers=1).report.ok


def test_a_catalogue_made_anew_from_manifests_publishes_nothing_twice(tmp_path):
    (name,) = make(tmp_path, 1)
    seen = set()
    for number, injection in enumerate(faults.every_crash()):
        root = tmp_path / f"try{number}"
        shutil.copytree(tmp_path / "store", root)
        store = cas.Store.open(root)
        with injection:
            store.learning.publish(name)
        store.close()
        lose_the_catalogue(root, tmp_path)
        with cas.Store.open(root) as again:
            candidate = again.learning.get(name)
            there = name in made(again)
            seen.add((candidate.status, there))
            # It says it is published where the version came back, unless nobody began to publish.
            if there:
                events = [event.event_type for event in again.learning.audit(name)]
                begun = "candidate_publishing" in events
                assert candidate.status == ("published" if begun else "draft_ready")
            else:
                assert candidate.status == "draft_ready"
            # What others make of the skill meanwhile is no reason to publish it once more.
            if there and number % 2:
                again.versions.edit("skills@v2", put={f"{name}/SKILL.md": tmp_path / "old"})
            for unchanged in (there, True):
                published = again.learning.publish(name)
                assert (published.version.number, published.unchanged) == (2, unchanged)
            assert check_settled(again, [name]) == {name: 2}
            check_names_are_whole(again)
        shutil.rmtree(root)
    assert seen == {("draft_ready", False), ("published", True)}


def test_a_publication_whose_version_is_lost_says_so(tmp_path):
    (name,) = make(tmp_path, 1)
    with cas.Store.open(tmp_path / "store") as store:
        shutil.copytree(tmp_path / "store/log/catalogue", tmp_path / "before")
        store.learning.publish(name)
    shutil.rmtree(tmp_path / "store/log/catalogue")
    shutil.copytree(tmp_path / "before", tmp_path / "store/log/catalogue")
    with cas.Store.open(tmp_path / "store") as store:
        for _ in range(2):
            with pytest.raises(cas.NotFoundError, match=r"published as skills@v2.* is lost"):
                store.learning.publish(name)
            store.versions.add("skills", tmp_path / "drafts")  # another v2
        assert store.learning.get(name).status == "published"
        assert made(store) == {}


def test_a_crash_at_any_step_of_taking_a_draft_leaves_it_whole_or_out(tmp_path):
    make(tmp_path, 1)
    materialise({b"SKILL.md": ("file", b"new"), b"d": {b"x": ("exec", b"#!")}}, tmp_path / "new")
    with cas.Store.open(tmp_path / "store") as store:
        store.learning.record(cas.Candidate("new", "improve", extra={"base": "skills@v1:c000"}))
    seen = set()
    for number, injection in enumerate(faults.every_crash()):
        root = tmp_path / f"try{number}"
        shutil.copytree(tmp_path / "store", root)
        store = cas.Store.open(root)
        with injection:
            store.learning.draft("new", tmp_path / "new")
        with cas.Store.open(root) as again:
            candidate = again.learning.get("new")
            seen.add(candidate.status)
            digest = candidate.extra.get("draft_digest")
            kept = {str(digest) for digest, _, _ in again.learning.kept_digests()}
            if candidate.status == "draft_ready":
                assert digest in kept
                assert [entry.path for entry in again.walk(digest)] == [b"SKILL.md", b"d", b"d/x"]
            else:
                assert digest is None
                again.learning.draft("new", tmp_path / "new")
            assert again.learning.publish("new").version.number == 2
        shutil.rmtree(root)
    assert seen == {"open", "draft_ready"}


def test_a_full_disk_at_any_step_of_a_publication_is_said_and_can_be_tried_again(tmp_path):
    (name,) = make(tmp_path, 1)
    for number, injection in enumerate(faults.every_failure(errno.ENOSPC)):
        root = tmp_path / f"try{number}"
        shutil.copytree(tmp_path / "store", root)
        with cas.Store.open(root) as store:
            with injection, contextlib.suppress(cas.EnvironmentFailure):
                store.learning.publish(name)
            versions = check_settled(store, [name])
            published = store.learning.publish(name)
            assert published.version.number == 2
            assert published.unchanged is bool(versions)
            check_settled(store, [name])
        shutil.rmtree(root)


def started(script, *arguments):
    child = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.timeout(1200)
def test_killed_publishers_leave_every_candidate_published_once_or_not_at_all(tmp_path):
    names = make(tmp_path, CANDIDATES)
    told = {}
    for kill in range(KILLS):
        left = [name for name in names if name not in told]
        if not left:
            break
        child = started(PUBLISHING_ALL, tmp_path / "store", *left)
        # Every other one gets to its first publication, on however slow a disk.
        first = child.stdout.readline() if kill % 2 else ""
        time.sleep(random.uniform(0, 0.15))
        child.send_signal(signal.SIGKILL)
        lines = (first + child.stdout.read()).splitlines()
        child.stdout.close()
        child.stdin.close()
        child.wait()
        told |= {line.split()[0]: int(line.split()[1]) for line in lines if line.count(" ") == 1}
        with cas.Store.open(tmp_path / "store") as store:
            versions = check_settled(store, names)
            assert told.items() <= versions.items(), "an acknowledged publication is lost"
            told = versions
    assert told
    with cas.Store.open(tmp_path / "store") as store:
        check_names_are_whole(store)
        numbers = [version.number for version in store.versions.list("skills")]
        assert numbers == list(range(1, len(told) + 2))


def raced(store, names):
    """Let processes publish candidates at once, and return what each said."""
    children = [started(PUBLISHING_ONE, store, name) for name in names]
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate()[0].split() for child in children]
    assert [child.returncode for child in children] == [0] * len(children)
    return [(int(number), unchanged == "True") for number, unchanged in said]


def test_processes_that_publish_one_candidate_at_once_make_one_version(tmp_path):
    (name,) = make(tmp_path, 1)
    said = raced(tmp_path / "store", [name] * RACERS)
    assert [number for number, _ in said] == [2] * RACERS
    assert sorted(unchanged for _, unchanged in said) == [False] + [True] * (RACERS - 1)
    with cas.Store.open(tmp_path / "store") as store:
        assert check_settled(store, [name]) == {name: 2}


def test_processes_that_publish_different_candidates_at_once_build_on_each_other(tmp_path):
    names = make(tmp_path, RACERS)
    said = raced(tmp_path / "store", names)
    assert sorted(number for number, _ in said) == list(range(2, RACERS + 2))
    with cas.Store.open(tmp_path / "store") as store:
        check_settled(store, names)
        versions = store.versions.list("skills")
        for before, after in itertools.pairwise(versions):
            assert after.parents == (before.digest,)
            assert after.parent == before.spec
        for name in names:
            assert store.open(f"skills@latest:{name}/SKILL.md").read() == name.encode()


def test_a_skill_that_another_process_changed_is_refused_and_nothing_changes(tmp_path):
    (name,) = make(tmp_path, 1)
    with cas.Store.open(tmp_path / "store") as store:
        store.versions.edit(
            "skills@v1", put={f"{name}/SKILL.md": tmp_path / "drafts/c000/SKILL.md"}
        )
        store.versions.edit("skills@v2", put={f"{name}/more": tmp_path / "drafts/c000/SKILL.md"})
        with pytest.raises(ConflictError, match="changed between skills@v1 and skills@v3"):
            store.learning.publish(name)
        assert len(store.versions.list("skills")) == 3
        assert store.learning.get(name).status == "draft_ready"
