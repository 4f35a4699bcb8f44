"""`cas checkout`, `status`, `workspace …`."""

import filecmp

import pytest


@pytest.fixture
def added(cas, store, skills):
    cas("add", "skills", "skills")
    return skills


def test_checkout_gives_back_what_was_added(cas, added, clean):
    made = cas("checkout", "skills@v1", "work", "--json").json()
    assert set(made) >= {"dest", "files", "bytes", "mode", "spec"}
    assert (made["files"], made["spec"]) == (3, "skills@v1")
    for path in added.rglob("*"):
        if path.is_file():
            copy = clean / "work" / path.relative_to(added)
            assert filecmp.cmp(path, copy, shallow=False)
    assert "skills@v1, 3 files" in cas("checkout", "skills@v1", "other").text


def test_checkout_refuses_a_directory_that_is_not_its_own(cas, added, clean):
    (clean / "work").mkdir()
    (clean / "work" / "mine.txt").write_text("mine")
    cas("checkout", "skills@v1", "work", code=4)
    cas("checkout", "skills@v1", "work", "--force", code=4)
    assert (clean / "work" / "mine.txt").read_text() == "mine"


def test_only_some_paths_are_written(cas, added, clean):
    cas("checkout", "skills@v1", "work", "--only", "*.md", "--only", "tools/*.txt")
    assert (clean / "work" / "search.md").exists()
    assert (clean / "work" / "tools" / "notes.txt").exists()
    assert not (clean / "work" / "tools" / "count.py").exists()


@pytest.mark.parametrize("mode", ["auto", "copy", "hardlink"])
def test_the_mode_that_was_used_is_said(cas, added, mode):
    used = cas("checkout", "skills@v1", "work", "--mode", mode, "--json").json()["mode"]
    assert used in ({"copy", "reflink"} if mode == "auto" else {mode})


def test_status_names_what_was_edited(cas, added, clean):
    cas("checkout", "skills@v1", "work")
    assert cas("status", "work").text.startswith("clean")
    assert cas("status", "work", "--json").json()["clean"] is True
    (clean / "work" / "search.md").write_text("mine")
    (clean / "work" / "tools" / "count.py").unlink()
    (clean / "work" / "new.md").write_text("new")
    assert cas("status", "work").lines == [
        "added     new.md",
        "changed   search.md",
        "deleted   tools/count.py",
    ]
    found = cas("status", "work", "--json").json()
    assert (found["clean"], found["added"]) == (False, ["new.md"])


def test_status_needs_no_store_and_takes_the_current_directory(cas, added, clean, monkeypatch):
    cas("checkout", "skills@v1", "work")
    (clean / ".cas").rename(clean / "gone")
    monkeypatch.chdir(clean / "work")
    assert cas("status").text.startswith("clean")
    monkeypatch.chdir(clean)
    cas("status", code=3)


def test_update_moves_a_workspace_and_keeps_what_was_edited(cas, added, clean):
    cas("checkout", "skills@v1", "work")
    (added / "search.md").write_text("theirs")
    (added / "tools" / "notes.txt").write_text("theirs")
    cas("add", "skills", "skills")
    (clean / "work" / "search.md").write_text("mine")
    cas("checkout", "skills@v2", "work", code=4)
    moved = cas("checkout", "skills@v2", "work", "--update")
    assert "kept      search.md" in moved.lines
    assert (clean / "work" / "search.md").read_text() == "mine"
    assert (clean / "work" / "tools" / "notes.txt").read_text() == "theirs"


def test_force_replaces_what_nobody_changed(cas, added, clean):
    cas("checkout", "skills@v1", "work")
    (added / "search.md").write_text("theirs")
    cas("add", "skills", "skills")
    cas("checkout", "skills@v2", "work", "--force")
    assert (clean / "work" / "search.md").read_text() == "theirs"


def test_the_store_remembers_a_workspace_until_it_forgets_it(cas, added, clean):
    cas("checkout", "skills@v1", "work")
    [found] = cas("workspace", "list", "--json").json()
    assert (found["path"], found["spec"]) == (str(clean / "work"), "skills@v1")
    assert str(clean / "work") in cas("workspace", "list").text
    assert "forgotten" in cas("workspace", "forget", "work").text
    assert cas("workspace", "list", "--json").json() == []
    assert (clean / "work" / "search.md").exists()
    cas("workspace", "forget", "work", code=3)
