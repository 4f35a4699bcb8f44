"""`cas learn draft`, `cas learn diff`, `cas learn publish`: skills behind the candidates."""

from typing import Annotated

import typer

from .arguments import natural
from .diffs import ExitCode, Stat, show_diff, show_text
from .output import visible
from .session import FINDINGS, Session, command
from .versions import Message, NoIgnore

Id = Annotated[str, typer.Argument(metavar="ID", help="The candidate.")]
Token = Annotated[
    str | None, typer.Option("--token", metavar="T", help="The claim that it is done under.")
]
Actor = Annotated[
    str | None, typer.Option("--actor", metavar="NAME", help="Who does it; else who runs this.")
]

app = typer.Typer(rich_markup_mode=None)


@command(app, "draft")
def draft(
    session: Session,
    candidate_id: Id,
    source: Annotated[
        str,
        typer.Argument(metavar="DIR", help="The skill as it shall be: a directory, file or SPEC."),
    ],
    status: Annotated[
        str, typer.Option("--status", metavar="S", help="What the candidate becomes.")
    ] = "draft_ready",
    token: Token = None,
    actor: Actor = None,
    no_ignore: NoIgnore = False,
) -> None:
    """Give a candidate its draft: what its base, a skill such as skills@v3:NAME, is to become.

    A draft that the candidate had before is replaced.
    """
    learning = session.store().learning
    with session.progress() as progress:
        candidate = learning.draft(
            candidate_id,
            source,
            status=status,
            token=_number(token),
            actor=actor,
            ignore=not no_ignore,
            workers=session.workers,
            progress=progress,
        )
    if session.json:
        session.out.document(candidate.to_dict())
    session.say(f"{visible(candidate_id)}: draft {candidate.draft_id}, {candidate.status}")


@command(app, "diff")
def diff(
    session: Session,
    candidate_id: Id,
    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", help="Compare this one file as text.", show_default=False),
    ] = None,
    stat: Stat = False,
    exit_code: ExitCode = False,
) -> int:
    """Show what a candidate's draft changes of its base.

    With PATH, or where the skill is one file, the two files are compared as text.
    """
    learning = session.store().learning
    if path is None and learning.drafted(candidate_id).kind == "tree":
        differs = show_diff(session, learning.diff(candidate_id), stat=stat)
    else:
        differs = show_text(session, learning.diff_text(candidate_id, path or ""))
    return FINDINGS if exit_code and differs else 0


@command(app, "publish")
def publish(
    session: Session,
    candidate_id: Id,
    message: Message = "",
    token: Token = None,
    actor: Actor = None,
) -> None:
    """Make the next version of the resource, with the candidate's skill replaced by its draft.

    What others changed meanwhile stays; that they changed the same skill is a conflict. Published
    twice, it gives the same version.
    """
    learning = session.store().learning
    published = learning.publish(candidate_id, message, token=_number(token), actor=actor)
    done = "published already as" if published.unchanged else "published as"
    spec = published.version.spec
    gone = published.version.removed_at is not None
    hint = [f"{spec} was removed since; cas undelete {spec} brings it back"] if gone else []
    session.done(published, f"{visible(candidate_id)}: {done} {spec}", notices=hint)


def _number(token: str | None) -> int | None:
    return None if token is None else natural(token, "--token")
