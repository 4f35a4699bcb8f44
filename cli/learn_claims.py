"""`cas learn claim`, `renew`, `release`: one worker at a time has a candidate."""

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import duration, natural, wrong
from .learn_drafts import Id
from .output import visible, when
from .plain import Command
from .session import Session, command

if TYPE_CHECKING:
    import cas

Lease = Annotated[
    str, typer.Option("--lease", metavar="TIME", help="How long, by the store's clock.")
]
HeldToken = Annotated[str, typer.Option("--token", metavar="T", help="That of the claim.")]

app = typer.Typer(rich_markup_mode=None)


class _WithCommand(Command):
    """A command whose last option, --exec, takes all that follows it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Make one word of what follows --exec."""
        if "--exec" in args:
            at = args.index("--exec") + 1
            args = [*args[:at], shlex.join(args[at:])]
        return super().parse_args(ctx, args)


@command(app, "claim", cls=_WithCommand)
def claim(
    session: Session,
    owner: Annotated[str, typer.Option("--owner", metavar="NAME", help="Who claims it.")],
    candidate_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="The candidate.", show_default=False)
    ] = None,
    next_: Annotated[
        bool, typer.Option("--next", help="The oldest open one in place of ID.")
    ] = False,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="K", help="With --next: only of this kind.")
    ] = None,
    lease: Lease = "15m",
    force: Annotated[
        bool, typer.Option("--force", help="Also where another holds it or it has a draft.")
    ] = False,
    run: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="COMMAND…",
            help="Run what follows with the candidate on its input, renewing while it runs; "
            "release if it fails.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Claim a candidate for a worker, until the lease ends or is renewed.

    With --exec, which comes last, COMMAND gets the candidate as JSON on its standard input, and
    CAS_STORE, CAS_CANDIDATE_ID, CAS_CLAIM_TOKEN and CAS_CLAIM_OWNER in its environment. It moves
    the candidate on with `cas learn transition --token`; what it leaves claimed is released.
    """
    from cas import NotFoundError

    if (candidate_id is None) != next_:
        raise wrong("--next", "name one candidate, or --next for the oldest open one")
    if not next_ and kind is not None:
        raise wrong("--kind", "it chooses among candidates, so it needs --next")
    if next_ and force:
        raise wrong("--force", "the next one is free; name the candidate to take it by force")
    words = None if run is None else shlex.split(run)
    if words == []:
        raise wrong("--exec", "name the command to run")
    seconds = duration(lease, "--lease")
    learning = session.store().learning
    if candidate_id is None:
        found = learning.claim_next(owner, seconds, kind=kind)
        if found is None:
            what = "candidate" if kind is None else f"{kind} candidate"
            raise NotFoundError(f"there is no open {what} to claim; record one, or wait for one")
        claimed = found
    else:
        claimed = learning.claim(candidate_id, owner, seconds, force=force)
    if words is not None:
        from .learn_exec import Work

        return Work(session, claimed, seconds).run(words)
    _tell(session, claimed)
    return 0


@command(app, "renew")
def renew(session: Session, candidate_id: Id, token: HeldToken, lease: Lease = "15m") -> None:
    """Hold a claim for longer, from now on."""
    number, seconds = natural(token, "--token"), duration(lease, "--lease")
    _tell(session, session.store().learning.renew(candidate_id, number, seconds))


@command(app, "release")
def release(session: Session, candidate_id: Id, token: HeldToken) -> None:
    """Give a claimed candidate back, for others to claim."""
    learning = session.store().learning
    learning.release(candidate_id, natural(token, "--token"))
    candidate = learning.get(candidate_id)
    if session.json:
        session.out.document(candidate.to_dict())
    session.say(f"{visible(candidate_id)}: released, {candidate.status}")


def _tell(session: Session, claimed: "cas.Claim") -> None:
    if session.json:
        session.out.document(claimed.to_dict())
    name = visible(claimed.candidate.candidate_id)
    session.say(f"{name}: yours until {when(claimed.expires_at)}, token {claimed.token}")
