"""Laying out versions and seeds as folders of an old store, before anything is written.

The folders become one tree over the trees that are stored already, whose few pages of its own are
kept in memory: an export stores nothing, and works on a store that cannot be written.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from cas.catalogue.draft import BASELINE, PROMPTS, SKILLS
from cas.digest import Digest, hash_bytes
from cas.layouts import shape, told
from cas.layouts.links import implied
from cas.layouts.told import SEED, VERSION, Told
from cas.manifests import (
    DIR,
    EXEC,
    FILE,
    TreeBuilder,
    TreeRef,
    edit_tree,
    entries,
    lookup,
    parse_tree,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.catalogue.seed import Seed
    from cas.catalogue.version import Version
    from cas.layouts.told import Form
    from cas.manifests import NewEntry, Read

_Folder = dict[bytes, "NewEntry | _Folder"]


class Note(NamedTuple):
    """A small file that tells about a version or seed.

    Attributes:
        folder: Its folder, below the layout's directory.
        name: Its name.
        content: Its bytes.
    """

    folder: bytes
    name: bytes
    content: bytes


class Bare(NamedTuple):
    """A plain folder of which nothing is to be told but its time.

    Attributes:
        folder: Its path below the layout's directory.
        time_ns: When it was last written.
        note: What to tell where the filesystem cannot keep that time.
    """

    folder: bytes
    time_ns: int
    note: Note


class Layout:
    """The folders and files of an export.

    Args:
        read: Gives stored objects.
        versions: What to lay out.
        seeds: What to lay out.

    Attributes:
        notes: What to write beside the tree, once it is there.
        bare: Plain folders whose time tells all.
        versions: Specs of the versions laid out.
        seeds: Specs of the seeds laid out.
        left_out: Specs of what has no place in a layout.
        notices: What a person should know.
    """

    def __init__(self, read: Read, versions: Iterable[Version], seeds: Iterable[Seed]) -> None:
        """Look at the roots of trees; read nothing else."""
        self._stored = read
        self._pages: dict[bytes, bytes] = {}
        self._top: _Folder = {}
        self.notes: list[Note] = []
        self.bare: list[Bare] = []
        self.notices: list[str] = []
        by_resource: dict[str, list[Version]] = {}
        self.left_out: list[str] = []
        for version in versions:
            if shape.has_place(version.resource):
                by_resource.setdefault(version.resource, []).append(version)
            else:
                self.left_out.append(version.spec)
        all_seeds = list(seeds)
        placed = [version for listed in by_resource.values() for version in listed]
        self._names = {version.digest: version.spec for version in placed}
        self._names |= {seed.digest: seed.spec for seed in all_seeds}
        self._specs = frozenset(self._names.values())
        self.versions = [version.spec for version in placed]
        self.seeds = [seed.spec for seed in all_seeds]
        for resource, listed in by_resource.items():
            if len(listed) == 1 and _may_be_plain(resource, by_resource):
                self._place_plain(listed[0])
            else:
                for version in listed:
                    self._place_version(version)
        for seed in all_seeds:
            self._place_seed(seed)

    # --- the tree --------------------------------------------------------------------------------

    def read(self, digest: bytes) -> bytes:
        """Return a page of the layout's tree, or a stored object."""
        page = self._pages.get(digest)
        return self._stored(digest) if page is None else page

    def tree(self) -> TreeRef:
        """Return the tree of the whole layout, but for its notes."""
        return self._build(self._top)

    def _put(self, page: bytes) -> Digest:
        digest = hash_bytes(page)
        self._pages[digest] = page
        return digest

    def _build(self, folder: _Folder) -> TreeRef:
        builder = TreeBuilder(self._put)
        for name, below in sorted(folder.items()):
            if isinstance(below, dict):
                tree = self._build(below)
                builder.add(name, DIR, tree.bytes, tree.digest, tree.files)
            else:
                kind, size, digest, files = below
                builder.add(name, kind, size, digest, files)
        return builder.finish()

    def _place(self, path: bytes, entry: NewEntry) -> None:
        *above, name = path.split(b"/")
        at = self._top
        for folder in above:
            below = at.setdefault(folder, {})
            assert isinstance(below, dict)
            at = below
        at[name] = entry

    def _note(self, folder: bytes, name: bytes, form: Form, own: str, said: Told) -> Note:
        return Note(folder, name, told.write(form, own, said))

    # --- versions --------------------------------------------------------------------------------

    def _place_version(self, version: Version) -> None:
        path = f"{version.resource}/{version.version}".encode()
        tree = TreeRef(version.tree, version.files, version.bytes)
        moved: dict[str, str] = {}
        own = lookup(self._stored, version.tree, shape.VERSION_FILE)
        if own is not None:
            tree, lies = self._move_aside(version.tree, own[1], own[2], own[3])
            moved[VERSION.file] = os.fsdecode(lies)
        self._place(path, (DIR, tree.bytes, tree.digest, tree.files))
        said = self._told_of_version(version, moved)
        self.notes.append(self._note(path, shape.VERSION_FILE, VERSION, version.version, said))

    def _move_aside(
        self, tree: bytes, kind: str, size: int, digest: bytes
    ) -> tuple[TreeRef, bytes]:
        """Give a set's own `meta.json` another name, since the layout needs that one."""
        lies = shape.free_name(
            shape.VERSION_FILE, lambda name: lookup(self._stored, tree, name) is not None
        )
        files = parse_tree(self._stored(digest)).files if kind == DIR else 1
        puts = {lies: (kind, size, digest, files)}
        return edit_tree(self.read, self._put, tree, puts, [shape.VERSION_FILE]), lies

    def _told_of_version(self, version: Version, moved: dict[str, str]) -> Told:
        fields = {name: getattr(version, name) for name in (*VERSION.fields, told.CREATED)}
        return Told(
            fields=fields,
            meta=version.meta,
            parents=self._parents(version),
            moved=moved,
        )

    def _parents(self, one: Version | Seed) -> tuple[str, ...] | None:
        """Return what something came from, unless its `parent` tells just that."""
        links = tuple(self._names[digest] for digest in one.parents if digest in self._names)
        if len(links) < len(one.parents):
            self.notices.append(
                f"{one.spec} came from {one.parent or 'something'}, which is not exported: "
                "the link is not kept"
            )
        said = tuple(spec for spec in implied(one.spec, one.parent) if spec in self._specs)
        return None if links == said else links

    def _place_plain(self, version: Version) -> None:
        """Lay out the one version of a resource as a folder of content and nothing else."""
        path = version.resource.encode()
        self._place(path, (DIR, version.bytes, version.tree, version.files))
        above, _, name = path.rpartition(b"/")
        said = self._told_of_version(version, {})
        note = self._note(above, name + shape.BESIDE, VERSION, version.version, said)
        time_ns = told.time_ns(version.created_at)
        silent = {**VERSION.fields, told.CREATED: version.created_at}
        if (
            time_ns is not None
            and version.number == 1
            and said == Told(fields=silent, meta={}, parents=None, moved={})
            and not self._is_empty(version.tree)
            and not self._holds_versions(version.tree)
        ):
            self.bare.append(Bare(path, time_ns, note))
        else:
            self.notes.append(note)

    def _is_empty(self, tree: bytes) -> bool:
        return next(entries(self._stored, tree), None) is None

    def _holds_versions(self, tree: bytes, depth: int = 0) -> bool:
        """Tell whether an import would take a tree for versions, as `Scan` does of a folder."""
        if depth >= shape.MAX_DEPTH:
            return False
        whole = False
        for name, kind, _, digest in entries(self._stored, tree):
            if kind != DIR:
                return False
            if shape.number_of(name) is not None:
                found = lookup(self._stored, digest, shape.VERSION_FILE)
                whole = whole or (found is not None and found[1] in (FILE, EXEC))
            elif self._holds_versions(digest, depth + 1):
                whole = True
            else:
                return False
        return whole

    # --- seeds -----------------------------------------------------------------------------------

    def _place_seed(self, seed: Seed) -> None:
        path = shape.SEEDS + b"/" + seed.name.encode()
        kinds = {name: kind for name, kind, _, _ in entries(self._stored, seed.tree)}
        taken = frozenset(name.encode() for name in seed.parts)
        moved: dict[str, str] = {}
        for name, part in seed.parts.items():
            lies = name.encode()
            kind = kinds.get(lies, FILE)
            if name in (SKILLS, PROMPTS):
                kind = DIR
            elif name == BASELINE:
                lies, kind = shape.BASELINE, FILE
            elif lies == shape.BASELINE or lies in shape.BASELINE_SIDES:
                lies = shape.free_name(lies, taken.__contains__)
                moved[name] = os.fsdecode(lies)
            self._place(path + b"/" + lies, (kind, part.bytes, part.digest, part.files))
        said = Told(
            fields={name: getattr(seed, name) for name in (*SEED.fields, told.CREATED)},
            meta=seed.meta,
            parents=self._parents(seed),
            moved=moved,
        )
        self.notes.append(self._note(path, shape.SEED_FILE, SEED, seed.name, said))


def _may_be_plain(resource: str, resources: Iterable[str]) -> bool:
    """Tell whether a resource may be a plain folder beside those that there are."""
    if resource not in shape.PLAIN:
        return False
    beside = resource + os.fsdecode(shape.BESIDE)
    return not any(
        other.startswith((resource + "/", beside + "/")) or other == beside for other in resources
    )
