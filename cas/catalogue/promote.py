"""Promoting: a workspace's state becomes a seed, on the word of an eval run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cas.catalogue.draft import BASELINE, DATABASE, PROMPTS, SKILLS
from cas.catalogue.freeze import Terms, check_free, freeze
from cas.catalogue.parents import Parent
from cas.catalogue.resolve import read_manifest
from cas.catalogue.scratch import scratch
from cas.errors import MissingObjectError, NotFoundError
from cas.manifests import SeedManifest
from cas.workspace import load

if TYPE_CHECKING:
    from cas.catalogue.context import Context
    from cas.catalogue.seed import Seed
    from cas.catalogue.sources import Source
    from cas.digest import Digest


def promote(
    context: Context, terms: Terms, workspace: Source, version: str, *, force: bool
) -> Seed:
    """Freeze what a workspace holds for one run. The caller keeps gc out.

    All that is said of the run is read from the copy that becomes the baseline, which is one
    consistent extract: what others write into the workspace's database meanwhile cannot mix in.

    Args:
        context: The store.
        terms: What to call the seed; `run_id` is the eval run.
        workspace: The workspace's directory.
        version: The label of the skills.
        force: Also take a run that is not finished.

    Raises:
        ConflictError: The seed's name is taken.
        NotFoundError: The workspace lacks a part, or its database the run.
        RefusedError: The run is not finished, names other versions or none.
    """
    from cas import harness  # late: only here is SQLite needed

    root = Path(os.path.realpath(workspace))
    context.refs.refresh()
    check_free(context.refs, terms.name, reuse_name=terms.reuse_name)
    if not root.is_dir():
        raise NotFoundError(f"workspace {workspace} not found", path=str(root))
    skills = _folder(root, SKILLS, version)
    with scratch(context) as folder:
        database = folder / DATABASE
        harness.extract_run(root / DATABASE, database, terms.run_id)
        run = harness.check_run(database, terms.run_id, skills_version=version, force=force)
        sources: dict[str, Source] = {SKILLS: skills, PROMPTS: _folder(root, PROMPTS, run.prompts)}
        origin, parts = _origin(context, root)
        sources |= {part: root / part for part in parts if os.path.exists(root / part)}
        name = os.fsencode(root.name).decode("utf-8", "backslashreplace")
        return freeze(
            context,
            terms,
            sources,
            {SKILLS: run.skills, PROMPTS: run.prompts},
            database,
            Parent(f"{name}:{version}", origin),
        )


def _folder(root: Path, part: str, label: str) -> Path:
    path = root / part / label
    if not path.is_dir():
        there = sorted(os.listdir(root / part)) if (root / part).is_dir() else []
        hint = f"it has {', '.join(there[:5])}" if there else f"it has no {part}"
        raise NotFoundError(
            f"workspace {root.name} has no {part}/{label}; {hint}", path=os.fspath(path)
        )
    return path


def _origin(context: Context, root: Path) -> tuple[tuple[Digest, ...], list[str]]:
    """Say what a workspace was checked out from, and which more parts a seed of it had.

    A directory that no checkout made came from nowhere that the store knows of.
    """
    try:
        manifest = load(root).manifest
    except NotFoundError:
        return (), []
    if manifest is None:
        return (), []
    try:
        encoded = context.objects.read(manifest)
    except MissingObjectError:
        return (), []  # of another store, or gone
    origin = read_manifest(encoded)
    parts = list(origin.parts) if isinstance(origin, SeedManifest) else []
    return (manifest,), [part for part in parts if part not in (SKILLS, PROMPTS, BASELINE)]
