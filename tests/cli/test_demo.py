"""`cas demo`."""


def test_the_demo_ends_in_a_verified_copy_and_leaves_nothing(process, clean, tmp_path_factory):
    temporary = tmp_path_factory.mktemp("temporary")
    ran = process("demo", environment={"TMPDIR": str(temporary)})
    assert "$ cas init" in ran.text
    assert "damaged; " in ran.text
    assert ran.lines[-3].startswith("   ok; ")
    assert ran.lines[-1] == "Done: the copy is proven byte for byte."
    assert list(temporary.iterdir()) == []
    assert list(clean.iterdir()) == []


def test_the_demo_keeps_everything_where_it_is_told(cas, clean, monkeypatch):
    shown = cas("demo", "here", "--json").json()
    assert (shown["kept"], shown["verified"]) == (True, True)
    assert len(shown["steps"]) > 10
    monkeypatch.chdir(clean / "here")
    assert [seed["name"] for seed in cas("seed", "list", "--json").json()] == ["evolved", "initial"]
    assert cas("verify").text.startswith("ok; ")


def test_the_demo_touches_no_directory_that_holds_something(cas, clean):
    (clean / "here").mkdir()
    (clean / "here" / "mine.txt").write_text("mine")
    cas("demo", "here", code=4)
    assert [path.name for path in (clean / "here").iterdir()] == ["mine.txt"]
