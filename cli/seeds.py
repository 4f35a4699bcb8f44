"""`cas seed …`: frozen states of skills, prompts and the baseline that earned them."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .arguments import pairs
from .looking import show as show_spec
from .output import count, files_and_size, size, table, title, when
from .session import Session, command, group
from .versions import Message, Meta, NoIgnore, Reason

if TYPE_CHECKING:
    import cas

Name = Annotated[str, typer.Argument(metavar="NAME", help="The seed's name.")]
ReuseName = Annotated[bool, typer.Option("--reuse-name", help="Take the name of a removed seed.")]


app = typer.Typer(rich_markup_mode=None)
_seeds = group("seed", "Freeze good states: skills, prompts and the baseline that earned them.")
app.add_typer(_seeds)


@command(_seeds, "create")
def create(
    session: Session,
    name: Name,
    skills: Annotated[str, typer.Option("--skills", metavar="SPEC-or-DIR", help="The skills.")],
    prompts: Annotated[str, typer.Option("--prompts", metavar="SPEC-or-DIR", help="The prompts.")],
    baseline: Annotated[
        str, typer.Option("--baseline", metavar="DB", help="The SQLite database of the run.")
    ],
    run: Annotated[str, typer.Option("--run", metavar="RUN_ID", help="The run that DB must hold.")],
    part: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="NAME=SPEC-or-PATH", help="One more part; may be repeated."),
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="TEXT-or-SPEC", help="What it came from.")
    ] = None,
    message: Message = "",
    meta: Meta = None,
    reuse_name: ReuseName = False,
    no_ignore: NoIgnore = False,
) -> None:
    """Freeze skills, prompts and a baseline database as the seed NAME."""
    parts, texts = pairs(part or (), "--part"), pairs(meta or (), "--meta")
    store = session.store()
    with session.progress() as progress:
        seed = store.seeds.create(
            name,
            skills=skills,
            prompts=prompts,
            baseline=baseline,
            baseline_run_id=run,
            parts=parts,
            parent=parent,
            description=message,
            meta=texts,
            reuse_name=reuse_name,
            ignore=not no_ignore,
            workers=session.workers,
            progress=progress,
        )
    session.done(seed, _seed_line(seed), notices=seed.notices)


@command(_seeds, "promote")
def promote(
    session: Session,
    workspace: Annotated[str, typer.Argument(metavar="WORKSPACE", help="Its directory.")],
    version: Annotated[
        str, typer.Option("--version", metavar="vN", help="The skills that the run must carry.")
    ],
    run: Annotated[
        str, typer.Option("--run", metavar="RUN_ID", help="The eval run in its harness.db.")
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The new seed's name.")],
    message: Message = "",
    meta: Meta = None,
    force: Annotated[
        bool, typer.Option("--force", help="Take a run that is not finished as well.")
    ] = False,
    reuse_name: ReuseName = False,
) -> None:
    """Freeze what a workspace has become as a seed, if an eval run has earned it."""
    texts = pairs(meta or (), "--meta")
    store = session.store(near=workspace)
    with session.progress() as progress:
        seed = store.seeds.promote(
            workspace,
            version=version,
            eval_run_id=run,
            name=name,
            description=message,
            meta=texts,
            force=force,
            reuse_name=reuse_name,
            workers=session.workers,
            progress=progress,
        )
    session.done(seed, _seed_line(seed), notices=seed.notices)


def _seed_line(seed: "cas.Seed") -> str:
    parts = ", ".join(
        f"{name} {part.label}" if part.label else name for name, part in seed.parts.items()
    )
    return f"{seed.spec}: {parts}; {files_and_size(seed.files, seed.bytes)}"


@command(_seeds, "list")
def list_(
    session: Session,
    removed: Annotated[
        bool, typer.Option("--removed", help="Also those whose name was taken away.")
    ] = False,
) -> None:
    """List the seeds, sorted by name."""
    found = session.store().seeds.list(removed=removed)
    session.listing(found, _seed_lines)
    if not found:
        session.note("there are no seeds yet; `cas seed create` makes one")


def _seed_lines(found: Iterable["cas.Seed"]) -> Iterator[str]:
    return table(
        (
            (
                seed.spec,
                when(seed.created_at),
                count(seed.files, "file"),
                size(seed.bytes),
                seed.baseline_run_id,
                seed.parent or "",
                title(seed.description) + (" (removed)" if seed.removed_at else ""),
            )
            for seed in found
        ),
        right=(2, 3),
    )


@command(_seeds, "show")
def show(session: Session, name: Name) -> None:
    """Show a seed: its parts, its baseline run, what it came from."""
    show_spec(session, f"seed:{name.removeprefix('seed:')}")


@command(_seeds, "remove")
def remove(session: Session, name: Name, reason: Reason = "") -> None:
    """Take a seed's name away; `cas undelete` brings it back while its content is there."""
    seed = session.store().seeds.remove(name.removeprefix("seed:"), reason=reason)
    session.done(seed, f"{seed.spec}: removed; `cas undelete {seed.spec}` brings it back")
