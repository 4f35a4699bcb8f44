"""What a verification found, in words."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .output import Output, count, short, size, visible

if TYPE_CHECKING:
    import cas


def report_lines(report: "cas.VerifyReport", out: Output) -> Iterator[str]:
    """Give the lines that say what a verification found."""
    for problem in report.problems:
        what = short(problem.digest) if problem.digest is not None else "-"
        detail = f"  {visible(problem.detail)}" if problem.detail else ""
        kind = out.paint(f"{problem.kind:12}", "red")
        yield f"{kind}  {what:12}  {out.path(problem.location)}{detail}"
        for spec in problem.affects:
            yield f"              hits {out.path(spec)}"
    for told in report.purged:
        yield f"{'purged':12}  {visible(told)}"


def verdict(report: "cas.VerifyReport") -> str:
    """Return the line that sums a verification up."""
    looked = f"{count(report.objects, 'object')}, {size(report.bytes)}"
    if report.quick:
        extent = "structure and sizes only: contents were not read"
    elif report.coverage >= 1.0:
        extent = "all read and hashed"
    else:
        extent = f"{size(report.checked_bytes)} read and hashed ({report.coverage:.1%})"
    verdict = "ok" if report.ok else f"damaged: {count(len(report.problems), 'problem')}"
    return f"{verdict}; {looked}; {extent}"
