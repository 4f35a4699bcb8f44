"""`cas learn report …`: what was found out about a draft."""

import json
from typing import Annotated, Any

import typer

from .arguments import one_of
from .inputs import opened, parsed
from .output import table, visible, when
from .session import Session, command, group

What = Annotated[str, typer.Argument(metavar="safety|eval", help="Which kind of report.")]
Skill = Annotated[str, typer.Argument(metavar="SKILL", help="The skill that the draft is of.")]
Draft = Annotated[str, typer.Argument(metavar="DRAFT", help="The draft.")]

_KINDS = ("safety", "eval")

app = typer.Typer(rich_markup_mode=None)
_reports = group("report", "Safety and eval reports on drafts.")
app.add_typer(_reports)


@command(_reports, "add")
def add(
    session: Session,
    what: What,
    skill: Skill,
    draft: Draft,
    report_id: Annotated[str, typer.Argument(metavar="REPORT_ID", help="The report's name.")],
    source: Annotated[str, typer.Argument(metavar="FILE-or-", help="A JSON document; - is stdin.")],
) -> None:
    """Add a report. The same once more is no conflict, another one of the same name is."""
    from cas import EvalReport, SafetyReport

    learning = session.store().learning
    one_of(what, _KINDS, "safety|eval")
    content = _read(source)
    if what == "safety":
        added: Any = learning.add_safety_report(SafetyReport(skill, draft, report_id, content))
    else:
        added = learning.add_eval_report(EvalReport(skill, draft, report_id, content))
    if session.json:
        session.out.document(added.to_dict())
    session.say(f"{what} report {visible(report_id)} on {visible(skill)} {visible(draft)}: added")


def _read(source: str) -> Any:
    from cas import RefusedError

    with opened(source) as (file, name):
        try:
            return parsed(file.read())
        except ValueError as error:
            raise RefusedError(f"{name} is no JSON document: {error}") from None


@command(_reports, "show")
def show(
    session: Session,
    what: What,
    skill: Skill,
    draft: Draft,
    report_id: Annotated[
        str | None,
        typer.Argument(metavar="REPORT_ID", help="By default the last.", show_default=False),
    ] = None,
) -> None:
    """Print a report, by default the one that was added last."""
    one_of(what, _KINDS, "safety|eval")
    learning = session.store().learning
    get: Any = learning.safety_report if what == "safety" else learning.eval_report
    report = get(skill, draft, report_id)
    if session.json:
        session.out.document(report.to_dict())
    else:
        session.out.line(json.dumps(report.content, indent=2))


@command(_reports, "list")
def list_(session: Session, what: What, skill: Skill, draft: Draft) -> None:
    """List the reports on a draft, in the order in which they were added."""
    one_of(what, _KINDS, "safety|eval")
    learning = session.store().learning
    found: list[Any] = (
        learning.safety_reports(skill, draft)
        if what == "safety"
        else learning.eval_reports(skill, draft)
    )
    if session.json:
        session.out.documents(report.to_dict() for report in found)
        return
    for line in table((visible(report.report_id), when(report.recorded_at)) for report in found):
        session.out.line(line)
