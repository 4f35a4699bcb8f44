"""`cas init` and `cas stats`."""

import grp
import os

import pytest


def test_init_makes_a_store_in_the_current_directory(cas, clean):
    assert "made the store" in cas("init").text
    assert (clean / ".cas" / "store.json").exists()


def test_init_says_what_it_made(cas, skills, clean):
    made = cas("init", "kept", "--skills", "skills", "--json").json()
    assert made["root"] == str(clean / "kept")
    assert len(made["id"]) == 32
    assert [version["spec"] for version in made["versions"]] == ["skills@v1"]


def test_init_refuses_a_store_that_exists(cas, store):
    before = sorted(store.rglob("*"))
    cas("init", code=4)
    assert sorted(store.rglob("*")) == before


def test_init_takes_all_sets_or_makes_nothing(cas, skills, clean):
    cas("init", "--skills", "skills", "--prompts", "nowhere", code=3)
    assert not (clean / ".cas" / "store.json").exists()
    cas("init", "--skills", "skills")


def test_init_makes_the_store_that_later_commands_will_use(cas, clean, monkeypatch):
    monkeypatch.setenv("CAS_STORE", str(clean / "named"))
    cas("init")
    cas("versions")
    assert (clean / "named" / "store.json").exists()


def test_init_refuses_two_names(cas):
    cas("init", "one", "--store", "two", code=2)
    cas("init", "one", "--store", "one")


def test_init_can_share_a_store_with_a_group(cas, clean):
    group = grp.getgrgid(os.getgid()).gr_name
    cas("init", "--shared", group)
    assert (clean / ".cas").stat().st_mode & 0o2070 == 0o2070


def test_init_with_an_unknown_group_makes_nothing(cas, clean):
    assert cas("init", "--shared", "no-such-group", code=None).code not in (0, 70)
    assert not (clean / ".cas" / "store.json").exists()


@pytest.fixture
def twice(cas, store, skills):
    cas("add", "skills", "skills")
    cas("add", "skills", "skills")


def test_stats_count_what_is_stored(cas, twice):
    found = cas("stats", "--json").json()
    assert set(found) >= {
        "objects",
        "logical_bytes",
        "unique_bytes",
        "stored_bytes",
        "dedup_ratio",
        "files_on_disk",
    }
    assert found["logical_bytes"] == 2 * found["unique_bytes"]
    assert found["dedup_ratio"] == 2.0


def test_stats_are_a_table_for_people(cas, twice):
    lines = cas("stats").lines
    assert lines[0].startswith("objects")
    assert any(line.startswith("skills ") for line in lines)
