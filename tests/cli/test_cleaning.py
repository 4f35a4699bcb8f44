"""`cas gc` and `cas repack`."""


def test_gc_says_what_would_go_and_what_went(cas, store, skills):
    cas("add", "skills", skills)
    cas("remove", "skills@v1")
    assert cas("gc").lines == [cas("gc", "--dry-run").lines[0].replace("would remove", "removed")]
    said = cas("gc", "--grace", "0s", "--dry-run", "--json").json()
    assert said["dry_run"] is True
    done = cas("gc", "--grace", "0s", "--json").json()
    assert {**done, "dry_run": True} == said
    assert done["removed_objects"] > 0
    assert set(done) == {
        *("removed_objects", "removed_bytes", "kept_objects", "dry_run", "complete", "notices")
    }
    assert cas("gc", "--grace", "0s").lines == ["removed 0 objects, 0 B; 1 object stay"]


def test_gc_refuses_what_is_no_time(cas):
    for text in ("soon", "-1d", "9" * 400 + "d"):
        assert "--grace" in cas("gc", f"--grace={text}", code=2).message
    assert "--budget" in cas("gc", "--budget", "x", code=2).message


def test_gc_on_a_damaged_store_removes_nothing_and_says_what_to_do(cas, store, skills):
    cas("add", "skills", skills)
    (pack,) = (store / "packs").iterdir()
    pack.unlink()
    ran = cas("gc", "--grace", "0s", code=5)
    assert "what skills@v1 needs cannot be told" in ran.message
    assert "repair it" in ran.message


def test_repack_says_the_space_it_needs_and_what_came_of_it(cas, store, skills):
    for number in range(3):
        (skills / "more").write_text(str(number) * 3000)
        cas("add", "skills", skills)
    shown = cas("repack", "--dry-run", "--json").json()
    assert (shown["packs_before"], shown["packs_after"], shown["dry_run"]) == (3, 3, True)
    assert shown["needed_bytes"] >= shown["rewritten_bytes"] > 0
    ran = cas("repack")
    assert ran.message.startswith("cas: note: needs up to ")
    assert ran.lines[0].startswith("3 packs, ")
    assert cas("repack", "--level", "19", "--json").json()["packs_after"] == 1
    assert cas("verify").lines[-1].startswith("ok;")


def test_repack_refuses_a_level_that_there_is_not(cas, store):
    assert "19" in cas("repack", "--level", "20", code=6).message
    assert "--level" in cas("repack", "--level", "much", code=2).message


def test_purge_names_the_places_and_what_comes_of_it(cas, store, skills, clean):
    (skills / "secret").write_text("token = 8472" * 40)
    cas("add", "skills", skills)
    ran = cas("purge", "skills@v1:secret", "--reason", "it leaked")
    assert ran.lines[0] == "purged skills@v1:secret"
    assert "is gone for good: 1 copy, " in ran.lines[1]
    shown = cas("purge", "skills@v1:secret", "--reason", "again", "--json").json()
    assert (shown["reason"], shown["copies"], shown["affects"]) == (
        "it leaked",
        0,
        ["skills@v1:secret"],
    )
    assert cas("add", "skills", skills, code=6).message.count("\n") == 1
    assert cas("cat", "skills@v1:secret", code=6).message.endswith("it leaked\n")
    assert cas("cat", "skills@v1:secret", "--json", code=6).error()["code"] == "purged"
    assert cas("verify").lines[0].startswith("purged        skills@v1:secret was purged on ")
    assert len(cas("verify", "--json").json()["purged"]) == 1
    assert "left out" in cas("checkout", "skills@v1", "work").message
    assert len(cas("log", "skills@v1", "--json").json()[0]["purged"]) == 1
    cas("purge", "skills@v1:secret", code=2)
