"""`cas import` and `cas export`."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def old(clean, write):
    """An old version store with a version that was not finished."""
    return write(
        clean / "old",
        {
            "skills/v1/look.md": "Look.\n",
            "skills/v1/meta.json": json.dumps({"created_at": "2026-01-01T00:00:00+00:00"}),
            "skills/v3/look.md": "Look twice.\n",
            "skills/v3/meta.json": json.dumps({"created_at": "2026-01-02T00:00:00+00:00"}),
            "skills/v4/look.md": "Lo",
        },
    )


def test_import_says_what_came_in_and_what_was_skipped(cas, store, old):
    ran = cas("import", old)
    assert ran.lines == [
        "skills: 2 versions, v1 to v3",
        "imported 2 versions and 0 seeds, 2 files, 18 B; 1 name skipped",
    ]
    assert ran.message == "cas: note: skipped skills/v4: has no meta.json: it was not finished\n"
    again = cas("import", old)
    assert again.lines == [
        "imported 0 versions and 0 seeds, 0 files, 0 B; 2 names here already; 1 name skipped"
    ]


def test_import_of_a_learning_folder_says_what_came_in_and_what_was_skipped(cas, store, clean):
    (clean / "board").mkdir()
    good = json.dumps({"candidate_id": "c1", "kind": "k"})
    (clean / "board/learning-candidates.jsonl").write_text(f"{good}\n\n[]\n{good}\n" + good[:9])
    ran = cas("import", "board")
    assert ran.lines == [
        "learning: 1 candidate, 0 audit events, 0 snapshots, 0 reports",
        "imported 0 versions and 0 seeds, 0 files, 0 B; 4 names skipped",
    ]
    skipped = "cas: note: skipped learning-candidates.jsonl: line"
    assert [line.partition(": line ")[2][:12] for line in ran.message.splitlines()] == [
        "2 is blank",
        "3 a candidate is a"[:12],
        "4 says 'c1' once"[:12],
        "5 is no JSON"[:12],
    ]
    assert all(line.startswith(skipped) for line in ran.message.splitlines())
    again = cas("import", "board", "--json").json()
    assert again["learning"] == {
        "candidates": 0,
        "audit_events": 0,
        "performance": 0,
        "reports": 0,
        "known": 1,
        "differing": [],
    }
    assert len(again["skipped"]) == 4


def test_import_in_json_lists_all_of_it(cas, store, old):
    shown = cas("import", old, "--json").json()
    assert [version["spec"] for version in shown["versions"]] == ["skills@v1", "skills@v3"]
    assert [skipped["path"] for skipped in shown["skipped"]] == ["skills/v4"]
    assert cas("import", old, "--json").json()["present"] == ["skills@v1", "skills@v3"]


def test_a_conflict_names_what_is_in_the_way(cas, store, old, skills):
    cas("add", "skills", skills)
    ran = cas("import", old, code=4)
    assert ran.message.startswith("cas: skills@v1: the store has something else of that name")
    assert len(cas("versions").lines) == 1


def test_what_is_no_old_store_is_refused(cas, store, clean):
    cas("import", clean / "gone", code=3)
    cas("import", clean, code=6)


def test_export_writes_what_import_takes(cas, store, old):
    cas("import", old)
    ran = cas("export", "out")
    assert ran.lines == [f"{Path('out').resolve()}: 2 versions and 0 seeds, 2 files, 18 B (copy)"]
    assert Path("out/skills/v3/look.md").read_text() == "Look twice.\n"
    cas("export", "out", code=4)
    shown = cas("export", "again", "--json").json()
    assert shown["versions"] == ["skills@v1", "skills@v3"]


def test_an_empty_store_is_not_exported(cas, store):
    assert "no versions, seeds or candidates" in cas("export", "out", code=6).message
