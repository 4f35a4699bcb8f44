"""Version and seed manifests: round trips, and everything else refused."""

from __future__ import annotations

import pytest

from cas import codec
from cas.digest import hash_bytes
from cas.errors import FormatError, NewerFormatError, RefusedError
from cas.manifests import SeedManifest, SeedPart, VersionManifest
from cas.manifests.record import MAX_BYTES

D, E = hash_bytes(b"d"), hash_bytes(b"e")
VERSION = VersionManifest(
    resource="questions/generated", number=12, tree=D, files=3, bytes=99, parents=(D, E),
    source="evolution", description="why\nnot", created_at="2026-01-01T00:00:00Z",
    parent="skills@v3", trigger_run="run 1", trigger_workspace="ws", meta={"k": "v", "": "é"},
)  # fmt: skip
PART = SeedPart("tree", D, 2, 5, "v2")
SEED = SeedManifest(
    name="initial", tree=D, files=4, bytes=10,
    parts={"skills": PART, "baseline": SeedPart("blob", E, 1, 5)},
    baseline_run_id="20260101_120000", parent="ws:v4", parents=(E,), created_at="now",
    description="good", meta={"a": "b"},
)  # fmt: skip
MANIFESTS = [
    VERSION,
    VersionManifest(resource="a", number=1, tree=D, files=0, bytes=0),
    SEED,
    SeedManifest(name="a", tree=D, files=0, bytes=0, parts={}, baseline_run_id="r"),
]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_is_read_back_as_it_was(manifest):
    data = manifest.to_bytes()
    assert type(manifest).from_bytes(data) == manifest
    assert type(manifest).from_bytes(data).to_bytes() == data
    kind = "version" if isinstance(manifest, VersionManifest) else "seed"
    assert codec.decode(data)[:2] == [kind, 1]


def test_the_order_in_which_a_map_was_filled_does_not_matter():
    turned = VERSION._replace(meta=dict(reversed(VERSION.meta.items())))
    assert turned.to_bytes() == VERSION.to_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"resource": "../x"}, {"resource": ""}, {"number": 0}, {"number": -1}, {"number": 1 << 63},
        {"number": True}, {"number": "1"}, {"tree": b"short"}, {"files": -1}, {"bytes": 1.0},
        {"parents": (b"x",)}, {"parents": [5]}, {"parents": (D,) * 1001}, {"source": None},
        {"source": "a\0"}, {"description": "\udcff"}, {"description": "x" * 70_000}, {"parent": 5},
        {"trigger_run": b"r"}, {"meta": {"k": 1}}, {"meta": {1: "k"}}, {"meta": {"k\0": "v"}},
        {"meta": [("k", "v")]}, {"meta": {str(n): "x" * 60_000 for n in range(5)}},
        {"created_at": None}, {"meta": {"k": {"deep": "er"}}},
    ],
)  # fmt: skip
def test_a_version_that_could_not_be_read_back_is_not_written(change):
    with pytest.raises(RefusedError):
        VERSION._replace(**change).to_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a/b"}, {"name": ".."}, {"tree": b""}, {"baseline_run_id": ""},
        {"baseline_run_id": "a\n"}, {"parts": {"a/b": PART}}, {"parts": {"..": PART}},
        {"parts": {"p": PART._replace(kind="bush")}}, {"parts": {"p": PART._replace(digest=b"x")}},
        {"parts": {"p": PART._replace(files=-1)}}, {"parts": {"p": PART._replace(label="..")}},
        {"parts": {"p": PART._replace(label="a/b")}}, {"parts": {"p": PART._replace(label=2)}},
        {"parts": {f"p{n}": PART for n in range(257)}}, {"parent": 1}, {"meta": {"k": None}},
    ],
)  # fmt: skip
def test_a_seed_that_could_not_be_read_back_is_not_written(change):
    with pytest.raises(RefusedError):
        SEED._replace(**change).to_bytes()


def fields(manifest):
    return codec.decode(manifest.to_bytes())[2]


@pytest.mark.parametrize("manifest", [VERSION, SEED])
def test_a_missing_or_unknown_field_is_refused(manifest):
    read = type(manifest).from_bytes
    kind = codec.decode(manifest.to_bytes())[0]
    for key in fields(manifest):
        body = fields(manifest)
        del body[key]
        with pytest.raises(FormatError, match=f"lacks '{key}'"):
            read(codec.encode([kind, 1, body]))
    with pytest.raises(FormatError, match="unknown field 'new'"):
        read(codec.encode([kind, 1, fields(manifest) | {"new": 1}]))


@pytest.mark.parametrize("manifest", [VERSION, SEED])
def test_other_kinds_and_shapes_are_refused(manifest):
    read = type(manifest).from_bytes
    kind = codec.decode(manifest.to_bytes())[0]
    for value in (
        [kind], [kind, 1], [kind, 0, {}], [kind, "1", {}], [kind, 1, []], [kind, 1, {}, 0],
        ["tree", 1, 0, 0, []], {kind: 1}, kind, None,
        ["seed" if kind == "version" else "version", 1, fields(manifest)],
    ):  # fmt: skip
        with pytest.raises(FormatError):
            read(codec.encode(value))
    with pytest.raises(NewerFormatError, match="format 2"):
        read(codec.encode([kind, 2, "anything"]))
    for data in (b"", b"text", manifest.to_bytes() + b"\0", bytes(MAX_BYTES + 1)):
        with pytest.raises(FormatError):
            read(data)


def test_a_seed_with_a_hostile_part_is_refused():
    for part in (5, {}, {**fields(SEED)["parts"]["skills"], "x": 1}):
        with pytest.raises(FormatError, match="part"):
            SeedManifest.from_bytes(
                codec.encode(["seed", 1, fields(SEED) | {"parts": {"p": part}}])
            )
    body = fields(SEED)
    body["parts"] = {"../x": body["parts"]["skills"]}
    with pytest.raises(FormatError, match="part name"):
        SeedManifest.from_bytes(codec.encode(["seed", 1, body]))
