"""Checking out what a spec names: finds the tree, and what the workspace is to remember of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cas.catalogue.resolve import resolve_spec, tree_of
from cas.checkout import checkout
from cas.checkout import update as move
from cas.errors import RefusedError
from cas.workspace import WorkspaceState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cas.catalogue.context import Context
    from cas.catalogue.sources import Source
    from cas.checkout import CheckedOut
    from cas.progress import Progress


def check_out(
    context: Context,
    spec: str,
    dest: Source,
    *,
    mode: str,
    only: Sequence[str],
    update: bool,
    force: bool,
    verify: bool,
    sync: bool,
    workers: int | None,
    progress: Progress | None,
) -> CheckedOut:
    """Write what a spec names into a directory; see `Store.checkout`."""
    if context.root.resolve() in Path(os.path.abspath(dest)).resolve().parents:
        raise RefusedError(
            f"{dest} lies in the store itself; choose a destination outside", path=os.fspath(dest)
        )
    found = resolve_spec(context, spec)
    name = found.spec if found.name is None else found.name
    memory = WorkspaceState(
        store_path=context.root,
        store_id=context.id,
        spec=f"{name}:{os.fsdecode(found.path)}" if found.path else name,
        manifest=found.manifest,
    )
    tree = tree_of(found)
    if update:
        if force:
            raise RefusedError("an update never touches what a person changed; leave out the force")
        return move(
            context.objects,
            dest,
            tree,
            memory=memory,
            mode=mode,
            only=only,
            sync=sync,
            workers=workers,
            progress=progress,
        )
    return checkout(
        context.objects,
        tree,
        dest,
        mode=mode,
        only=only,
        force=force,
        verify=verify,
        sync=sync,
        workers=workers,
        progress=progress,
        memory=memory,
    )
