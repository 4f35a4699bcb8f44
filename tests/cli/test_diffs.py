"""`cas diff`."""

import shutil

import pytest


@pytest.fixture
def changed(cas, store, skills):
    cas("add", "skills", "skills")
    (skills / "search.md").write_text("# Search\nLook three times.\n")
    (skills / "tools" / "count.py").unlink()
    (skills / "new.md").write_text("new\n")
    shutil.move(skills / "tools" / "notes.txt", skills / "notes.txt")
    cas("add", "skills", "skills")


def test_what_differs_is_listed_by_kind(cas, changed):
    found = cas("diff", "skills@v1", "skills@v2", "--json").json()
    assert found["added"] == ["new.md"]
    assert found["removed"] == ["tools/count.py"]
    assert found["changed"] == ["search.md"]
    assert found["renamed"] == [{"from": "tools/notes.txt", "to": "notes.txt"}]


def test_lines_name_the_kind_and_the_path(cas, changed):
    assert set(cas("diff", "skills@v1", "skills@v2").lines) >= {
        "added     new.md",
        "removed   tools/count.py",
        "changed   search.md",
        "renamed   tools/notes.txt -> notes.txt",
    }


def test_stat_adds_sizes_and_totals(cas, changed):
    lines = cas("diff", "skills@v1", "skills@v2", "--stat").lines
    assert any("21 B -> 27 B" in line for line in lines)
    assert "1 added" in lines[-1]


def test_equal_states_are_no_lines(cas, changed):
    same = cas("diff", "skills@v2", "skills", "--exit-code")
    assert same.out == b""
    assert cas("diff", "skills@v2", "skills", "--stat").text == "nothing differs\n"


def test_exit_code_says_that_something_differs(cas, changed):
    cas("diff", "skills@v1", "skills@v2")
    cas("diff", "skills@v1", "skills@v2", "--exit-code", code=1)
    cas("diff", "skills@v1", "skills@v2", "--exit-code", "--json", code=1)


def test_a_directory_is_compared_with_a_version(cas, changed):
    found = cas("diff", "skills@v1", "skills", "--json").json()
    assert found["added"] == ["new.md"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("skills@v1:search.md", "skills@v2:search.md"),
        ("skills@v1", "skills@v2", "search.md"),
        ("skills@v1:search.md", "skills/search.md"),
    ],
)
def test_one_file_is_compared_as_text(cas, changed, arguments):
    lines = cas("diff", *arguments).lines
    assert "-Look twice." in lines
    assert "+Look three times." in lines
    cas("diff", *arguments, "--exit-code", code=1)
    shown = cas("diff", *arguments, "--json").json()
    assert shown["differs"]
    assert "+Look three times." in shown["text"].splitlines()


def test_a_file_that_is_missing_on_both_sides_is_not_found(cas, changed):
    cas("diff", "skills@v1", "skills@v2", "nosuch.md", code=3)
