"""Old layouts: import of an export is the identity, and no layout whatsoever does harm."""

from __future__ import annotations

import datetime as dt
import json
import os
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

import cas
from cas.layouts import told
from cas.layouts.links import in_order
from cas.testing.runs import record_run
from cas.testing.strategies import contents, materialise, read_back, trees

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
MEMBERS = st.one_of(
    TEXTS,
    st.sampled_from(["version", "name", "source", "parent", "created_at", "cas", "meta.json"]),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OPTIONAL = st.none() | TEXTS
TIMES = st.one_of(
    st.datetimes(timezones=st.just(dt.UTC)).map(lambda at: at.isoformat()),
    st.datetimes().map(lambda at: at.isoformat()),
)
FIELDS = st.fixed_dictionaries(
    {
        "source": TEXTS,
        "parent": OPTIONAL,
        "trigger_run": OPTIONAL,
        "trigger_workspace": OPTIONAL,
        "description": TEXTS,
        "created_at": TIMES,
    }
)
META = st.dictionaries(
    MEMBERS, st.one_of(TEXTS, st.just('{"created_at": "2026-01-01T00:00:00"}')), max_size=4
)


@given(
    fields=FIELDS,
    meta=META,
    parents=st.none() | st.lists(TEXTS, max_size=3).map(tuple),
    moved=st.dictionaries(TEXTS, TEXTS, max_size=2),
)
@settings(max_examples=200)
def test_reading_what_was_written_gives_the_same(fields, meta, parents, moved):
    said = told.Told(fields=fields, meta=meta, parents=parents, moved=moved)
    written = told.write(told.VERSION, "v3", said)
    assert told.read(told.VERSION, "v3", written, 0) == said


@given(
    st.dictionaries(MEMBERS.filter(lambda name: name != "cas"), JSON, max_size=5),
    st.fixed_dictionaries({}, optional={"source": OPTIONAL, "parent": OPTIONAL, "version": JSON}),
    TIMES | st.just("2026-01-01T00:00:00+05:30"),
)
@settings(max_examples=200)
def test_writing_what_was_read_gives_an_equal_object(more, known, created):
    found = more | known | {"created_at": created}
    for name in ("source", "parent"):
        if not isinstance(found.get(name), str):
            found.pop(name, None)
    said = told.read(told.VERSION, "v3", json.dumps(found).encode(), 0)
    written = json.loads(told.write(told.VERSION, "v3", said))
    assert json.dumps(written, sort_keys=True) == json.dumps(found, sort_keys=True)
    assert all(isinstance(text, str) for text in said.meta.values())


@given(st.binary(max_size=60) | TEXTS.map(str.encode) | JSON.map(lambda v: json.dumps(v).encode()))
def test_reading_anything_gives_an_answer_or_a_reason(content):
    try:
        said = told.read(told.VERSION, "v1", content, 10**18)
    except cas.RefusedError:
        return
    written = told.write(told.VERSION, "v1", said)
    assert told.read(told.VERSION, "v1", written, 0).meta == said.meta


@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdefxy"), max_size=4), max_size=6
    )
)
def test_links_come_after_what_they_lead_to_and_lose_only_circles(links):
    done = []
    for spec, kept in in_order(links):
        assert all(link in done or link not in links for link in kept)
        assert [link for link in links[spec] if link in kept] == list(kept)
        done.append(spec)
    assert sorted(done) == sorted(links)


# --- whole stores --------------------------------------------------------------------------------

RESOURCES = ["skills", "prompts", "videos", "questions/benchmarks", "questions/generated", "a/b"]
PARENTS = st.sampled_from([None, "skills@v1", "prompts@v2", "ws:v3", "seed:s", "v1", "latest"])


@st.composite
def histories(draw):
    """What was done to a store: versions of several resources, removals, a seed in between."""
    steps = []
    for _ in range(draw(st.integers(1, 6))):
        steps.append(
            (
                draw(st.sampled_from(RESOURCES)),
                draw(trees(max_leaves=6, max_size=30)),
                draw(FIELDS),
                draw(META),
                draw(PARENTS),
            )
        )
    removed = draw(st.sets(st.integers(0, len(steps) - 1), max_size=2))
    return steps, removed, draw(st.none() | st.integers(0, len(steps) - 1))


def build(store, home, history):
    """Do what a history says."""
    steps, removed, seed_at = history
    made = []
    for number, (resource, model, fields, meta, parent) in enumerate(steps):
        source = home / f"set{number}"
        materialise(model, source)
        known = {name: fields[name] for name in fields if name not in ("parent", "created_at")}
        try:
            added = store.versions.add(resource, source, meta=meta, parent=parent, **known)
        except cas.NotFoundError:
            added = store.versions.add(resource, source, meta=meta, **known)
        made.append(added.spec)
        if number == seed_at:
            record_run(home / "run.db", "r1")
            asked = {"baseline": home / "run.db", "baseline_run_id": "r1", "meta": meta}
            store.seeds.create("s", skills=added.spec, prompts=source, parent=added.spec, **asked)
    for number in removed:
        store.versions.remove(made[number])


def without_links(one):
    return {k: v for k, v in one.to_json().items() if k not in ("digest", "parents")}


@given(histories())
@settings(max_examples=10)
def test_import_of_an_export_is_the_identity(history):
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with (
            cas.Store.init(home / "first") as first,
            cas.Store.init(home / "second") as second,
        ):
            build(first, home, history)
            if not first.versions.resources() and not first.seeds.list():
                return
            exported = first.export_layout(home / "out")
            assert exported.left_out == ()
            before = read_back(home / "out")
            done = second.import_layout(home / "out")
            assert (done.skipped, read_back(home / "out")) == ((), before)
            if history[1]:  # a link to what was removed is not kept
                wanted = [*map(without_links, first.versions.list())]
                assert [*map(without_links, second.versions.list())] == wanted
            else:
                assert second.versions.list() == first.versions.list()
                assert second.seeds.list() == first.seeds.list()
            assert second.verify().ok
            again = second.import_layout(home / "out")
            assert (again.versions, again.seeds, again.skipped) == ((), (), ())
            second.export_layout(home / "again")
            assert read_back(home / "again") == before


# --- any folder at all ---------------------------------------------------------------------------

NAMES = st.sampled_from(
    [
        b"skills",
        b"prompts",
        b"videos",
        b"questions",
        b"benchmarks",
        b"generated",
        b"seeds",
        b"v1",
        b"v2",
        b"v10",
        b"v01",
        b"meta.json",
        b"videos.meta.json",
        b"seed.json",
        b"baseline.db",
        b"initial",
        b"a b",
        b"\xff",
        b".casignore",
    ]
)
SAID = st.sampled_from(
    [
        b"{}",
        b'{"version": "v1"}',
        b'{"parent": "v1"}',
        b'{"baseline_run_id": "r1"}',
        b"{",
        b'{"cas": {"moved": {"meta.json": "v1"}}}',
    ]
)
LEAVES = st.one_of(
    st.tuples(st.sampled_from(["file", "exec"]), SAID | contents(20)),
    st.tuples(st.just("symlink"), st.sampled_from([b"..", b"v1", b"/", b"gone", b"../skills"])),
)
LAYOUTS = st.dictionaries(
    NAMES,
    st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=10),
    max_size=5,
)


@given(LAYOUTS)
@example({b"skills": {b"v1": {b"meta.json": ("file", b'{"cas": {"moved": {"meta.json": "v1"}}}')}}})
@settings(max_examples=30)
def test_any_folder_comes_in_or_is_refused_and_stays_as_it_is(model):
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        materialise(model, home / "old")
        with cas.Store.init(home / "store") as store:
            try:
                done = store.import_layout(home / "old")
            except cas.RefusedError:
                assert store.versions.resources() == []
                return
            finally:
                assert read_back(home / "old") == model
            for version in done.versions:
                assert holds(store, version, home / "old")
            assert store.import_layout(home / "old").versions == ()


def holds(store, version, old):
    """Tell whether a version is its folder, but for the files that tell about it."""
    for folder in (f"{version.resource}/{version.version}", version.resource):
        if os.path.isdir(old / folder) and not os.path.islink(old / folder):
            check = store.verify_directory(old / folder, against=version.spec)
            if {problem.kind for problem in check.problems} <= {"extra", "missing"}:
                return True
    return False
