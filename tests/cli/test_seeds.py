"""`cas seed …`: create, look, promote, remove."""

import sqlite3

import pytest

RUNS = """
CREATE TABLE _runs (
    run_id TEXT PRIMARY KEY, status TEXT, skills_version TEXT, prompts_version TEXT);
CREATE TABLE predictions (run_id TEXT, question TEXT, answer TEXT);
"""


def execute(path, *statements):
    database = sqlite3.connect(path)
    with database:
        for statement in statements:
            database.executescript(statement)
    database.close()


@pytest.fixture
def ready(cas, store, skills, clean, write):
    """A store with skills and prompts, and a database of one run."""
    write(clean / "prompts", {"system.md": "You watch.\n"})
    cas("add", "skills", "skills")
    cas("add", "prompts", "prompts")
    execute("run.db", RUNS, "INSERT INTO _runs VALUES ('r1', 'completed', 'v1', 'v1')")
    return (
        *("--skills", "skills@v1", "--prompts", "prompts@v1"),
        *("--baseline", "run.db", "--run", "r1"),
    )


def test_create_freezes_a_seed_once(cas, ready):
    made = cas("seed", "create", "initial", *ready, "-m", "Good", "--json").json()
    assert set(made["parts"]) == {"skills", "prompts", "baseline"}
    assert set(made["parts"]["skills"]) >= {"kind", "digest", "files", "bytes", "label"}
    shown = cas("seed", "show", "initial", "--json").json()
    assert set(shown) >= {
        *("name", "digest", "parts", "baseline_run_id", "parent", "created_at", "description"),
    }
    assert {key: shown[key] for key in ("name", "digest", "parts", "description")} == {
        key: made[key] for key in ("name", "digest", "parts", "description")
    }
    cas("seed", "create", "initial", *ready, code=4)


def test_more_parts_can_be_frozen(cas, ready, clean, write):
    write(clean, {"notes.txt": "n\n", "config/a.ini": "a\n"})
    made = cas(
        *("seed", "create", "initial", *ready),
        *("--part", "notes=notes.txt", "--part", "config=config", "--json"),
    ).json()
    assert made["parts"]["notes"]["kind"] == "blob"
    assert made["parts"]["config"]["kind"] == "tree"


def test_what_is_missing_is_said_and_the_right_command_then_works(cas, ready):
    wrong = ["nowhere" if given == "prompts@v1" else given for given in ready]
    cas("seed", "create", "initial", *wrong, code=None)
    assert cas("seed", "list", "--json").json() == []
    cas("seed", "create", "initial", *ready)
    assert [line.split()[0] for line in cas("seed", "list").lines] == ["seed:initial"]


def test_a_run_that_the_database_lacks_is_refused(cas, ready):
    wrong = ["r9" if given == "r1" else given for given in ready]
    assert "r9" in cas("seed", "create", "initial", *wrong, code=3).message


def test_a_removed_seed_comes_back_and_its_name_only_when_asked_for(cas, ready):
    cas("seed", "create", "initial", *ready)
    cas("seed", "remove", "initial")
    cas("seed", "show", "initial", code=3)
    cas("seed", "create", "initial", *ready, code=4)
    cas("undelete", "seed:initial")
    assert cas("remove", "seed:initial", "--json").json()[0]["name"] == "initial"
    cas("seed", "create", "initial", *ready, "--reuse-name")
    assert "baseline run" in cas("seed", "show", "initial").text


@pytest.fixture
def workspace(cas, ready, clean):
    """A workspace of a seed, with evolved skills and a run of them."""
    cas("seed", "create", "initial", *ready)
    cas("checkout", "seed:initial", "work")
    evolved = clean / "work" / "skills" / "v2"
    evolved.mkdir()
    (evolved / "search.md").write_text("# Search\nLook three times.\n")
    execute("work/harness.db", "INSERT INTO _runs VALUES ('r2', 'completed', 'v2', 'v1')")
    return clean / "work"


def test_promote_closes_the_loop(cas, workspace):
    promote = ("seed", "promote", "work", "--version", "v2", "--run", "r2")
    made = cas(*promote, "--name", "better", "-m", "Looks more", "--json").json()
    assert (made["parent"], made["baseline_run_id"]) == ("work:v2", "r2")
    cas(*promote, "--name", "better", code=4)
    names = [entry["spec"] for entry in cas("log", "seed:better", "--json").json()]
    assert names[:2] == ["seed:better", "seed:initial"]
    cas("checkout", "seed:better", "again")
    assert cas("diff", "again/skills/v2", "work/skills/v2", "--exit-code").out == b""


@pytest.mark.parametrize(
    "run",
    [
        "INSERT INTO _runs VALUES ('r3', 'running', 'v2', 'v1')",
        "INSERT INTO _runs VALUES ('r3', 'completed', NULL, 'v1')",
        "INSERT INTO _runs VALUES ('r3', 'completed', 'v2', NULL)",
        "INSERT INTO _runs VALUES ('r3', 'completed', 'v1', 'v1')",
    ],
)
def test_a_run_that_has_not_earned_it_is_not_promoted(cas, workspace, run):
    execute(workspace / "harness.db", run)
    promote = ("seed", "promote", "work", "--version", "v2", "--run", "r3", "--name", "no")
    assert "r3" in cas(*promote, code=6).message
    assert [seed["name"] for seed in cas("seed", "list", "--json").json()] == ["initial"]


def test_promote_finds_the_store_of_the_workspace(cas, workspace, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    cas(
        *("seed", "promote", workspace, "--version", "v2", "--run", "r2", "--name", "better"),
    )
