"""`cas repair`."""

import shutil

import pytest

from cas.testing.damage import flip


@pytest.fixture
def copy(cas, store, clean, skills):
    """A copy of a store with one version of skills; the store itself is damaged then."""
    cas("add", "skills", skills)
    shutil.copytree(store, clean / "copy")
    (pack,) = (store / "packs").iterdir()
    flip(pack, 30)
    return clean / "copy"


def test_repair_says_what_was_healed_and_verifies(cas, copy):
    cas("verify", code=1)
    ran = cas("repair", "--from", copy)
    assert ran.lines[0].startswith("healed ")
    assert f"replaced from {copy}" in ran.lines[0]
    assert ran.lines[-1].startswith("healed 2 findings; ok; ")
    assert cas("verify").lines[-1].startswith("ok;")
    assert cas("repair", "--from", copy).lines[0].startswith("healed 0 findings; ok;")


def test_repair_in_json_lists_all_of_it(cas, copy):
    shown = cas("repair", "--from", copy, "--json").json()
    assert shown["ok"] is True
    assert (shown["quarantined"], shown["problems"]) == ([], [])
    assert {tuple(one) for one in shown["healed"]} == {("location", "digest", "how")}


def test_what_is_not_healed_is_named_and_ends_in_exit_code_1(cas, copy, clean):
    (clean / "nothing").mkdir()
    ran = cas("repair", "--from", clean / "nothing", code=1)
    assert any(line.startswith("put aside ") for line in ran.lines)
    assert any(line.strip().startswith("hits skills@v1") for line in ran.lines)
    assert "damaged: " in ran.lines[-1]


def test_a_store_without_its_file_is_repaired(cas, copy, store):
    (store / "store.json").unlink()
    cas("versions", code=5)
    assert "store.json was written anew" in cas("repair", "--from", copy).message
    assert len(cas("versions").lines) == 1


def test_nothing_is_no_source(cas, copy, clean):
    cas("repair", "--from", clean / "nowhere", code=3)
    cas("repair", code=2)


def test_verify_repairs_what_it_finds(cas, copy, clean):
    cas("verify", "--repair-from", clean / "nowhere", code=3)
    ran = cas("verify", "--repair-from", copy)
    assert f"replaced from {copy}" in ran.lines[0]
    assert ran.lines[-1].startswith("healed 2 findings; ok; ")
    again = cas("verify", "--repair-from", copy, "--budget", "10m", "--json").json()
    assert (again["ok"], again["healed"], again["coverage"]) == (True, [], 1.0)
    for other in (("skills@v1",), ("--quick",), ("--sample", "5"), ("--against", "skills@v1")):
        cas("verify", "--repair-from", copy, *other, code=2)
