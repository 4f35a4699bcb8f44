"""What a spec names: a version, a seed, or a place inside one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from cas import names
from cas.catalogue.lookup import SHOWN, seed_ref, tag_ref, version_ref
from cas.digest import DIGEST_SIZE, Digest
from cas.errors import FormatError, NotFoundError, RefusedError
from cas.manifests import (
    DIR,
    EXEC,
    FILE,
    LINK,
    SeedManifest,
    VersionManifest,
    entries,
    resolve,
    walk,
)
from cas.objects import SEED, TREE, VERSION
from cas.paths import path_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.catalogue.context import Context
    from cas.manifests import Entry
    from cas.names import Spec

#: Entry types of tree manifests → the words that people see.
TYPE_WORDS = {FILE: "file", EXEC: "exec", LINK: "symlink", DIR: "dir"}
ENTRY_TYPES = {word: entry_type for entry_type, word in TYPE_WORDS.items()}


class Resolved(NamedTuple):
    """What a spec names.

    `kind` is `version` or `seed` for a whole one, else `tree` or `blob`. `manifest` is the digest
    of the version or seed that the spec starts from, `name` its spec (`skills@v3`, also where the
    spec was a tag or a digest). `type`, `size` and `digest` describe the content at `path`: the
    tree or blob; `tree` is the same digest where it is a directory, else None.
    """

    spec: str
    kind: str
    name: str | None
    manifest: Digest | None
    tree: Digest | None
    type: str
    size: int
    digest: Digest
    path: bytes

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "spec": self.spec,
            "kind": self.kind,
            "name": self.name,
            "manifest": None if self.manifest is None else str(self.manifest),
            "tree": None if self.tree is None else str(self.tree),
            "type": self.type,
            "size": self.size,
            "digest": str(self.digest),
            **path_json(self.path),
        }


class WalkEntry(NamedTuple):
    """One entry of a tree: its path below the start, `file|exec|symlink|dir`, size and digest.

    The size of a directory is that of all files in it.
    """

    path: bytes
    type: str
    size: int
    digest: Digest

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            **path_json(self.path),
            "type": self.type,
            "size": self.size,
            "digest": str(self.digest),
        }


class _Start(NamedTuple):
    """Where a spec starts, before its path: what holds the name, and the entry there."""

    kind: str
    name: str | None
    manifest: Digest | None
    entry: Entry


def resolve_spec(context: Context, text: str) -> Resolved:
    """Find what a spec names.

    Raises:
        NotFoundError: It names nothing; the message says what there is.
        RefusedError: It is no spec, or a digest prefix that fits several objects.
    """
    spec = names.parse_spec(text)
    context.heed_purges()
    return _inside(context, spec, _start(context, spec))


def _start(context: Context, spec: Spec) -> _Start:
    refs = context.refs
    if spec.kind == "version":
        ref = version_ref(refs, spec)
        return _of_version(ref.digest, VersionManifest.from_bytes(ref.manifest_bytes))
    if spec.kind == "seed":
        seed = seed_ref(refs, spec.name)
        return _of_seed(seed.digest, SeedManifest.from_bytes(seed.manifest_bytes))
    if spec.kind == "tag":
        return _start_at(context, tag_ref(refs, spec.name).digest)
    return _start_at(context, _by_prefix(context, spec.prefix))


def _by_prefix(context: Context, prefix: str) -> Digest:
    if len(prefix) == 2 * DIGEST_SIZE and context.objects.has(bytes.fromhex(prefix)):
        return Digest.parse(prefix)
    found = context.objects.find(prefix)
    if not found:
        raise NotFoundError(f"no object has a digest that begins with {prefix}", spec=prefix)
    if len(found) > 1:
        listed = ", ".join(digest.hex()[: len(prefix) + 8] for digest in found[:SHOWN])
        raise RefusedError(
            f"digest prefix {prefix} fits several objects ({listed}); give more digits",
            spec=prefix,
            candidates=[digest.hex() for digest in found],
        )
    return Digest(found[0])


def _start_at(context: Context, digest: bytes) -> _Start:
    """Say what the object of a digest is: a version, a seed, a tree or a blob.

    Raises:
        MissingObjectError: The store does not hold it.
    """
    objects = context.objects
    info = objects.info(digest)
    known = Digest(digest)
    if info.kind in (VERSION, SEED):
        manifest = read_manifest(objects.read(digest))
        if isinstance(manifest, SeedManifest):
            return _of_seed(known, manifest)
        return _of_version(known, manifest)
    if info.kind == TREE:
        name, kind, size, tree = resolve(objects.read, digest, b"")
        return _Start("tree", None, None, (name, kind, size, tree))
    return _Start("blob", None, None, (b"", "f", info.size, known))


def read_manifest(encoded: bytes) -> VersionManifest | SeedManifest:
    """Read the bytes of a version or a seed, whichever they are.

    Raises:
        FormatError: They are neither.
    """
    try:
        return VersionManifest.from_bytes(encoded)
    except FormatError:
        return SeedManifest.from_bytes(encoded)


def _of_version(digest: bytes, manifest: VersionManifest) -> _Start:
    entry = (b"", DIR, manifest.bytes, manifest.tree)
    name = f"{manifest.resource}@v{manifest.number}"
    return _Start("version", name, Digest(digest), entry)


def _of_seed(digest: bytes, manifest: SeedManifest) -> _Start:
    entry = (b"", DIR, manifest.bytes, manifest.tree)
    return _Start("seed", f"seed:{manifest.name}", Digest(digest), entry)


def _inside(context: Context, spec: Spec, start: _Start) -> Resolved:
    entry = start.entry
    kind = start.kind
    if spec.path:
        if entry[1] != DIR:
            raise NotFoundError(f"{spec} not found: {spec.base} is a file", spec=str(spec))
        try:
            entry = resolve(context.objects.read, entry[3], spec.path)
        except NotFoundError as error:
            raise NotFoundError(f"in {start.name or spec.base}: {error}", spec=str(spec)) from None
        kind = "tree" if entry[1] == DIR else "blob"
    digest = Digest(entry[3])
    return Resolved(
        spec=str(spec),
        kind=kind,
        name=start.name,
        manifest=start.manifest,
        tree=digest if entry[1] == DIR else None,
        type=TYPE_WORDS[entry[1]],
        size=entry[2],
        digest=digest,
        path=spec.path or b"",
    )


def tree_of(resolved: Resolved) -> Digest:
    """Return the directory that a spec names.

    Raises:
        NotFoundError: It names a file.
    """
    if resolved.tree is None:
        raise NotFoundError(f"{resolved.spec} is a file, not a directory", spec=resolved.spec)
    return resolved.tree


def walk_tree(context: Context, tree: bytes) -> Iterator[WalkEntry]:
    """Yield everything below a tree, a directory before what is in it."""
    for path, (_, kind, size, digest) in walk(context.objects.read, tree):
        yield WalkEntry(path, TYPE_WORDS[kind], size, Digest(digest))


def list_entries(context: Context, resolved: Resolved) -> Iterator[WalkEntry]:
    """Yield the entries of one directory; of a file, the file itself."""
    if resolved.tree is None:
        name = resolved.path.rpartition(b"/")[2] or os.fsencode(resolved.spec)
        yield WalkEntry(name, resolved.type, resolved.size, resolved.digest)
        return
    for name, kind, size, digest in entries(context.objects.read, resolved.tree):
        yield WalkEntry(name, TYPE_WORDS[kind], size, Digest(digest))
