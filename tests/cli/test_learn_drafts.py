"""`cas learn draft`, `cas learn diff`, `cas learn publish`."""

import json

import pytest

import cas as library


@pytest.fixture
def candidate(cas, store, skills, clean):
    """A candidate `c-1` about the skill `look`, and a better one in `new`."""
    (skills / "look").mkdir()
    (skills / "look/SKILL.md").write_text("look\n")
    cas("add", "skills", "skills")
    (clean / "new").mkdir()
    (clean / "new/SKILL.md").write_text("look better\n")
    with library.Store.open(store) as opened:
        opened.learning.record(
            library.Candidate("c-1", "improve_skill", extra={"base": "skills@v1:look"})
        )


def test_a_draft_is_attached_looked_at_and_published_once(cas, candidate):
    drafted = cas("learn", "draft", "c-1", "new", "--actor", "maria", "--json").json()
    assert (drafted["status"], drafted["draft_skill_name"]) == ("draft_ready", "look")
    assert drafted["draft_id"] == drafted["draft_digest"][:16]
    assert cas("learn", "diff", "c-1").lines == ["changed   SKILL.md"]
    assert cas("learn", "diff", "c-1", "--json").json()["changed"] == ["SKILL.md"]
    assert "+look better" in cas("learn", "diff", "c-1", "SKILL.md").lines
    cas("learn", "diff", "c-1", "--exit-code", code=1)
    assert "1 changed" in cas("learn", "diff", "c-1", "--stat").text
    published = cas("learn", "publish", "c-1", "-m", "sees more", "--json").json()
    assert (published["spec"], published["unchanged"]) == ("skills@v2", False)
    assert published["candidate"]["published_as"] == "skills@v2"
    assert published["meta"]["candidate"] == "c-1"
    assert cas("learn", "publish", "c-1").text == "c-1: published already as skills@v2\n"
    assert cas("cat", "skills@v2:look/SKILL.md").out == b"look better\n"


def test_the_log_says_which_candidate_and_reports_a_version_is_from(cas, candidate, store):
    drafted = cas("learn", "draft", "c-1", "new", "--json").json()
    with library.Store.open(store) as opened:
        opened.learning.add_safety_report(
            library.SafetyReport("look", drafted["draft_id"], "safe-7", {"safe": True})
        )
    cas("learn", "publish", "c-1")
    lines = cas("log", "skills@v2").lines
    assert "  candidate c-1" in lines
    assert "  safety report safe-7" in lines
    assert not any("eval report" in line for line in lines)
    assert cas("log", "skills@v2", "--json").json()[0]["meta"]["safety_report"] == "safe-7"


def test_what_cannot_be_done_says_why_in_one_line(cas, candidate, clean):
    assert "no draft" in cas("learn", "diff", "c-1", code=3).message
    assert (
        cas("learn", "publish", "nobody", "--json", code=3).error()["code"] == "unknown_candidate"
    )
    cas("checkout", "skills@v1:look", "same")
    assert "no changes" in cas("learn", "draft", "c-1", "same", code=6).message
    assert "not found" in cas("learn", "draft", "c-1", "nowhere", code=3).message
    cas("learn", "draft", "c-1", "new")
    cas("learn", "draft", "c-1", "new", "--token", "5", code=4)
    cas("learn", "draft", "c-1", "new", "--token", "x", code=2)
    cas("edit", "skills@v1", "--put", f"look/more={clean / 'new/SKILL.md'}")
    refused = cas("learn", "publish", "c-1", "--json", code=4)
    assert "look was changed between skills@v1 and skills@v2" in refused.error()["message"]
    assert json.loads(refused.err)["error"]["candidate_id"] == "c-1"


def test_a_skill_that_is_one_file_is_shown_as_text(cas, candidate, store, clean):
    with library.Store.open(store) as opened:
        opened.learning.record(
            library.Candidate("c-2", "improve_skill", extra={"base": "skills@v1:look/SKILL.md"})
        )
    cas("learn", "draft", "c-2", "new/SKILL.md")
    assert cas("learn", "diff", "c-2").lines[-2:] == ["-look", "+look better"]
    assert cas("learn", "diff", "c-2", "--json").json()["differs"] is True
