"""The closed loop: checkout, evolve, record a run, promote, checkout again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import cas
from cas.testing.runs import record_run, runs_in
from cas.testing.strategies import materialise, read_back, trees

LABELS = st.sampled_from(["v1", "v2", "v10", "skills-v3", "prompts-v3", "a b", "V2"])


@settings(max_examples=15)
@given(
    skills=trees(max_leaves=6),
    prompts=trees(max_leaves=4),
    generations=st.lists(
        st.tuples(LABELS, trees(max_leaves=6)), min_size=1, max_size=3, unique_by=lambda one: one[0]
    ),
    prompts_label=LABELS,
)
def test_a_promoted_seed_checks_out_as_the_workspace_that_earned_it(
    skills, prompts, generations, prompts_label
):
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        materialise(skills, home / "skills")
        materialise(prompts, home / "prompts")
        record_run(home / "run.db", "first", skills="v0", prompts=prompts_label)
        with cas.Store.init(home / "store") as store:
            seed = store.seeds.create(
                "g0",
                skills=home / "skills",
                prompts=home / "prompts",
                baseline=home / "run.db",
                baseline_run_id="first",
            )
            lineage = [seed.spec]
            for number, (label, evolved) in enumerate(generations, 1):
                work = home / f"work{number}"
                store.checkout(seed.spec, work)
                assert runs_in(work / "harness.db") == {seed.baseline_run_id: 3}
                materialise(evolved, work / "skills" / label)
                run = f"run{number}"
                record_run(work / "harness.db", run, skills=label, prompts=prompts_label)
                record_run(work / "harness.db", f"other{number}", skills="v99")
                seed = store.seeds.promote(work, version=label, eval_run_id=run, name=f"g{number}")
                lineage.insert(0, seed.spec)

                store.checkout(seed.spec, home / f"new{number}")
                new = read_back(home / f"new{number}")
                old = read_back(work)
                del new[b".cas-workspace"]
                assert new[b"skills"] == {label.encode(): old[b"skills"][label.encode()]}
                assert new[b"prompts"] == old[b"prompts"] == {prompts_label.encode(): prompts}
                assert runs_in(home / f"new{number}" / "harness.db") == {run: 3}
                assert new.keys() == {b"skills", b"prompts", b"harness.db", b"seed.json"}
                assert seed.parent == f"work{number}:{label}"
                assert store.status(home / f"new{number}").clean
            assert [entry.spec for entry in store.log(seed.spec)] == lineage
