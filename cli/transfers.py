"""`cas push`, `cas pull`, `cas clone`: names and content between two stores."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .output import count, size
from .session import Session, command

if TYPE_CHECKING:
    import cas


app = typer.Typer(rich_markup_mode=None)

CONFLICT = 4
"""Exit code where some names mean something else at the other store, as for a ConflictError."""

Specs = Annotated[
    list[str] | None,
    typer.Argument(metavar="SPEC…", help="Only these; else all names.", show_default=False),
]


@command(app, "push")
def push(
    session: Session,
    other: Annotated[str, typer.Argument(metavar="STORE", help="The store that gets them.")],
    specs: Specs = None,
) -> int:
    """Bring versions, seeds and tags, and what they reach, to another store.

    Only missing objects travel. What was asked for comes whole or not at all; of all names, those
    that mean something else at STORE stay as they are there, and the exit code is 4.
    """
    store = session.store()
    with session.progress() as progress:
        done = store.push(other, specs or (), progress=progress)
    return _report(session, done, done.destination)


@command(app, "pull")
def pull(
    session: Session,
    other: Annotated[str, typer.Argument(metavar="STORE", help="The store that has them.")],
    specs: Specs = None,
    renumber: Annotated[
        bool,
        typer.Option(
            "--renumber", help="Give a version whose number is taken here the next free one."
        ),
    ] = False,
) -> int:
    """Bring versions, seeds and tags, and what they reach, from another store.

    Only missing objects travel, and STORE is only read. What was asked for comes whole or not at
    all; of all names, those that mean something else here stay as they are, and the exit code is 4.
    What both stores name is looked through, and what this one lacks of it is brought.
    """
    store = session.store()
    with session.progress() as progress:
        done = store.pull(other, specs or (), renumber=renumber, progress=progress)
    return _report(session, done, done.destination)


@command(app, "clone")
def clone(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="STORE", help="The store to copy.")],
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The directory to make.")],
) -> None:
    """Make DIR a copy of a store, with all its names and their history, whole or not at all.

    DIR must not exist or be empty. A clone that was cut short goes on when it is run again.
    """
    import cas

    with (
        session.progress() as progress,
        cas.Store.clone(source, directory, progress=progress) as store,
    ):
        versions, seeds = store.versions.list(), store.seeds.list()
        if session.json:
            session.out.document(
                {
                    "root": str(store.root),
                    "id": store.id,
                    "versions": [version.to_json() for version in versions],
                    "seeds": [seed.to_json() for seed in seeds],
                }
            )
        session.say(
            f"{session.out.path(str(store.root))}: {count(len(versions), 'version')} and "
            f"{count(len(seeds), 'seed')}"
        )


def _report(session: Session, done: "cas.Synced", where: object) -> int:
    at = f"means something else at {session.out.path(str(where))}; it stays"
    conflicts = [
        f"{spec} or what it points at {at}" if spec.startswith("tag:") else f"{spec} {at}"
        for spec in done.conflicts
    ]
    session.done(done, *_lines(done), notices=[*conflicts, *done.notices])
    return CONFLICT if done.conflicts else 0


def _lines(done: "cas.Synced") -> Iterator[str]:
    landed = {one.landed: one.spec for one in done.renumbered}
    for spec in done.new:
        yield f"{spec} (there {landed[spec]})" if spec in landed else spec
    yield (
        f"{count(len(done.new), 'new name')}, {len(done.present):,} there already; "
        f"copied {count(done.objects, 'object')}, {size(done.bytes)}"
    )
