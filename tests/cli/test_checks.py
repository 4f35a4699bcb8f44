"""`cas verify`."""

import shutil

import pytest

KEYS = {"ok", "objects", "bytes", "checked_bytes", "coverage", "problems"}


@pytest.fixture
def added(cas, store, skills):
    cas("add", "skills", "skills")
    return skills


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


def test_a_sound_store_is_proven_whole(cas, added):
    report = cas("verify", "--json").json()
    assert set(report) >= KEYS
    assert (report["ok"], report["coverage"], report["problems"]) == (True, 1.0, [])
    assert report["checked_bytes"] == report["bytes"] > 0
    assert cas("verify").text.startswith("ok; ")
    assert cas("verify", "skills@v1").text.startswith("ok; ")


def test_damage_is_found_and_named(cas, added, store):
    [pack, *_] = sorted((store / "packs").iterdir())
    flip(pack)
    report = cas("verify", "--json", code=1).json()
    assert report["ok"] is False
    for problem in report["problems"]:
        assert set(problem) >= {"kind", "digest", "location", "affects"}
    assert any("skills@v1" in spec for p in report["problems"] for spec in p["affects"])
    assert "damaged: " in cas("verify", code=1).text


def test_a_quick_look_claims_no_more_than_it_did(cas, added):
    assert "contents were not read" in cas("verify", "--quick").text
    assert cas("verify", "--quick", "--json").json()["coverage"] < 1.0


def test_a_sample_and_a_budget_say_how_much_they_read(cas, added):
    for option in (("--sample", "50%"), ("--budget", "10m")):
        report = cas("verify", *option, "--json").json()
        assert report["ok"]
        assert 0.0 <= report["coverage"] <= 1.0


def test_a_workspace_is_proven_without_its_store(cas, added, store, clean):
    cas("checkout", "skills@v1", "work")
    store.rename(clean / "gone")
    assert cas("verify", "work").text.startswith("ok; ")
    flip(clean / "work" / "search.md")
    assert "search.md" in cas("verify", "work", code=1).text
    cas("verify", "work", "--quick", code=2)


def test_a_copy_is_proven_against_a_version(cas, added, clean):
    proof = ("verify", "--dir", "copy", "--against", "skills@v1")
    shutil.copytree(added, clean / "copy")
    assert cas(*proof).text.startswith("ok; ")
    flip(clean / "copy" / "search.md")
    (clean / "copy" / "tools" / "count.py").unlink()
    (clean / "copy" / "more.md").write_text("more")
    report = cas(*proof, "--json", code=1).json()
    assert {(problem["kind"], problem["location"]) for problem in report["problems"]} == {
        ("changed", "copy/search.md"),
        ("missing", "copy/tools/count.py"),
        ("extra", "copy/more.md"),
    }
    assert "damaged: 3 problems" in cas(*proof, code=1).text


def test_what_does_not_exist_is_not_found(cas, added):
    cas("verify", "skills@v9", code=3)
    cas("verify", "--dir", "nowhere", "--against", "skills@v1", code=3)
