"""Freezing a seed: its parts and its baseline go in, one record names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cas import names
from cas.catalogue.draft import FIRST_LABEL, PROMPTS, SKILLS, Draft
from cas.catalogue.parents import Parent
from cas.catalogue.publish import seed_event, tidy_up
from cas.catalogue.seed import Seed, seed_of
from cas.catalogue.sources import Taker
from cas.errors import ConflictError
from cas.objects import SEED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cas.catalogue.context import Context
    from cas.catalogue.sources import Source
    from cas.progress import Progress
    from cas.refs import Event, Refs


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a seed is to be called and what is said of it."""

    name: str
    run_id: str
    description: str
    meta: Mapping[str, str]
    reuse_name: bool
    ignore: bool
    workers: int | None
    progress: Progress | None

    def __post_init__(self) -> None:
        """Refuse what no manifest can hold before any work is done."""
        names.check_text(self.description, "description")
        for key, text in self.meta.items():
            names.check_text(key, "meta key")
            names.check_text(text, f"meta {key}")


def check_free(refs: Refs, name: str, *, reuse_name: bool) -> None:
    """Check that a seed may have a name.

    Raises:
        ConflictError: It is taken, or was and is not to be used again.
    """
    found = refs.seed(name)
    if found is None:
        return
    if found.removed_at is None:
        raise ConflictError(
            f"seed {name} exists and is never overwritten; choose another name", name=name
        )
    if not reuse_name:
        raise ConflictError(
            f"seed {name} was removed and its name is kept for it; undelete it, choose another "
            "name, or ask for this one to be reused",
            name=name,
        )


def labels_of(run: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of skills and prompts: the versions that a run names, `v1` for none.

    Args:
        run: The run's row in `_runs`.

    Raises:
        NameRefusedError: A version cannot be the name of a folder.
    """
    row = {column.lower(): value for column, value in run.items()}
    labels = {}
    for part in (SKILLS, PROMPTS):
        version = row.get(f"{part}_version")
        labels[part] = FIRST_LABEL if version is None else names.check_label(str(version))
    return labels


def freeze(
    context: Context,
    terms: Terms,
    sources: Mapping[str, Source],
    labels: Mapping[str, str],
    database: Path,
    parent: Parent,
) -> Seed:
    """Store all parts of a seed and give it its name. The caller keeps gc out.

    Args:
        context: The store.
        terms: What to call it.
        sources: Part → where its content is; skills and prompts among them.
        labels: The labels of skills and prompts.
        database: The baseline, a private copy that holds the run.
        parent: What it came from.

    Raises:
        ConflictError: The name was taken meanwhile.
    """
    from cas.ingest import ingest_blob  # late: reading seeds needs none of it

    with context.objects.writer() as writer:
        draft = Draft(writer)
        taker = Taker(
            context,
            writer,
            ignore=terms.ignore,
            workers=terms.workers,
            progress=terms.progress,
        )
        came_from = list(parent.digests)
        for part, source in sources.items():
            taken = taker.take(source)
            if taken.manifest is not None:
                came_from.append(taken.manifest)
            if part in labels:
                draft.add_labelled(part, taken.tree, labels[part])
            else:
                draft.add(part, taken.entry)
        draft.add_baseline(*ingest_blob(writer, database))
        for digest in came_from:
            writer.known(digest)
        manifest = draft.finish(
            terms.name,
            baseline_run_id=terms.run_id,
            parent=Parent(parent.text, tuple(dict.fromkeys(came_from))),
            description=terms.description,
            meta=terms.meta,
        )
        encoded = manifest.to_bytes()
        digest = writer.put(encoded, SEED)
        writer.flush()

        def decide(refs: Refs) -> Sequence[Event]:
            check_free(refs, terms.name, reuse_name=terms.reuse_name)
            return [seed_event(manifest, digest, encoded, reuse=terms.reuse_name)]

        context.refs.publish(decide)
    tidy_up(context)
    return seed_of(manifest, digest, notices=tuple(taker.notices))
