"""Other people: who may only read, who shares a store, and who swaps folders for links."""

from __future__ import annotations

import grp
import json
import os
import stat
import subprocess
import sys
import threading
import time

import pytest

import cas
from cas.testing.stores import check_names_are_whole, read_state
from cas.testing.strategies import materialise

SOMEBODY, ANOTHER = 65531, 65532
GROUP = 65530

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other people"),
]


@pytest.fixture
def home(tmp_path):
    """A place that everybody may pass through."""
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != path.parent:
            path.chmod(path.stat().st_mode | 0o011)
    return tmp_path


BECOMING = """
import importlib, os, pkgutil, sys
import cas, concurrent.futures.thread, ctypes, datetime, json, pathspec, portalocker, pwd, sqlite3
import subprocess, tempfile, zstandard

# All of it now: the program itself may lie where only root can read it.
for module in pkgutil.walk_packages(cas.__path__, "cas."):
    if "testing" not in module.name:
        importlib.import_module(module.name)
user, groups = int(sys.argv.pop(1)), json.loads(sys.argv.pop(1))
os.chdir("/")
os.setgroups(groups)
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.umask(0o077)
"""


def be(user, code, *words, groups=()):
    """Run Python as somebody, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", BECOMING + code, str(user), json.dumps(groups), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


READING = """
import json, sys
import cas
store = cas.Store.open(sys.argv[1])
with store.open("skills@v1:a") as file:
    content = file.read().decode()
done = store.checkout("skills@v1", sys.argv[2])
try:
    store.versions.add("skills", sys.argv[2])
    refused = None
except cas.CasError as error:
    refused = error.code
print(json.dumps([
    content, done.files, store.verify(workers=1).ok, len(store.log("skills@v1")),
    [c.candidate_id for c in store.learning.list()], cas.verify_workspace(sys.argv[2]).ok, refused,
]))
"""


def test_who_may_only_read_can_check_out_and_verify_and_nothing_else(home):
    materialise({b"a": ("file", b"a"), b"big": ("file", b"b" * (2 << 20))}, home / "set")
    with cas.Store.init(home / "store") as store:
        store.versions.add("skills", home / "set")
        store.learning.record(cas.Candidate("c1", "k"))
    (home / "own").mkdir()
    os.chown(home / "own", SOMEBODY, SOMEBODY)
    before = {p: p.stat().st_mtime_ns for p in (home / "store").rglob("*")}
    told = be(SOMEBODY, READING, home / "store", home / "own/work")
    assert told[:6] == ["a", 2, True, 1, ["c1"], True]
    assert told[6] in ("environment", "refused")
    assert {p: p.stat().st_mtime_ns for p in (home / "store").rglob("*")} == before


def test_nobody_else_may_write_to_the_files_of_a_store(home):
    materialise({b"a": ("file", b"a"), b"big": ("file", b"b" * (2 << 20))}, home / "set")
    before = os.umask(0)
    try:
        with cas.Store.init(home / "store") as store:
            store.versions.add("skills", home / "set")
            store.tags.set("live", "skills@v1")
            store.learning.record(cas.Candidate("c1", "k"))
            store.checkout("skills@v1", home / "work")
    finally:
        os.umask(before)
    for path in (home / "store").rglob("*"):
        if path.is_file() and "locks" not in path.parts:
            mode = stat.S_IMODE(path.stat().st_mode)
            assert not mode & 0o022 or "cache" in path.parts, path


WORKING = """
import json, sys
import cas
store = cas.Store.open(sys.argv[1])
added = store.versions.add("skills", sys.argv[2])
store.tags.set("live", added.spec)
store.learning.record(cas.Candidate(sys.argv[3], "k"))
claim = store.learning.claim(sys.argv[3], "w")
store.learning.transition(sys.argv[3], "published", token=claim.token)
store.versions.remove(added.spec)
store.versions.undelete(added.spec)
store.gc(grace=0)
store.repack(level=3)
store.checkout(added.spec, sys.argv[4])
print(json.dumps([added.number, store.verify(workers=1).ok]))
"""


def test_a_group_shares_a_store_whatever_the_umask(home, monkeypatch):
    class Group:
        gr_gid = GROUP

    monkeypatch.setattr(grp, "getgrnam", lambda name: Group())
    cas.Store.init(home / "store", shared="team").close()
    for number, user in enumerate((SOMEBODY, ANOTHER, SOMEBODY, ANOTHER)):
        own = home / f"own{number}"
        materialise({b"f": ("file", b"%d" % number * 300)}, own / "set")
        for path in (own, *own.rglob("*")):
            os.chown(path, user, user)
        told = be(
            user,
            WORKING,
            home / "store",
            own / "set",
            f"c{number}",
            own / "work",
            groups=[GROUP],
        )
        assert told == [number + 1, True]
    with cas.Store.open(home / "store") as store:
        assert store.verify().ok
        check_names_are_whole(store)


SWAPPING = """
import os, sys, time
folder, outside, end = sys.argv[1], sys.argv[2], time.monotonic() + float(sys.argv[3])
print("0", flush=True)
while time.monotonic() < end:
    try:
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            for inside in ([path] + [os.path.join(path, n) for n in os.listdir(path)]):
                try:
                    os.rename(inside, inside + ".aside")
                    os.symlink(outside, inside)
                    time.sleep(0.0005)
                    os.unlink(inside)
                    os.rename(inside + ".aside", inside)
                except OSError:
                    pass
    except OSError:
        pass
"""


def test_folders_swapped_for_links_lead_no_checkout_outside(home):
    model = {b"d%d" % n: {b"f%d" % m: ("file", b"secret") for m in range(20)} for n in range(20)}
    materialise(model, home / "set")
    outside = home / "outside"
    outside.mkdir()
    place = home / "place"
    place.mkdir()
    os.chown(place, SOMEBODY, SOMEBODY)
    store = cas.Store.init(home / "store")
    store.versions.add("skills", home / "set")
    seconds = 2.5
    attacker = threading.Thread(
        target=be, args=(SOMEBODY, SWAPPING, place, outside, seconds), daemon=True
    )
    attacker.start()
    end = time.monotonic() + seconds - 0.5
    tried = 0
    while time.monotonic() < end or tried < 4:
        try:
            store.checkout("skills@v1", place / f"work{tried}", sync=False)
        except cas.CasError:
            pass
        tried += 1
    attacker.join()
    assert not any(outside.iterdir())
    assert read_state(store, "skills@v1") == model
    store.close()


def test_folders_swapped_for_links_lead_no_ingest_outside(home):
    materialise({b"passwords": ("file", b"not to be taken")}, home / "outside")
    place = home / "place"
    materialise({b"d%d" % n: {b"passwords": ("file", b"mine")} for n in range(30)}, place)
    for path in (place, *place.rglob("*")):
        os.chown(path, SOMEBODY, SOMEBODY)
    store = cas.Store.init(home / "store")
    seconds = 2.5
    attacker = threading.Thread(
        target=be, args=(SOMEBODY, SWAPPING, place, home / "outside", seconds), daemon=True
    )
    attacker.start()
    end = time.monotonic() + seconds - 0.5
    made = []
    while time.monotonic() < end:
        try:
            made.append(store.versions.add("skills", place).spec)
        except cas.CasError:
            pass
    attacker.join()
    for spec in made:
        for entry in store.walk(spec):
            if entry.type in ("file", "exec"):
                with store.open(str(entry.digest)) as file:
                    assert file.read() == b"mine"
    store.close()
