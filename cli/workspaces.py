"""`cas checkout`, `cas status`, `cas workspace …`: directories that a checkout made."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .arguments import one_of
from .output import files_and_size, table, when
from .session import Session, command, group

if TYPE_CHECKING:
    import cas

_MODES = ("auto", "reflink", "hardlink", "copy")


app = typer.Typer(rich_markup_mode=None)
_workspaces = group("workspace", "The workspaces that the store remembers.")
app.add_typer(_workspaces)


@command(app, "checkout")
def checkout(
    session: Session,
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="What to write.")],
    destination: Annotated[str, typer.Argument(metavar="DEST", help="The directory to make.")],
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="auto|reflink|hardlink|copy",
            help="auto is reflink where the filesystem can, else copy; files of hardlink are "
            "read-only.",
        ),
    ] = "auto",
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="GLOB", help="Write matching paths only; may be repeated."),
    ] = None,
    update: Annotated[
        bool,
        typer.Option("--update", help="Move a workspace to SPEC; what you changed in it stays."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a workspace that nobody changed.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read back and hash every file written.")
    ] = False,
    no_sync: Annotated[
        bool, typer.Option("--no-sync", help="Do not wait until it is safe from a power cut.")
    ] = False,
) -> None:
    """Write SPEC into DEST, whole or not at all."""
    one_of(mode, _MODES, "--mode")
    store = session.store(near=destination if update else None)
    with session.progress() as progress:
        made = store.checkout(
            spec,
            destination,
            mode=mode,
            only=tuple(only or ()),
            update=update,
            force=force,
            verify=verify,
            sync=not no_sync,
            workers=session.workers,
            progress=progress,
        )
    where = session.out.path(str(made.dest))
    session.done(
        made,
        f"{where}: {made.spec}, {files_and_size(made.files, made.bytes)} ({made.mode})",
        notices=made.notices,
    )
    for path in made.kept:
        session.say(f"kept      {session.out.path(path)}")


@command(app, "status")
def status(
    session: Session,
    workspace: Annotated[
        str, typer.Argument(metavar="WORKSPACE", help="Its directory.", show_default=False)
    ] = ".",
) -> None:
    """Show what was added, changed and deleted since the checkout."""
    import cas

    found = cas.status(workspace)
    if session.json:
        session.out.document(found.to_json())
        return
    for word, colour, paths in (
        ("added", "green", found.added),
        ("changed", "yellow", found.changed),
        ("deleted", "red", found.deleted),
    ):
        for path in paths:
            session.out.line(
                f"{session.out.paint(word.ljust(8), colour)}  {session.out.path(path)}"
            )
    if found.interrupted is not None:
        session.note(
            f"an update to {found.interrupted} was cut short; `cas checkout --update` finishes it"
        )
    if found.clean:
        session.say("clean: nothing was added, changed or deleted")


@command(_workspaces, "list")
def list_(session: Session) -> None:
    """List the workspaces that the store keeps content for."""
    found = session.store().workspaces.list()

    def lines(workspaces: Iterable["cas.Workspace"]) -> Iterator[str]:
        return table(
            (
                workspace.spec,
                when(workspace.created_at),
                workspace.state,
                session.out.path(str(workspace.path)),
            )
            for workspace in workspaces
        )

    session.listing(found, lines)
    if not found:
        session.note("no workspace is remembered; `cas checkout SPEC DEST` makes one")


@command(_workspaces, "forget")
def forget(
    session: Session,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The workspace.")],
) -> None:
    """Forget a workspace, so that the store need not keep its content; DIR is not touched."""
    forgotten = session.store(near=directory).workspaces.forget(directory)
    session.done(forgotten, f"{session.out.path(str(forgotten.path))}: forgotten")
