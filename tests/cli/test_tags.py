"""`cas tag …`."""

import pytest


@pytest.fixture
def two(cas, store, skills):
    cas("add", "skills", "skills")
    cas("add", "skills", "skills")


def test_a_tag_moves_and_every_move_is_kept(cas, two):
    cas("tag", "set", "live", "skills@v1", "--reason", "good", "--by", "dana")
    moved = cas("tag", "set", "live", "skills@latest", "--reason", "better", "--json").json()
    assert moved["spec"] == "tag:live"
    [tag] = cas("tag", "list", "--json").json()
    assert tag == moved
    history = cas("tag", "history", "live", "--json").json()
    assert [(move["reason"], move["removed"]) for move in history] == [
        ("good", False),
        ("better", False),
    ]
    assert history[0]["by"] == "dana"
    assert cas("show", "tag:live", "--json").json()["spec"] == "skills@v2"


def test_a_removed_tag_keeps_its_history(cas, two):
    cas("tag", "set", "live", "skills@v1")
    assert "tag:live: removed" in cas("tag", "remove", "live", "--reason", "over").text
    cas("tag", "remove", "live", code=3)
    cas("show", "tag:live", code=3)
    assert [move["removed"] for move in cas("tag", "history", "live", "--json").json()] == [
        False,
        True,
    ]
    assert "removed" in cas("tag", "history", "live").text


def test_a_tag_of_nothing_or_of_a_bad_name_is_refused(cas, two):
    cas("tag", "set", "live", "skills@v9", code=3)
    cas("tag", "set", "../x", "skills@v1", code=6)
    cas("tag", "history", "live", code=3)
    assert cas("tag", "list").out == b""
