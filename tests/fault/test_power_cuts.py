"""The power goes at any moment while commands run: what was acknowledged is there, and whole.

The store lies on a filesystem in a file, and that file on an XFS, so that one call clones it as it
is at one moment: all that the loop device has written, in whatever order, and nothing that only the
filesystem inside has in memory. A disk without a cache of its own would hold just that; what a
volatile cache could lose beside is looked for by simulation, see `cas.testing.power_cut`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time

import pytest

import cas
from cas.testing import mounts
from cas.testing.stores import check_names_are_whole
from cas.testing.strategies import materialise

CUTS = 200 if os.environ.get("CAS_SOAK") else 5

WORKING = """
import json, os, sys
import cas

home = sys.argv[1]
store = cas.Store.open(home + "/store")

def say(*words):
    print(json.dumps(words), flush=True)

say("ready")
for turn in range(10**6):
    with open(home + "/set/own", "wb") as file:
        file.write(b"%d " % turn * (turn % 50 * 40))
    if turn % 7 == 3:
        with open(home + "/set/big", "wb") as file:
            file.write(b"%d" % turn * 300_000)
    added = store.versions.add("skills", home + "/set")
    say("version", added.spec, str(added.digest))
    store.tags.set("live", added.spec)
    say("tag", added.number)
    store.learning.record(cas.Candidate(f"c{turn}", "k"))
    say("candidate", f"c{turn}", "open")
    claim = store.learning.claim(f"c{turn}", "w", 3600)
    say("candidate", f"c{turn}", "synthesizing")
    if turn % 3 == 0:
        store.checkout(added.spec, f"{home}/work{turn}")
        say("workspace", f"work{turn}", added.spec)
    if turn % 5 == 4:
        removed = store.versions.remove(f"skills@v{added.number - 2}")
        say("removed", removed.spec)
    if turn % 10 == 9:
        store.gc(grace=0)
        store.repack(level=1 + turn % 3)
"""


class Worker:
    """A process that changes a store, and what it has said so far."""

    def __init__(self, home):
        self.said = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKING, home], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == '["ready"]\n'
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self):
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def wait_for(self, what):
        """Return when it has said something of a kind, on however slow a disk."""
        while all(said != what for said, *_ in self.said) and self.process.poll() is None:
            time.sleep(0.01)

    def end(self):
        self.process.kill()
        self._thread.join()
        self.process.stdout.close()
        self.process.wait()


def check(disk, said):
    """Check that a disk after the cut has all that was acknowledged before, and goes on."""
    with cas.Store.open(disk / "store") as store:
        report = store.verify(workers=1)
        assert report.ok, report.problems
        check_names_are_whole(store)
        versions = {version.spec: version for version in store.versions.list(removed=True)}
        numbers = [version.number for version in versions.values()]
        assert numbers == list(range(1, len(numbers) + 1))
        status = {}
        for what, *rest in said:
            if what == "version":
                assert str(versions[rest[0]].digest) == rest[1]
            elif what == "tag":
                assert int(store.tags.get("live").target.rpartition("@v")[2]) >= rest[0]
            elif what == "candidate":
                status[rest[0]] = rest[1]
            elif what == "removed":
                assert versions[rest[0]].removed_at is not None
            else:
                assert cas.verify_workspace(disk / rest[0]).ok
                assert store.status(disk / rest[0]).clean
        for name, told in status.items():
            found = store.learning.get(name).status
            assert found == told or (told, found) == ("open", "synthesizing")
        added = store.versions.add("skills", disk / "set")
        assert added.number == len(numbers) + 1
        assert store.verify(workers=1).ok


@pytest.mark.root
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
@pytest.mark.timeout(3600)
def test_the_power_may_go_at_any_moment(tmp_path, kind):
    chance = random.Random(kind)
    with contextlib.ExitStack() as stack:
        try:
            outer = stack.enter_context(mounts.mounted("xfs", tmp_path, size=1 << 30))
            (outer.path / "disks").mkdir()
            inner = stack.enter_context(mounts.mounted(kind, outer.path / "disks", size=400 << 20))
        except mounts.Unavailable as reason:
            pytest.skip(str(reason))
        model = {b"d%d" % n: {b"f": ("file", b"%d" % n * 500)} for n in range(8)}
        materialise(model, inner.path / "set")
        cas.Store.init(inner.path / "store").close()
        cuts = workspaces = 0
        while cuts < CUTS:
            worker = Worker(str(inner.path))
            try:
                for _ in range(25):
                    time.sleep(chance.uniform(0, 0.3))
                    if cuts == CUTS - 1:
                        worker.wait_for("workspace")
                    said = list(worker.said)
                    clone = outer.path / "clone"
                    subprocess.run(["cp", "--reflink=always", inner.image, clone], check=True)
                    with mounts.mounted_image(kind, clone, outer.path / "after") as disk:
                        check(disk, said)
                    clone.unlink()
                    cuts += 1
                    if cuts == CUTS:
                        break
            finally:
                worker.end()
            workspaces += sum(what == "workspace" for what, *_ in said)
            with cas.Store.open(inner.path / "store") as store:
                for workspace in store.workspaces.list():
                    store.workspaces.forget(workspace.path)
                    shutil.rmtree(workspace.path, ignore_errors=True)
        assert workspaces
