"""`cas push`, `cas pull` and `cas clone`."""

import pytest


@pytest.fixture
def other(cas, store, clean, skills):
    """A store with one version of skills, which a tag points at."""
    cas("init", clean / "other")
    cas("add", "skills", skills, "--store", clean / "other")
    cas("tag", "set", "live", "skills@v1", "--store", clean / "other")
    return clean / "other"


def test_pull_says_what_came_and_does_it_once(cas, other):
    ran = cas("pull", other)
    assert ran.lines == [
        "skills@v1",
        "tag:live",
        "2 new names, 0 there already; copied 6 objects, 470 B",
    ]
    assert cas("pull", other).lines == ["0 new names, 2 there already; copied 0 objects, 0 B"]
    assert len(cas("versions", "skills").lines) == len(cas("versions").lines)


def test_push_to_another_store_in_json(cas, other, skills):
    cas("add", "prompts", skills)
    shown = cas("push", other, "prompts@latest", "--json").json()
    assert shown["new"] == ["prompts@v1"]
    assert (shown["conflicts"], shown["renumbered"]) == ([], [])
    assert shown["destination"] == str(other)


def test_a_conflict_is_said_and_ends_in_exit_code_4(cas, other, skills):
    (skills / "search.md").write_text("mine\n")
    cas("add", "skills", skills)
    ran = cas("pull", other, code=4)
    assert "skills@v1 means something else at" in ran.message
    assert cas("cat", "skills@v1:search.md").text == "mine\n"
    asked = cas("pull", other, "skills@v1", "--json", code=4)
    assert asked.error()["specs"] == ["skills@v1"]
    ran = cas("pull", other, "skills@v1", "--renumber")
    assert ran.lines[0] == "skills@v2 (there skills@v1)"


def test_what_is_not_there_is_not_found(cas, other):
    cas("pull", other, "skills@v9", code=3)
    cas("pull", other / "nowhere", code=3)
    cas("pull", other, "skills@v1:search.md", code=6)


def test_clone_makes_a_store_that_verifies(cas, other, clean):
    ran = cas("clone", other, clean / "copy")
    assert ran.lines == [f"{clean / 'copy'}: 1 version and 0 seeds"]
    assert cas("verify", "--store", clean / "copy").lines[-1].startswith("ok;")
    assert (
        cas("tag", "list", "--store", clean / "copy").lines
        == cas("tag", "list", "--store", other).lines
    )
    cas("clone", other, clean / "copy", code=4)
    shown = cas("clone", other, clean / "again", "--json").json()
    assert shown["versions"][0]["spec"] == "skills@v1"
