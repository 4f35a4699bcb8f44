"""`cas learn perf …`: how the skills behind the candidates do."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import count_from_zero, share
from .output import count, table, visible
from .session import Session, command, group

if TYPE_CHECKING:
    import cas

_BAR = 20
"""Characters of a bar that is full."""

app = typer.Typer(rich_markup_mode=None)
_perf = group("perf", "How often each version of a skill was used, and how often with success.")
app.add_typer(_perf)


@command(_perf, "set")
def set_(
    session: Session,
    skill: Annotated[str, typer.Argument(metavar="SKILL", help="The skill.")],
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Its version.")],
    activations: Annotated[
        str, typer.Option("--activations", metavar="N", help="How often it was used.")
    ],
    successes: Annotated[
        str, typer.Option("--successes", metavar="N", help="How often with success.")
    ],
) -> None:
    """Say how a version of a skill does, in place of what was said before."""
    from cas import PerformanceSnapshot

    snapshot = session.store().learning.set_performance(
        PerformanceSnapshot(
            skill_name=skill,
            version=version,
            activations=count_from_zero(activations, "--activations"),
            successes=count_from_zero(successes, "--successes"),
        )
    )
    if session.json:
        session.out.document(_told(snapshot))
    session.say(f"{visible(skill)} {visible(version)}: {snapshot.success_ratio:.0%} successes")


@command(_perf, "list")
def list_(session: Session) -> None:
    """List how the skills do."""
    _show(session, session.store().learning.performance())


@command(_perf, "low")
def low(
    session: Session,
    minimum: Annotated[
        str, typer.Option("--min", metavar="N", help="Used at least so often.")
    ] = "2",
    ratio: Annotated[
        str, typer.Option("--ratio", metavar="R", help="With fewer successes than this share.")
    ] = "0.5",
) -> None:
    """List what was used often enough and did too badly, worst first."""
    found = session.store().learning.low_performing(
        count_from_zero(minimum, "--min"), share(ratio, "--ratio")
    )
    _show(session, found)


def _show(session: Session, found: Iterable["cas.PerformanceSnapshot"]) -> None:
    if session.json:
        session.out.documents(map(_told, found))
        return
    for line in _lines(found, bars=session.out.terminal):
        session.out.line(line)


def _told(snapshot: "cas.PerformanceSnapshot") -> dict[str, Any]:
    return {**snapshot.to_dict(), "success_ratio": snapshot.success_ratio}


def _lines(found: Iterable["cas.PerformanceSnapshot"], *, bars: bool) -> Iterator[str]:
    return table(
        (
            (
                visible(snapshot.skill_name),
                visible(snapshot.version),
                count(snapshot.activations, "use"),
                f"{snapshot.success_ratio:.0%}",
                _bar(snapshot.success_ratio) if bars else "",
            )
            for snapshot in found
        ),
        right=(2, 3),
    )


def _bar(ratio: float) -> str:
    full = round(ratio * _BAR)
    return "█" * full + "░" * (_BAR - full)
