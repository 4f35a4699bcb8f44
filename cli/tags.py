"""`cas tag …`: names that move, with every move kept."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .output import short, table, title, visible, when
from .session import Session, command, group
from .versions import Reason

if TYPE_CHECKING:
    import cas

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tag.")]
By = Annotated[
    str | None, typer.Option("--by", metavar="WHO", help="Who decided; else who runs this.")
]


app = typer.Typer(rich_markup_mode=None)
_tags = group("tag", "Movable names: which state is live, since when, who approved.")
app.add_typer(_tags)


@command(_tags, "set")
def set_(
    session: Session,
    name: Name,
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="What it shall name.")],
    reason: Reason = "",
    by: By = None,
) -> None:
    """Point the tag NAME at what SPEC names now."""
    tag = session.store().tags.set(name, spec, reason=reason, by=by)
    session.done(tag, f"{tag.spec} -> {tag.target}")


@command(_tags, "list")
def list_(session: Session) -> None:
    """List the tags and where they point."""
    found = session.store().tags.list()
    session.listing(found, _tag_lines)
    if not found:
        session.note("there are no tags yet; `cas tag set NAME SPEC` makes one")


def _tag_lines(found: Iterable["cas.Tag"]) -> Iterator[str]:
    return table(
        (tag.spec, tag.target, short(tag.digest), when(tag.at), visible(tag.by), title(tag.reason))
        for tag in found
    )


@command(_tags, "remove")
def remove(session: Session, name: Name, reason: Reason = "", by: By = None) -> None:
    """Remove a tag; its history stays."""
    tag = session.store().tags.remove(name, reason=reason, by=by)
    session.done(tag, f"{tag.spec}: removed; it named {tag.target}")


@command(_tags, "history")
def history(session: Session, name: Name) -> None:
    """Show every move of a tag, oldest first, also of a removed one."""
    session.listing(session.store().tags.history(name), _move_lines)


def _move_lines(moves: Iterable["cas.TagMove"]) -> Iterator[str]:
    return table(
        (
            when(move.at),
            "removed" if move.removed else f"-> {move.target}",
            "" if move.digest is None else short(move.digest),
            visible(move.by),
            title(move.reason),
        )
        for move in moves
    )
