"""`cas show`, `ls`, `cat`, `log`."""

import pytest


@pytest.fixture
def added(cas, store, skills):
    cas("add", "skills", "skills", "-m", "The first")
    (skills / "search.md").write_text("# Search\nLook three times.\n")
    cas("add", "skills", "skills", "--source", "evolution", "-m", "The second")
    return cas("versions", "--json").json()


def test_show_describes_a_version(cas, added):
    shown = cas("show", "skills@v2", "--json").json()
    assert {key: shown[key] for key in added[1]} == added[1]
    assert shown["kind"] == "version"
    text = cas("show", "skills@latest").text
    for fact in ("skills@v2", "evolution", "The second", added[1]["digest"], "3 files"):
        assert fact in text


def test_show_takes_a_tag_and_a_digest(cas, added):
    cas("tag", "set", "live", "skills@v1", "--reason", "good", "--by", "dana")
    shown = cas("show", "tag:live", "--json").json()
    assert (shown["spec"], shown["tag"]["by"]) == ("skills@v1", "dana")
    assert "by dana" in cas("show", "tag:live").text
    prefix = added[1]["digest"][:12]
    assert cas("show", prefix, "--json").json()["spec"] == "skills@v2"


def test_show_takes_a_path_inside(cas, added):
    shown = cas("show", "skills@v1:tools/notes.txt", "--json").json()
    assert (shown["kind"], shown["type"], shown["size"]) == ("blob", "file", 14)
    assert "14 B" in cas("show", "skills@v1:tools/notes.txt").text
    assert cas("show", "skills@v1:tools", "--json").json()["kind"] == "tree"


def test_show_of_a_name_that_is_missing_says_what_there_is(cas, added):
    assert "skills@v2" in cas("show", "skills@v3", code=3).message
    cas("show", "skills", code=6)


def test_ls_lists_one_directory_or_all_below(cas, added):
    assert cas("ls", "skills@v1").lines == ["search.md", "tools/"]
    assert cas("ls", "skills@v1:tools").lines == ["count.py", "notes.txt"]
    assert cas("ls", "skills@v1", "-R").lines == [
        "search.md",
        "tools/",
        "tools/count.py",
        "tools/notes.txt",
    ]
    [first, second] = cas("ls", "skills@v1", "--json").json()
    assert set(first) >= {"path", "type", "size", "digest"}
    assert (first["type"], second["type"], second["size"]) == ("file", "dir", 23)


def test_ls_long_aligns_its_columns(cas, added):
    lines = cas("ls", "skills@v1", "-l").lines
    assert lines[0].split()[:3] == ["file", "21", "B"]
    assert {line.index(name) for line, name in zip(lines, ("search", "tools"), strict=True)} == {
        lines[0].index("search")
    }


def test_cat_writes_the_bytes_as_they_are(cas, store, clean, write):
    content = bytes(range(256)) * 9000
    write(clean / "set", {"data.bin": content})
    cas("add", "set", "set")
    assert cas("cat", "set@v1:data.bin").out == content


@pytest.mark.parametrize(
    ("wanted", "part"),
    [
        ("0-0", slice(0, 1)),
        ("3-6", slice(3, 7)),
        ("40-", slice(40, None)),
        ("-5", slice(-5, None)),
        ("10-9999", slice(10, None)),
        ("-9999", slice(0, None)),
    ],
)
def test_cat_writes_a_range_with_both_ends(cas, store, clean, write, wanted, part):
    content = bytes(range(100))
    write(clean / "set", {"data.bin": content})
    cas("add", "set", "set")
    assert cas("cat", "set@v1:data.bin", "--range", wanted).out == content[part]


def test_cat_of_a_directory_is_refused(cas, added):
    assert cas("cat", "skills@v1:tools", code=6).out == b""
    assert cas("cat", "skills@v1:nosuch", code=3).out == b""


def test_log_goes_back_to_the_first(cas, added):
    entries = cas("log", "skills@v2", "--json").json()
    assert [entry["spec"] for entry in entries] == ["skills@v2", "skills@v1"]
    assert entries[0]["parents"] == [entries[1]["digest"]]
    lines = cas("log", "skills@v2").lines
    assert lines[0].startswith("skills@v2  ")
    assert "  from skills@v1" in lines
    assert "  The second" in lines
    assert len(cas("log", "skills@v2", "--limit", "1", "--json").json()) == 1


def test_log_can_be_drawn(cas, added):
    lines = cas("log", "skills@v2", "--graph").lines
    assert lines[0].startswith("*  skills@v2  ")
    assert [line for line in lines if line.startswith("*")][1].startswith("*  skills@v1  ")
    assert "│    The second" in lines


def test_log_shows_a_parent_whose_name_was_removed(cas, added):
    cas("remove", "skills@v1")
    assert "skills@v1 (removed)" in cas("log", "skills@v2").text
