"""Seeds: frozen states of skills, prompts and the baseline database that earned them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas import names
from cas.catalogue.closure import check_closure
from cas.catalogue.context import doing
from cas.catalogue.draft import DATABASE, PROMPTS, SKILLS, check_parts
from cas.catalogue.freeze import Terms, check_free, freeze, labels_of
from cas.catalogue.lookup import any_seed_ref, seed_ref
from cas.catalogue.parents import NO_PARENT, find_parent
from cas.catalogue.promote import promote
from cas.catalogue.publish import change_event, change_refs
from cas.catalogue.scratch import scratch
from cas.catalogue.seed import Seed, seed_from_ref
from cas.catalogue.sources import check_source
from cas.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cas.catalogue.context import Context
    from cas.catalogue.sources import Source
    from cas.progress import Progress
    from cas.refs import Event, Refs, SeedRef


class Seeds:
    """The seeds of a store.

    Args:
        context: The open store.
    """

    def __init__(self, context: Context) -> None:
        """Read nothing yet."""
        self._context = context

    def create(
        self,
        name: str,
        *,
        skills: Source,
        prompts: Source,
        baseline: Source,
        baseline_run_id: str,
        parts: Mapping[str, Source] | None = None,
        parent: str | None = None,
        description: str = "",
        meta: Mapping[str, str] | None = None,
        reuse_name: bool = False,
        ignore: bool = True,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> Seed:
        """Freeze a seed; what has its name is never overwritten.

        Args:
            name: The seed's name.
            skills: A directory, or a spec of one.
            prompts: A directory, or a spec of one.
            baseline: The SQLite database of the baseline run; taken through SQLite's own backup.
            baseline_run_id: The run that the database must hold.
            parts: More parts by name, each a file or directory, or a spec of one.
            parent: What it came from: a spec, or free text such as `WORKSPACE:v3`.
            description: Why.
            meta: Any more texts by name.
            reuse_name: Allow the name of a removed seed.
            ignore: Honour `.casignore` files.
            workers: How many processes read and hash; by default as many as pay.
            progress: Called with what was done so far.

        Raises:
            ConflictError: The name is taken, or was removed and `reuse_name` is not given.
            NotFoundError: A source does not exist, or the database does not hold the run.
            RefusedError: A name or a source is one that a seed cannot take.
        """
        from cas import harness  # late: only here is SQLite needed

        context = self._context
        extra = dict(parts or {})
        names.check_seed(name)
        names.check_run_id(baseline_run_id)
        check_parts(extra)
        terms = Terms(
            name=name,
            run_id=baseline_run_id,
            description=description,
            meta=dict(meta or {}),
            reuse_name=reuse_name,
            ignore=ignore,
            workers=workers,
            progress=progress,
        )
        with doing(f"creating seed {name}"), context.publishing():
            context.refs.refresh()
            check_free(context.refs, name, reuse_name=reuse_name)
            came_from = find_parent(context, parent) if parent else NO_PARENT
            sources = {SKILLS: skills, PROMPTS: prompts, **extra}
            for part, source in sources.items():
                check_source(
                    context, source, f"the {part} of seed {name}", folder=part not in extra
                )
            with scratch(context) as folder:
                database = folder / DATABASE
                harness.snapshot(baseline, database)
                labels = labels_of(harness.run_row(database, baseline_run_id))
                return freeze(context, terms, sources, labels, database, came_from)

    def promote(
        self,
        workspace: Source,
        *,
        version: str,
        eval_run_id: str,
        name: str,
        description: str = "",
        force: bool = False,
        meta: Mapping[str, str] | None = None,
        reuse_name: bool = False,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> Seed:
        """Freeze a workspace's state as a seed that an eval run has earned.

        Takes `skills/<version>/`, the `prompts/<label>/` that the run names, that run alone out of
        `harness.db`, and what the workspace has of the other parts of the seed that it was checked
        out from. The parent is recorded as `WORKSPACE:<version>` and linked to that seed.

        Args:
            workspace: The workspace's directory.
            version: The label of the skills, which the run must carry.
            eval_run_id: The run in the workspace's `harness.db`.
            name: The new seed's name.
            description: Why.
            force: Also take a run that is not finished.
            meta: Any more texts by name.
            reuse_name: Allow the name of a removed seed.
            workers: How many processes read and hash; by default as many as pay.
            progress: Called with what was done so far.

        Raises:
            ConflictError: The name is taken.
            NotFoundError: The workspace lacks a part, or its database the run.
            RefusedError: The run is not finished, names other versions or none.
        """
        terms = Terms(
            name=names.check_seed(name),
            run_id=names.check_run_id(eval_run_id),
            description=description,
            meta=dict(meta or {}),
            reuse_name=reuse_name,
            ignore=True,
            workers=workers,
            progress=progress,
        )
        names.check_label(version)
        with doing(f"promoting {workspace}"), self._context.publishing():
            return promote(self._context, terms, workspace, version, force=force)

    def get(self, name: str) -> Seed:
        """Return one seed.

        Raises:
            NotFoundError: There is no such seed.
        """
        with doing("reading the catalogue"):
            self._context.refs.refresh()
            return seed_from_ref(seed_ref(self._context.refs, names.check_seed(name)))

    def remove(self, name: str, *, reason: str = "", by: str | None = None) -> Seed:
        """Take a seed's name away.

        Args:
            name: The seed.
            reason: Why, for the history.
            by: Who; by default the user that runs this.

        Raises:
            NotFoundError: There is no such seed.
        """
        names.check_seed(name)
        removed: list[SeedRef] = []

        def decide(refs: Refs) -> Sequence[Event]:
            event = change_event("seed-removed", {"name": name}, by=by, reason=reason)
            removed[:] = [seed_ref(refs, name)._replace(removed_at=event["at"])]
            return [event]

        with doing(f"removing seed {name}"):
            change_refs(self._context, decide)
        return seed_from_ref(removed[0])

    def undelete(self, name: str, *, reason: str = "", by: str | None = None) -> Seed:
        """Bring a removed seed back, while its content is there.

        Args:
            name: The seed.
            reason: Why, for the history.
            by: Who; by default the user that runs this.

        Raises:
            NotFoundError: There never was such a seed.
            ConflictError: It is not removed.
            MissingObjectError: Its content is gone.
        """
        context = self._context
        names.check_seed(name)
        with doing(f"undeleting seed {name}"), context.publishing():
            context.refs.refresh()
            ref = any_seed_ref(context.refs, name)
            if ref.removed_at is None:
                raise ConflictError(f"seed {name} is not removed", name=name)
            seed = seed_from_ref(ref._replace(removed_at=None))
            check_closure(context.objects, seed.tree, seed.spec)
            event = change_event("seed-restored", {"name": name}, by=by, reason=reason)
            change_refs(context, lambda _: [event])
        return seed

    def list(self, *, removed: bool = False) -> list[Seed]:
        """Return the seeds, sorted by name; with `removed` also those whose name was taken away."""
        with doing("reading the catalogue"):
            self._context.refs.refresh()
            return [seed_from_ref(ref) for ref in self._context.refs.seeds(removed=removed)]
