"""What drafts and publications leave in the two logs, key by key, as docs/format.md says it."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

import cas
from cas.backends import MemoryBackend
from cas.catalogue.context import Context
from cas.catalogue.publication import give_up_publication
from cas.catalogue.versions import Versions
from cas.errors import EnvironmentFailure
from cas.learning import Learning, publishing, settling
from cas.learning.draft_steps import Intent, find_draft
from cas.learning.rows import find_row
from cas.refs import create_catalogue, open_catalogue
from cas.testing.strategies import materialise

STORE = "0123456789abcdef" * 2
AT = 1_700_000_000_000_000_000
TIME = "2023-11-14T22:13:20.000000+00:00"
IDENTITY = bytes(range(16))
PLACE = (2).to_bytes(8, "big") + bytes(4)


class World:
    def __init__(self, home):
        backend = MemoryBackend(clock=lambda: AT)
        create_catalogue(backend, [{"type": "init", "store_id": STORE}])
        self.context = Context(Path("memory"), STORE, backend, open_catalogue(backend))
        self.versions, self.learning = Versions(self.context), Learning(self.context)
        materialise({b"look": {b"a": ("file", b"1")}}, home / "skills")
        materialise({b"a": ("file", b"22")}, home / "draft")
        self.versions.add("skills", home / "skills")
        extra = {"base": "skills@v1:look"}
        self.learning.record(cas.Candidate("c", "k", extra=extra), actor="me")
        self.learning.draft("c", home / "draft", actor="me")
        self.digest = bytes.fromhex(self.learning.get("c").extra["draft_digest"])

    def state(self):
        return dict(self.learning._state().scan(b""))

    def names(self):
        self.context.refs.refresh()
        return dict(self.context.refs.log.state.scan(b""))


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(publishing.os, "urandom", lambda size: IDENTITY[:size])
    return World(tmp_path)


def read(value):
    return msgpack.unpackb(value)


def begun(world, monkeypatch):
    """Leave an intent without a decision."""

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cas.catalogue.publication.publish_part", die)
        with pytest.raises(KeyboardInterrupt):
            world.learning.publish("c", "why", actor="me")


def test_a_draft_and_what_it_holds_lie_where_the_page_says(world):
    at = world.state()
    base = read(at[b"draft\0" + PLACE])[9]
    assert read(at[b"draft\0" + PLACE]) == (
        ["d", 2, world.digest, 1, "skills", 1, b"look", "d", 1, base, None]
    )
    assert world.context.objects.read(base)
    assert at[b"held\0" + world.digest + b"\0learn:c"] == b"tree"
    assert at[b"held\0" + base + b"\0learn-base:c"] == b"tree"


def test_an_intent_lies_where_the_page_says_until_its_outcome(world, monkeypatch):
    begun(world, monkeypatch)
    at = world.state()
    assert at[b"publishing\0" + PLACE] == b""
    assert read(at[b"row\0" + PLACE])[-1] == [IDENTITY, AT, "me", "why", [], None]
    version = world.learning.publish("c").version
    at = world.state()
    assert b"publishing\0" + PLACE not in at
    assert read(at[b"row\0" + PLACE])[-1] is None
    assert read(at[b"draft\0" + PLACE])[-1] == ["skills", 2]
    decided = read(world.names()[b"publication\0" + IDENTITY])
    assert decided == {
        "type": "published",
        "publication": IDENTITY,
        "candidate": "c",
        "reports": [],
        "resource": "skills",
        "number": 2,
        "by": "me",
        "at": decided["at"],
    }
    assert (version.source, version.description) == ("learning", "why")
    assert version.meta == {"candidate": "c", "draft": world.digest.hex()}


def give_up(world, by, reason):
    """Decide what was begun, as somebody does who waited for long."""
    state = world.learning._seen()
    at, row = find_row(state, "c")
    intent = Intent._make(row.intent)
    what = settling.publication_of("c", find_draft(state, at), intent)
    world.context.refs.refresh()
    return give_up_publication(world.context, what, by, reason)


def test_a_version_that_was_there_decides_where_the_page_says(world, monkeypatch, tmp_path):
    begun(world, monkeypatch)
    meta = {"candidate": "c", "draft": world.digest.hex()}
    world.versions.add("skills", tmp_path / "skills", source="learning", meta=meta)
    world.versions.remove("skills@v2")
    assert give_up(world, "you", "not today").there
    decided = read(world.names()[b"publication\0" + IDENTITY])
    assert decided == {
        "type": "published",
        "publication": IDENTITY,
        "candidate": "c",
        "reports": [],
        "resource": "skills",
        "number": 2,
        "by": "me",
        "there": True,
        "at": decided["at"],
    }
    assert world.learning.get("c").extra["published_as"] == "skills@v2"


def test_a_refusal_lies_where_the_page_says_and_is_the_only_decision(world, monkeypatch):
    begun(world, monkeypatch)
    give_up(world, "me", "not today")
    give_up(world, "you", "never")
    decided = read(world.names()[b"publication\0" + IDENTITY])
    assert decided == {
        "type": "publication-refused",
        "publication": IDENTITY,
        "candidate": "c",
        "by": "me",
        "reason": "not today",
        "at": decided["at"],
    }
    assert world.learning.get("c").last_error == "not today"
    assert b"publishing\0" + PLACE not in world.state()


@pytest.mark.parametrize("kind", ["published", "publication-refused"])
def test_the_catalogue_takes_no_second_decision(world, monkeypatch, kind):
    begun(world, monkeypatch)
    give_up(world, "me", "not today")
    event = {"type": kind, "publication": IDENTITY, "candidate": "c", "by": "", "at": ""}
    told = {"reason": "", "reports": [], "resource": "skills", "number": 1}
    with pytest.raises(cas.ConflictError, match="decided already"):
        world.context.refs.publish(lambda _: [event | told])


def test_who_cannot_write_reads_what_is_there_beside_an_intent(world, monkeypatch):
    begun(world, monkeypatch)
    give_up(world, "me", "not today")

    def read_only(*_):
        raise EnvironmentFailure("read-only file system")

    monkeypatch.setattr(settling, "conclude", read_only)
    assert world.learning.get("c").status == "draft_ready"
    assert world.learning.get("c").last_error is None
