"""`cas init`, `cas stats`: a store as a whole."""

from typing import TYPE_CHECKING, Annotated

import typer

from .output import count, files_and_size, size, table
from .session import Session, command

if TYPE_CHECKING:
    from collections.abc import Iterator

    import cas


app = typer.Typer(rich_markup_mode=None)


@command(app, "init")
def init(
    session: Session,
    directory: Annotated[
        str | None, typer.Argument(metavar="DIR", help="The new store.", show_default=False)
    ] = None,
    videos: Annotated[
        str | None, typer.Option("--videos", metavar="DIR", help="Take DIR in as videos@v1.")
    ] = None,
    skills: Annotated[
        str | None, typer.Option("--skills", metavar="DIR", help="Take DIR in as skills@v1.")
    ] = None,
    prompts: Annotated[
        str | None, typer.Option("--prompts", metavar="DIR", help="Take DIR in as prompts@v1.")
    ] = None,
    shared: Annotated[
        str | None,
        typer.Option(
            "--shared", metavar="GROUP", help="Let the members of GROUP use it, whatever the umask."
        ),
    ] = None,
) -> None:
    """Make DIR, by default ./.cas, a store.

    With --videos, --skills or --prompts the store begins with these as version 1, or is not made at
    all.
    """
    import cas

    if directory == "":
        raise typer.BadParameter("a directory has a name", param_hint="DIR")
    if directory is not None and session.explicit_store_name not in (None, directory):
        raise typer.BadParameter("name the new store once", param_hint="DIR / --store")
    with (
        session.progress() as progress,
        cas.Store.init(
            directory or session.store_name or ".cas",
            shared=shared,
            videos=videos,
            skills=skills,
            prompts=prompts,
            progress=progress,
        ) as store,
    ):
        versions = store.versions.list()
        if session.json:
            session.out.document(
                {
                    "root": str(store.root),
                    "id": store.id,
                    "versions": [version.to_json() for version in versions],
                }
            )
        session.say(f"made the store {session.out.path(str(store.root))}")
        for version in versions:
            session.say(f"{version.spec}: {files_and_size(version.files, version.bytes)}")


@command(app, "stats")
def stats(session: Session) -> None:
    """Count objects and bytes, and what dedup and compression saved."""
    found = session.store().stats()
    if session.json:
        session.out.document(found.to_json())
    else:
        for line in _stats_lines(found):
            session.out.line(line)


def _stats_lines(found: "cas.Stats") -> "Iterator[str]":
    yield from table(
        [
            ("objects", f"{found.objects:,}", f"in {count(found.files_on_disk, 'file')} on disk"),
            ("as plain copies", size(found.logical_bytes), ""),
            ("equal files once", size(found.unique_bytes), f"{found.dedup_ratio:.2f} times less"),
            ("stored", size(found.stored_bytes), f"{found.compression_ratio:.2f} times less"),
        ],
        right=(1,),
    )
    if found.resources:
        yield ""
        yield from table(
            [
                ("resource", "names", "files", "as copies", "once"),
                *(
                    (
                        resource.name,
                        f"{resource.versions:,}",
                        f"{resource.files:,}",
                        size(resource.logical_bytes),
                        size(resource.unique_bytes),
                    )
                    for resource in found.resources
                ),
            ],
            right=(1, 2, 3, 4),
        )
