"""The state of a learning log, key by key, as docs/format.md says it."""

from __future__ import annotations

import re
from pathlib import Path

import msgpack
import pytest
from blake3 import blake3

import cas
from cas.backends import MemoryBackend
from cas.catalogue.context import Context
from cas.learning import Learning
from cas.learning.fold import STEPS
from cas.refs import create_catalogue, open_catalogue

PAGE = Path(__file__).parents[2] / "docs" / "format.md"
STORE = "0123456789abcdef" * 2
AT = 1_700_000_000_000_000_000
TIME = "2023-11-14T22:13:20.000000+00:00"


def place(position, index=0):
    return position.to_bytes(8, "big") + index.to_bytes(4, "big")


@pytest.fixture
def learning():
    backend = MemoryBackend(clock=lambda: AT)
    create_catalogue(backend, [{"type": "init", "store_id": STORE, "created_at": ""}])
    return Learning(Context(Path("memory"), STORE, backend, open_catalogue(backend)))


def state(learning):
    return dict(learning._state().scan(b""))


def read(value):
    return msgpack.unpackb(value)


def test_a_claimed_candidate_lies_where_the_page_says(learning):
    extra = {"é": [1.5, 10**30, None], "half": "\ud800"}
    learning.record(cas.Candidate("c 1", "k", reason="\x01", extra=extra), actor="me")
    claim = learning.claim("c 1", "w", 60)
    assert claim.token == 30_000
    at = state(learning)
    assert read(at[b"init"])["store_id"] == STORE
    assert at[b"id\0c 1"] == place(2)
    held = [30_000, "w", AT + 60 * 10**9, "open"]
    row = ["c 1", "k", "synthesizing", None, None, TIME, TIME, held, None]
    assert read(at[b"row\0" + place(2)]) == row
    assert at[b"body\0" + place(2)] == (
        rb'{"half":"\ud800","last_error":null,"reason":"\u0001",'
        rb'"\u00e9":[1.5,1000000000000000000000000000000,null]}'
    )
    assert at[b"status\0synthesizing\0" + place(2)] == b"k"
    assert at[b"kind\0k\0synthesizing\0" + place(2)] == b""
    assert at[b"lease\0" + (AT + 60 * 10**9).to_bytes(8, "big") + place(2)] == b"k"
    assert at[b"count\0synthesizing\0k"] == (1).to_bytes(8, "big")
    recorded = ["c 1", "candidate_recorded", AT, "me", None, "open", None, False, b"{}", None]
    assert read(at[b"audit\0" + place(2)]) == [*recorded, b"{}"]
    assert read(at[b"audit\0" + place(3)])[:8] == (
        ["c 1", "candidate_synthesizing", AT, "w", "open", "synthesizing", 30_000, False]
    )
    assert at[b"trail\0c 1\0" + place(3)] == b""
    assert len(at) == 12
    assert learning.audit()[1].event_id == "0123456789abcdef-3.0"


def test_who_claims_the_next_leaves_floors_behind(learning):
    learning.record_all(cas.Candidate(f"c{n}", "k") for n in range(3))
    learning.claim_next("w", 60)
    learning.claim_next("w", 50)
    at = state(learning)
    assert at[b"floor\0open"] == place(2, 1)
    assert at[b"floor\0lease"] == (AT + 50 * 10**9).to_bytes(8, "big")
    learning.transition("c0", "open", force=True)
    learning.claim_next("w", 40, kind="k")
    at = state(learning)
    assert at[b"floor\0open"] == place(2)
    assert at[b"floor\0open\0k"] == place(2, 2)
    assert at[b"floor\0lease"] == (AT + 40 * 10**9).to_bytes(8, "big")


def test_a_document_without_halves_is_utf8(learning):
    learning.record(cas.Candidate("c", "k", reason='é"\\\x7f😀', extra={"b": -0.0, "a": 1}))
    body = state(learning)[b"body\0" + place(2)]
    assert body.decode() == '{"a":1,"b":-0.0,"last_error":null,"reason":"é\\"\\\\\x7f😀"}'


def test_performance_reports_and_configuration_lie_where_the_page_says(learning):
    learning.set_transitions({"open": ["queued"]}, actor="me")
    learning.set_performance(cas.PerformanceSnapshot("s", "v1", 2, 1))
    learning.add_eval_report(cas.EvalReport("s", "d", "r", [1]), actor="me")
    learning.add_safety_report(cas.SafetyReport("s", "d", "r", "x" * 5000), actor="me")
    at = state(learning)
    config = b'{"transitions":{"open":["queued"]}}'
    assert at[b"config"] == config
    assert read(at[b"configured\0" + place(2)]) == [AT, "me", config]
    assert at[b"performance\0s\0v1"] == (
        b'{"activations":2,"recorded_at":"' + TIME.encode() + b'","skill_name":"s","successes":1,'
        b'"version":"v1"}'
    )
    digest = blake3(b"[1]").digest()
    assert read(at[b"report\0eval\0s\0d\0" + place(4)]) == ["r", AT, "me", 3, digest, b"[1]"]
    assert at[b"report-id\0eval\0s\0d\0r"] == place(4)
    large = b'"' + b"x" * 5000 + b'"'
    digest = blake3(large).digest()
    assert read(at[b"report\0safety\0s\0d\0" + place(5)]) == ["r", AT, "me", 5002, digest, None]
    assert at[b"held\0" + digest + b"\0learn:safety/s/d/r"] == b"blob"
    assert learning._context.objects.read(digest) == large


def test_what_is_taken_in_keeps_its_ids_and_its_place_counts_through_the_import(learning):
    candidates = [cas.Candidate(f"c{n}", "k", created_at="then") for n in range(2)]
    told = cas.AuditEvent("e1", "c1", "made", "then", "me", {"a": 1}, extra={"b": 2})
    learning.take_in(candidates=candidates, audit=[told])
    at = state(learning)
    assert at[b"id\0c1"] == place(2, 1)
    assert at[b"event\0e1"] == place(2, 2)
    fields = ["c1", "made", "then", "me", None, None, None, False, b'{"a":1}', "e1", b'{"b":2}']
    assert read(at[b"audit\0" + place(2, 2)]) == fields


def test_every_type_of_event_is_on_the_page():
    text = PAGE.read_text("utf-8")
    text = text[text.index("## The learning log's events") : text.index("## Workspaces")]
    assert set(re.findall(r"^\| `([a-z-]+)` \| `", text, re.MULTILINE)) >= STEPS.keys()
