"""`cas add`, `edit`, `versions`, `remove`, `undelete`."""

import os

ADDED = {
    "spec",
    "resource",
    "version",
    "digest",
    "tree",
    "files",
    "bytes",
    "new_bytes",
    "stored_bytes",
    "unchanged",
}
LISTED = {
    "spec",
    "resource",
    "version",
    "number",
    "digest",
    "tree",
    "parents",
    "source",
    "created_at",
    "description",
    "trigger_run",
    "trigger_workspace",
    "files",
    "bytes",
}


def test_add_says_what_it_made(cas, store, skills):
    added = cas("add", "skills", "skills", "--json").json()
    assert set(added) >= ADDED
    assert (added["spec"], added["version"], added["files"]) == ("skills@v1", "v1", 3)
    assert added["bytes"] == sum(p.stat().st_size for p in skills.rglob("*") if p.is_file())
    assert added["unchanged"] is False
    line = cas("add", "skills", "skills").text
    assert line == "skills@v2: 3 files, 44 B; nothing new to store\n"


def test_add_keeps_what_it_is_told(cas, store, skills):
    cas("add", "skills", "skills")
    cas(
        *("add", "skills", "skills", "-m", "why\nmore", "--source", "evolution"),
        *("--parent", "skills@v1", "--trigger-run", "run7", "--trigger-workspace", "w7"),
        *("--meta", "model=m=1", "--meta", "seed=5"),
    )
    [first, second] = cas("versions", "--json").json()
    assert set(second) >= LISTED
    assert second["description"] == "why\nmore"
    assert (second["source"], second["trigger_run"], second["trigger_workspace"]) == (
        "evolution",
        "run7",
        "w7",
    )
    assert second["parents"] == [first["digest"]]
    assert second["meta"] == {"model": "m=1", "seed": "5"}


def test_if_changed_makes_no_version_of_what_is_equal(cas, store, skills):
    cas("add", "skills", "skills")
    again = cas("add", "skills", "skills", "--if-changed", "--json").json()
    assert (again["unchanged"], again["spec"]) == (True, "skills@v1")
    assert "no new version" in cas("add", "skills", "skills", "--if-changed").text
    assert len(cas("versions", "--json").json()) == 1


def test_a_spec_makes_an_older_state_the_newest(cas, store, skills):
    cas("add", "skills", "skills")
    (skills / "search.md").write_text("other")
    cas("add", "skills", "skills")
    assert cas("add", "skills", "skills@v1", "--json").json()["spec"] == "skills@v3"
    [first, _, third] = cas("versions", "--json").json()
    assert first["tree"] == third["tree"]


def test_what_is_skipped_is_said_on_standard_error(cas, store, clean, write):
    write(clean / "set", {"a.txt": "a", "b.log": "b", ".casignore": "*.log\n"})
    cas("init", "set/.cas")
    ran = cas("add", "set", "set", "--store", ".cas")
    assert ran.message.startswith("cas: note: ")
    assert cas("ls", "set@v1").lines == [".casignore", "a.txt"]
    noted = cas("add", "set", "set", "--store", ".cas", "--json", "--no-ignore")
    assert noted.err == b""
    assert noted.json()["notices"]
    assert cas("ls", "set@v2").lines == [".casignore", "a.txt", "b.log"]


def test_a_missing_path_is_not_found_and_makes_no_version(cas, store):
    assert "nowhere" in cas("add", "skills", "nowhere", code=3).message
    assert cas("versions", "--json").json() == []


def test_a_bad_name_is_refused(cas, store, skills):
    for name in ("../../x", "/x", "", "a\nb", "x" * 300):
        cas("add", name, "skills", code=6)
    assert cas("versions", "--json").json() == []


def test_versions_are_listed_in_number_order(cas, store, skills):
    for _ in range(11):
        cas("add", "skills", "skills")
    cas("add", "a/b", "skills")
    shown = [line.split()[0] for line in cas("versions").lines]
    assert shown == ["a/b@v1", *(f"skills@v{n}" for n in range(1, 12))]
    assert len(cas("versions", "skills").lines) == 11


def test_no_versions_are_no_lines_and_a_note(cas, store):
    ran = cas("versions")
    assert ran.out == b""
    assert "note" in ran.message
    assert cas("versions", "nosuch", code=3).out == b""


def test_edit_makes_a_version_without_a_checkout(cas, store, skills, clean, write):
    cas("add", "skills", "skills")
    write(clean, {"new.md": "new\n"})
    edited = cas(
        *("edit", "skills@v1", "--put", "docs/new.md=new.md", "--rm", "tools/notes.txt"),
        *("-m", "tidied", "--json"),
    ).json()
    assert set(edited) >= ADDED
    assert edited["spec"] == "skills@v2"
    assert cas("ls", "skills@v2", "-R").lines == [
        "docs/",
        "docs/new.md",
        "search.md",
        "tools/",
        "tools/count.py",
    ]
    assert cas("cat", "skills@v2:docs/new.md").out == b"new\n"
    cas("edit", "skills@v2", "--rm", "nosuch", code=3)


def test_a_removed_version_comes_back_and_its_number_never_again(cas, store, skills):
    cas("add", "skills", "skills")
    cas("add", "skills", "skills")
    assert cas("remove", "skills@v2", "--reason", "wrong").text.startswith("skills@v2: removed")
    cas("show", "skills@v2", code=3)
    assert [v["spec"] for v in cas("versions", "--json").json()] == ["skills@v1"]
    assert "(removed)" in cas("versions", "--removed").text
    assert cas("add", "skills", "skills", "--json").json()["spec"] == "skills@v3"
    cas("undelete", "skills@v2")
    cas("undelete", "skills@v2", code=4)
    assert len(cas("versions", "--json").json()) == 3


def test_several_names_are_removed_at_once(cas, store, skills):
    for _ in range(3):
        cas("add", "skills", "skills")
    gone = cas("remove", "skills@v1", "skills@v3", "--json").json()
    assert [version["spec"] for version in gone] == ["skills@v1", "skills@v3"]


def test_names_that_are_not_utf8_go_in_and_come_out(cas, process, store, clean):
    name = b"caf\xe9\nline"
    os.makedirs(os.fsencode(clean) + b"/odd")
    with open(os.fsencode(clean) + b"/odd/" + name, "wb") as file:
        file.write(b"x")
    process("add", "odd", b"odd")
    assert process("ls", "odd@v1").out == name + b"\n"
    assert process("cat", b"odd@v1:" + name).out == b"x"
    [entry] = process("ls", "odd@v1", "--json").json()
    assert os.fsencode(entry["path"]) == name
    assert entry["path_bytes"] == "Y2Fm6QpsaW5l"
