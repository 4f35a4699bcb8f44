"""`cas add`, `cas edit`, `cas versions`, `cas remove`, `cas undelete`."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .arguments import pairs
from .output import count, files_and_size, size, table, title, when
from .session import Session, command

if TYPE_CHECKING:
    import cas

Message = Annotated[
    str, typer.Option("--message", "-m", metavar="TEXT", help="Why.", show_default=False)
]
Meta = Annotated[
    list[str] | None,
    typer.Option("--meta", metavar="K=V", help="Any more text by name; may be repeated."),
]
NoIgnore = Annotated[
    bool, typer.Option("--no-ignore", help="Take also what .casignore files leave out.")
]
Source = Annotated[str, typer.Option("--source", metavar="S", help="Who made it.")]
TriggerRun = Annotated[
    str | None, typer.Option("--trigger-run", metavar="ID", help="The run that led to it.")
]
TriggerWorkspace = Annotated[
    str | None,
    typer.Option("--trigger-workspace", metavar="NAME", help="The workspace it was made in."),
]
IfChanged = Annotated[
    bool, typer.Option("--if-changed", help="Make no version if the newest one is equal.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.", show_default=False)]


app = typer.Typer(rich_markup_mode=None)


@command(app, "add")
def add(
    session: Session,
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="Such as skills or questions/generated.")
    ],
    path: Annotated[
        str, typer.Argument(metavar="PATH-or-SPEC", help="A file, a directory, or an older state.")
    ],
    message: Message = "",
    source: Source = "manual",
    parent: Annotated[
        str | None,
        typer.Option("--parent", metavar="SPEC", help="What it came from; else the newest one."),
    ] = None,
    trigger_run: TriggerRun = None,
    trigger_workspace: TriggerWorkspace = None,
    meta: Meta = None,
    if_changed: IfChanged = False,
    no_ignore: NoIgnore = False,
) -> None:
    """Take a file or directory in as the next version of RESOURCE.

    A SPEC makes an older state the newest again. What .casignore files name (in the grammar of
    .gitignore) is left out, and so are stores and the memory of workspaces. ./NAME is a path, even
    where NAME would read as a spec.
    """
    texts = pairs(meta or (), "--meta")
    store = session.store()
    with session.progress() as progress:
        added = store.versions.add(
            resource,
            path,
            source=source,
            parent=parent,
            trigger_run=trigger_run,
            trigger_workspace=trigger_workspace,
            description=message,
            meta=texts,
            if_changed=if_changed,
            ignore=not no_ignore,
            workers=session.workers,
            progress=progress,
        )
    session.done(added, added_line(added), notices=added.notices)


def added_line(added: "cas.Added") -> str:
    """Return the line that says what an add or edit made."""
    content = files_and_size(added.files, added.bytes)
    if added.unchanged:
        return f"{added.spec}: unchanged, {content}; no new version"
    new = f"{size(added.new_bytes)} new, stored in {size(added.stored_bytes)}"
    return f"{added.spec}: {content}; {new if added.new_bytes else 'nothing new to store'}"


@command(app, "edit")
def edit(
    session: Session,
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="The version to start from.")],
    put: Annotated[
        list[str] | None,
        typer.Option("--put", metavar="PATH=FILE", help="Place FILE, or a directory, at PATH."),
    ] = None,
    rm: Annotated[
        list[str] | None, typer.Option("--rm", metavar="PATH", help="Leave PATH out.")
    ] = None,
    message: Message = "",
    source: Source = "manual",
    trigger_run: TriggerRun = None,
    trigger_workspace: TriggerWorkspace = None,
    meta: Meta = None,
    if_changed: IfChanged = False,
) -> None:
    """Make a new version out of SPEC without a checkout.

    --put and --rm may be repeated.
    """
    places = pairs(put or (), "--put")
    if not places and not rm:
        raise typer.BadParameter("nothing to change", param_hint="--put / --rm")
    texts = pairs(meta or (), "--meta")
    store = session.store()
    with session.progress() as progress:
        edited = store.versions.edit(
            spec,
            put=places,
            remove=rm or (),
            description=message,
            source=source,
            trigger_run=trigger_run,
            trigger_workspace=trigger_workspace,
            meta=texts,
            if_changed=if_changed,
            progress=progress,
        )
    session.done(edited, added_line(edited), notices=edited.notices)


@command(app, "versions")
def versions(
    session: Session,
    resource: Annotated[
        str | None, typer.Argument(metavar="RESOURCE", help="Only this one.", show_default=False)
    ] = None,
    removed: Annotated[
        bool, typer.Option("--removed", help="Also those whose name was taken away.")
    ] = False,
) -> None:
    """List the versions, in number order."""
    found = session.store().versions.list(resource, removed=removed)
    session.listing(found, _version_lines)
    if not found:
        session.note("there are no versions yet; `cas add RESOURCE PATH` makes one")


def _version_lines(found: Iterable["cas.Version"]) -> Iterator[str]:
    return table(
        (
            (
                version.spec,
                when(version.created_at),
                count(version.files, "file"),
                size(version.bytes),
                version.source,
                title(version.description) + (" (removed)" if version.removed_at else ""),
            )
            for version in found
        ),
        right=(2, 3),
    )


@command(app, "remove")
def remove(
    session: Session,
    specs: Annotated[
        list[str], typer.Argument(metavar="SPEC…", help="Versions and seeds, such as skills@v3.")
    ],
    reason: Reason = "",
) -> None:
    """Take the names of versions or seeds away.

    Their content stays until a later collection drops it; until then `cas undelete` brings a name
    back. The number of a version is never given again.
    """
    store = session.store()
    taken = [
        store.seeds.remove(spec.removeprefix("seed:"), reason=reason)
        if spec.startswith("seed:")
        else store.versions.remove(spec, reason=reason)
        for spec in specs
    ]
    if session.json:
        session.out.documents(named.to_json() for named in taken)
    for named in taken:
        session.say(f"{named.spec}: removed; `cas undelete {named.spec}` brings it back")


@command(app, "undelete")
def undelete(
    session: Session,
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A removed version or seed.")],
    reason: Reason = "",
) -> None:
    """Bring a removed name back, while its content is there."""
    store = session.store()
    back: cas.Seed | cas.Version
    if spec.startswith("seed:"):
        back = store.seeds.undelete(spec.removeprefix("seed:"), reason=reason)
    else:
        back = store.versions.undelete(spec, reason=reason)
    session.done(back, f"{back.spec}: back, {files_and_size(back.files, back.bytes)}")
