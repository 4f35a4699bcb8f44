"""Cloning: a new store with the identity, the names, the history and the content of another.

It is founded as any store is: whatever happens, there is a whole store or none. What a clone that
was cut short had copied is known to the next one to the same directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.catalogue.context import Context, doing
from cas.catalogue.founding import building
from cas.catalogue.identity import read_identity
from cas.catalogue.publish import tidy_up
from cas.errors import MissingObjectError, RefusedError
from cas.eventlog.copying import copy_log, log_names
from cas.learning import Learning
from cas.refs import CATALOGUE, open_catalogue
from cas.sync.ancestry import bring_manifests, find_targets
from cas.sync.content import Lacking
from cas.sync.selection import select

if TYPE_CHECKING:
    from pathlib import Path

    from cas.progress import Progress
    from cas.refs import SeedRef, VersionRef


def clone(source: Context, path: Path, *, progress: Progress | None = None) -> None:
    """Make a directory a copy of a store.

    Args:
        source: The store; it is only read, and may be written to meanwhile.
        path: The directory, which must not exist or be empty.
        progress: Called with what was done so far.

    Raises:
        ConflictError: Something is at `path`.
        RefusedError: It lies in the source.
        DamagedError: The source is damaged.
    """
    with doing(f"cloning {source.root}"):
        if source.root.resolve() in path.resolve().parents:
            raise RefusedError(f"{path} lies in the store itself; name a place outside")
        # A group of the source is not one of the place where the clone lies.
        identity = read_identity(source.root)._replace(shared=False)
        with building(path, identity, resume=True) as backend:
            while True:
                # The catalogue last, so that it has every version that another log speaks of.
                for name in sorted(log_names(source.backend), key=CATALOGUE.__eq__):
                    copy_log(source.backend, backend, name)
                copy = Context(path, identity.id, backend, open_catalogue(backend))
                try:
                    _fill(source, copy, progress)
                except MissingObjectError as error:
                    # A gc may have taken what a name or a candidate reached that is gone since.
                    if _position(source) == _position(copy):
                        raise MissingObjectError(
                            f"{source.root} cannot be cloned: {error}", **error.facts
                        ) from None
                else:
                    return
                finally:
                    copy.close()


def _position(context: Context) -> tuple[int, int]:
    """Return how far the logs of a store go."""
    return context.refs.refresh(), Learning(context).refresh()


def _fill(source: Context, copy: Context, progress: Progress | None) -> None:
    """Copy all that the names of a clone reach."""
    copy.heed_purges()
    names = select(copy, ())
    refs: list[VersionRef | SeedRef] = [*names.versions.values(), *names.seeds.values()]
    with copy.objects.writer() as writer:
        with Lacking(source.objects, copy.objects, writer, progress) as lacking:
            lacking.find(trees=bring_manifests(source.objects, refs, None, writer))
            named = {ref.digest for ref in refs}
            tags = [tag for tag in names.tags.values() if tag.digest not in named]
            find_targets(lacking, source.objects, tags)
            held = list(Learning(copy).kept_digests())
            trees = [digest for digest, kind, _ in held if kind == "tree"]
            lacking.find(trees=trees, objects=[digest for digest, _, _ in held])
            lacking.bring()
        writer.flush()
    tidy_up(copy)
