"""Names for digests: the rules that the catalogue's fold keeps, whoever writes the events."""

from __future__ import annotations

import pytest

from cas.backends import MemoryBackend
from cas.digest import hash_bytes
from cas.errors import (
    ConflictError,
    DamagedLogError,
    NameRefusedError,
    NewerFormatError,
    NotFoundError,
    RefusedError,
)
from cas.eventlog import EventLog
from cas.refs import MAX_MANIFEST, TagMove, create_catalogue, open_catalogue

WHY = {"by": "me", "reason": "because", "at": "2026-01-01T00:00:00.000000+00:00"}
INIT = {"type": "init", "store_id": "0" * 32}


def version(number, resource="skills", **more):
    manifest = f"manifest of {resource} {number}".encode()
    return {
        "type": "version",
        "resource": resource,
        "number": number,
        "digest": hash_bytes(manifest),
        "manifest": manifest,
        **more,
    }


def seed(name, content="", **more):
    manifest = f"manifest of {name} {content}".encode()
    digest = hash_bytes(manifest)
    return {"type": "seed", "name": name, "digest": digest, "manifest": manifest, **more}


def moved(kind, **name):
    return {"type": kind, **name, **WHY}


def tag(name, target, spec):
    return {"type": "tag", "name": name, "digest": hash_bytes(target), "spec": spec, **WHY}


@pytest.fixture
def backend():
    return MemoryBackend()


@pytest.fixture
def refs(backend):
    return create_catalogue(backend, [INIT])


def publish(refs, *events):
    return refs.publish(lambda _: events)


def numbers(refs, resource="skills", **options):
    return [ref.number for ref in refs.versions(resource, **options)]


def test_a_new_catalogue_has_no_names(refs):
    assert refs.origin()["store_id"] == "0" * 32
    assert refs.resources() == []
    assert list(refs.seeds()) == list(refs.tags()) == []
    assert refs.latest("skills") is None
    assert refs.last_number("skills") == 0
    assert refs.tag_history("none") == []


def test_a_catalogue_is_made_once(backend, refs):
    with pytest.raises(ConflictError):
        create_catalogue(backend, [INIT])


def test_a_catalogue_begins_with_init_and_has_one(backend, refs):
    with pytest.raises(RefusedError):
        publish(refs, INIT)
    with pytest.raises(RefusedError):
        create_catalogue(MemoryBackend(), [version(1)])


def test_versions_come_in_the_order_of_their_numbers(backend, refs):
    for number in range(1, 301):
        publish(refs, version(number))
    again = open_catalogue(backend)
    assert numbers(again) == list(range(1, 301))
    assert again.latest("skills").number == 300
    found = again.version("skills", 256)
    assert found.manifest_bytes == version(256)["manifest"]
    assert found.digest == version(256)["digest"]
    assert found.removed_at is None
    assert again.version("skills", 0) is again.version("skills", 301) is None


def test_a_resource_is_not_taken_for_one_that_begins_like_it(refs):
    publish(refs, version(1, "a"), version(1, "a/b"), version(1, "a-b"), version(2, "a/b"))
    assert refs.resources() == ["a", "a-b", "a/b"]
    assert numbers(refs, "a") == [1]
    assert numbers(refs, "a/b") == [1, 2]


def test_a_number_is_given_once_and_goes_up_by_one(refs):
    publish(refs, version(1), version(2))
    for number in (1, 2):
        with pytest.raises(ConflictError):
            publish(refs, version(number))
    with pytest.raises(RefusedError):
        publish(refs, version(4))
    publish(refs, moved("version-removed", resource="skills", number=2))
    with pytest.raises(ConflictError):
        publish(refs, version(2))
    assert publish(refs, version(3)).position == 4
    assert refs.last_number("skills") == 3


def test_an_import_may_leave_numbers_out_and_fill_them_in_later(refs):
    publish(refs, version(3, gap=True), version(7, gap=True))
    assert numbers(refs) == [3, 7]
    publish(refs, version(5, gap=True))
    with pytest.raises(ConflictError):
        publish(refs, version(3, gap=True))
    assert numbers(refs) == [3, 5, 7]
    publish(refs, version(8))
    assert refs.last_number("skills") == 8


def test_a_removed_version_is_kept_for_who_asks_and_can_come_back(refs):
    publish(refs, version(1), version(2), version(3))
    publish(
        refs,
        moved("version-removed", resource="skills", number=3),
        moved("version-removed", resource="skills", number=2),
    )
    assert numbers(refs) == [1]
    assert numbers(refs, removed=True) == [1, 2, 3]
    assert refs.latest("skills").number == 1
    assert refs.version("skills", 2).removed_at == WHY["at"]
    with pytest.raises(NotFoundError):
        publish(refs, moved("version-removed", resource="skills", number=2))
    publish(refs, moved("version-restored", resource="skills", number=3))
    assert refs.latest("skills").number == 3
    with pytest.raises(ConflictError):
        publish(refs, moved("version-restored", resource="skills", number=3))
    events = refs.version_history("skills", 3)
    assert [event["type"] for event in events] == ["version-removed", "version-restored"]
    assert events[0]["by"] == "me"
    assert events[0]["reason"] == "because"


def test_a_resource_without_versions_is_listed_only_on_request(refs):
    publish(refs, version(1), moved("version-removed", resource="skills", number=1))
    assert refs.resources() == []
    assert refs.resources(removed=True) == ["skills"]
    assert refs.latest("skills") is None
    assert refs.last_number("skills") == 1


def test_a_seed_has_its_name_until_it_is_removed_and_then_only_for_who_insists(refs):
    publish(refs, seed("initial"))
    for more in ({}, {"reuse": True}):
        with pytest.raises(ConflictError, match="exists"):
            publish(refs, seed("initial", "other", **more))
    publish(refs, moved("seed-removed", name="initial"))
    assert list(refs.seeds()) == []
    assert [ref.removed_at for ref in refs.seeds(removed=True)] == [WHY["at"]]
    with pytest.raises(ConflictError, match="removed"):
        publish(refs, seed("initial", "other"))
    publish(refs, seed("initial", "other", reuse=True))
    assert refs.seed("initial").manifest_bytes == b"manifest of initial other"
    assert [event["type"] for event in refs.seed_history("initial")] == [
        "seed",
        "seed-removed",
        "seed",
    ]


def test_tags_move_and_their_history_stays(backend, refs):
    publish(refs, tag("live", b"1", "skills@v1"))
    publish(refs, tag("live", b"2", "skills@v2"), tag("other", b"1", "skills@v1"))
    publish(refs, moved("tag-removed", name="live"))
    refs.log.compact(full=True)
    again = open_catalogue(backend)
    assert [found.name for found in again.tags()] == ["other"]
    assert again.tag("live") is None
    assert again.tag("other").spec == "skills@v1"
    assert again.tag_history("live") == [
        TagMove(hash_bytes(b"1"), "skills@v1", *WHY.values(), removed=False),
        TagMove(hash_bytes(b"2"), "skills@v2", *WHY.values(), removed=False),
        TagMove(None, None, *WHY.values(), removed=True),
    ]
    with pytest.raises(NotFoundError):
        publish(again, moved("tag-removed", name="live"))


def test_several_names_change_in_one_record_or_not_at_all(refs):
    before = refs.log.position
    with pytest.raises(NotFoundError):
        publish(refs, version(1), seed("a"), moved("tag-removed", name="none"))
    assert refs.resources() == []
    assert refs.log.position == before
    assert publish(refs, version(1), seed("a"), tag("t", b"1", "x@v1")).position == before + 1


def test_a_digest_names_what_holds_it(refs):
    same = hash_bytes(b"same")
    twins = [
        version(1) | {"digest": same, "manifest": b"same"},
        seed("twin") | {"digest": same, "manifest": b"same"},
    ]
    publish(refs, *twins, version(1, "prompts"))
    assert refs.by_digest(same) == ["seed:twin", "skills@v1"]
    publish(refs, moved("seed-removed", name="twin"))
    assert refs.by_digest(same) == ["skills@v1"]
    assert refs.by_digest(same, removed=True) == ["seed:twin", "skills@v1"]
    publish(refs, seed("twin", "other", reuse=True))
    assert refs.by_digest(same, removed=True) == ["skills@v1"]
    assert refs.by_digest(hash_bytes(b"none")) == []


def test_what_an_event_says_besides_is_kept(refs):
    publish(refs, version(1, candidate="c1", by="worker"))
    (told,) = refs.version_history("skills", 1)
    assert told["candidate"] == "c1"
    assert "manifest" not in told


@pytest.mark.parametrize(
    "event",
    [
        version(1) | {"digest": b"short"},
        version(1) | {"manifest": b"another"},
        version(1) | {"manifest": None},
        version(1) | {"manifest": b"x" * (MAX_MANIFEST + 1)},
        version(1) | {"number": 0},
        version(1) | {"number": True},
        version(1) | {"number": "1"},
        version(1) | {"number": 2**63},
        version(1) | {"resource": None},
        moved("seed-removed", name="initial") | {"by": None},
        tag("t", b"1", "x@v1") | {"digest": b""},
        tag("t", b"1", "x@v1") | {"spec": 1},
        tag("t", b"1", "x@v1") | {"reason": "nul\x00"},
    ],
)
def test_malformed_events_are_refused(refs, event):
    with pytest.raises(RefusedError):
        publish(refs, event)
    assert refs.log.position == 1


@pytest.mark.parametrize("name", ["", "../x", "/x", "a\x00", "a\n", "x" * 300, "."])
def test_names_outside_the_grammar_are_refused(refs, name):
    for event in (version(1, name), seed(name), tag(name, b"1", "x@v1")):
        with pytest.raises(NameRefusedError):
            publish(refs, event)


def test_events_of_a_newer_version_are_said_to_be_so(backend, refs):
    with pytest.raises(NewerFormatError):
        publish(refs, {"type": "new-kind"})
    EventLog(backend, "catalogue", lambda *_: None).append(
        lambda state, position: [{"type": "new-kind"}]
    )
    with pytest.raises(NewerFormatError):
        open_catalogue(backend).refresh()


def test_a_record_that_breaks_a_rule_is_damage(backend, refs):
    EventLog(backend, "catalogue", lambda *_: None).append(lambda state, position: [version(5)])
    with pytest.raises(DamagedLogError) as caught:
        open_catalogue(backend).refresh()
    assert caught.value.facts["position"] == 2


def test_decide_sees_the_names_where_its_record_goes(backend, refs):
    other = open_catalogue(backend)
    seen = []

    def decide(now):
        seen.append(now.last_number("skills"))
        if len(seen) == 1:
            publish(other, version(1))
        return [version(now.last_number("skills") + 1)]

    refs.publish(decide)
    assert seen == [0, 1]
    assert numbers(refs) == [1, 2]


def test_decide_may_find_that_nothing_is_to_be_done(refs):
    assert refs.publish(lambda _: []).events == ()
    assert refs.log.position == 1
