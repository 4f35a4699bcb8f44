"""The options of every command, and how the store is found."""

import json

import pytest

from cas_cli.app import COMMANDS, root
from cas_cli.session import COMMON


@pytest.mark.parametrize(
    "arguments",
    [
        ["versions", "--store", "here", "--json"],
        ["--store", "here", "versions", "--json"],
        ["--json", "--store=here", "versions"],
        ["--json", "versions", "--store", "here", "--no-progress", "--quiet"],
    ],
    ids=" ".join,
)
def test_options_stand_before_or_after_the_command(cas, skills, arguments):
    cas("init", "here", "--skills", "skills")
    assert [version["spec"] for version in cas(*arguments).json()] == ["skills@v1"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--store", "here", "tag", "list", "--json"],
        ["tag", "--store", "here", "--json", "list"],
        ["tag", "list", "--store", "here", "--json"],
    ],
    ids=" ".join,
)
def test_options_stand_before_or_after_the_group(cas, arguments):
    cas("init", "here")
    assert cas(*arguments).json() == []


def test_every_command_takes_the_common_options():
    command = root()

    def check(found, path):
        assert {parameter.name for parameter in found.params} >= set(COMMON), path
        for name, inner in getattr(found, "commands", {}).items():
            check(inner, f"{path} {name}")

    for name in COMMANDS:
        check(command.get_command(None, name), name)


def test_the_last_store_that_is_named_counts(cas, monkeypatch, skills):
    cas("init", "one", "--skills", "skills")
    cas("init", "two")
    monkeypatch.setenv("CAS_STORE", "two")
    assert cas("versions", "--json").json() == []
    assert len(cas("--store", "one", "versions", "--json").json()) == 1
    assert cas("--store", "one", "versions", "--store", "two", "--json").json() == []


def test_without_a_name_the_nearest_store_upward_is_taken(cas, store, clean, monkeypatch, skills):
    cas("add", "skills", "skills")
    deep = clean / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert cas("versions").lines[0].startswith("skills@v1")


def test_a_workspace_leads_to_its_store(cas, skills, clean, monkeypatch):
    cas("init", "kept/.cas", "--skills", "skills")
    cas("checkout", "skills@v1", "work", "--store", "kept")
    monkeypatch.chdir(clean / "work")
    assert len(cas("versions", "--json").json()) == 1


def test_no_store_is_not_found_and_the_way_out_is_said(cas):
    assert "cas: " in cas("versions", code=3).message


def test_quiet_prints_what_was_asked_for_and_nothing_else(cas, skills):
    assert cas("init", "--quiet").out == b""
    added = cas("add", "skills", "skills", "-q")
    assert (added.out, added.err) == (b"", b"")
    assert cas("ls", "skills@v1", "--quiet").lines == ["search.md", "tools/"]
    assert json.loads(cas("add", "skills", "skills", "-q", "--json").out)["spec"] == "skills@v2"


def test_a_bad_number_of_workers_in_the_environment_is_a_usage_error(
    cas, store, skills, monkeypatch
):
    monkeypatch.setenv("CAS_WORKERS", "many")
    assert "CAS_WORKERS" in cas("add", "skills", "skills", code=2).message
    monkeypatch.setenv("CAS_WORKERS", "1")
    cas("add", "skills", "skills")
