"""A store copied by any tool while it is written to: the copy says what it lacks, and heals."""

from __future__ import annotations

import shutil
import subprocess
import threading

import pytest

import cas
from cas.testing.stores import check_names_are_whole
from cas.testing.strategies import materialise

TOOLS = {
    "cp": ["cp", "-r", "store", "copy"],
    "rsync": ["rsync", "-r", "store/", "copy"],
    "tar": ["sh", "-c", "mkdir copy; tar -C store -cf - . | tar -C copy -xf -"],
}


@pytest.mark.parametrize("tool", TOOLS)
def test_a_copy_of_a_store_at_work_opens_and_is_healed_by_a_pull(tmp_path, tool):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    model = {b"d%d" % n: {b"f": ("file", b"%d" % n * 300)} for n in range(20)}
    materialise(model, tmp_path / "set")
    store = cas.Store.init(tmp_path / "store")
    store.versions.add("skills", tmp_path / "set")
    stop = threading.Event()

    def work():
        with cas.Store.open(tmp_path / "store") as writer:
            turn = 0
            while not stop.is_set():
                turn += 1
                (tmp_path / "set/own").write_bytes(b"%d " % turn * 200)
                added = writer.versions.add("skills", tmp_path / "set")
                writer.tags.set("live", added.spec)
                writer.learning.record(cas.Candidate(f"c{turn}", "k"))

    worker = threading.Thread(target=work)
    worker.start()
    outcomes = []
    try:
        for _ in range(8):
            done = subprocess.run(TOOLS[tool], cwd=tmp_path, capture_output=True, check=False)
            assert (tmp_path / "copy").is_dir(), done.stderr
            outcomes.append(heal(store, tmp_path / "copy"))
            shutil.rmtree(tmp_path / "copy")
    finally:
        stop.set()
        worker.join()
        store.close()
    assert outcomes


def heal(store, root):
    """Bring what a copy lacks, by a pull or where its log was caught in two, by a repair."""
    with cas.Store.open(root) as copy:
        report = copy.verify(workers=1)
        if not report.ok:
            assert all(problem.location for problem in report.problems)
        try:
            copy.pull(store)
            how = "pull"
        except cas.DamagedError:
            copy.repair(store.root)
            copy.pull(store)
            how = "repair"
        report = copy.verify(workers=1)
        if not report.ok:
            copy.repair(store.root)
            how = "repair"
        assert copy.verify(workers=1).ok
        check_names_are_whole(copy)
        return how
