"""The commands and the Python of the documentation run as they stand, from top to bottom.

In README.md and docs/*.md a block of `sh` or `python` is run, in order, each page in a directory
of its own; a block of `text` right after one is its output, `...` standing for anything. A block
that must not run here has `<!-- not run: why -->` before it.
"""

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"^(?P<skip><!-- not run: [^\n]*-->\n+)?```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
MARK = "=== end of the example at line"


@dataclass
class Example:
    line: int
    code: str
    expected: str | None = None


def examples(page: Path) -> list[Example]:
    """Return what is to be run, each with the output that the page shows for it."""
    text = page.read_text(encoding="utf-8")
    found: list[Example] = []
    end_of_code = None
    for block in BLOCK.finditer(text):
        language, code = block["language"], block["text"]
        between = text[end_of_code : block.start()] if end_of_code is not None else "-"
        end_of_code = None
        if block["skip"]:
            continue
        if language in ("sh", "python"):
            line = text.count("\n", 0, block.start("text")) + 1
            if language == "python":
                code = f"python - <<'END_OF_PYTHON'\n{code}END_OF_PYTHON\n"
            found.append(Example(line, code))
            end_of_code = block.end()
        elif language == "text" and not between.strip():
            found[-1].expected = code
    return found


@pytest.mark.parametrize(
    "page", [page for page in PAGES if examples(page)], ids=lambda page: page.name
)
def test_the_examples_of_a_page_run_and_print_what_it_shows(page, tmp_path):
    steps = examples(page)
    script = "".join(f"{step.code}\necho '{MARK} {step.line}'\n" for step in steps)
    environment = {name: value for name, value in os.environ.items() if name[:4] != "CAS_"} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TZ": "UTC",
    }
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    printed = re.split(rf"^{MARK} \d+\n", done.stdout, flags=re.MULTILINE)
    failed = steps[min(len(printed), len(steps)) - 1]
    assert done.returncode == 0, f"{page.name}:{failed.line}\n{failed.code}\n{printed[-1]}"
    checker = doctest.OutputChecker()
    for step, output in zip(steps, printed, strict=False):
        if step.expected is not None:
            assert checker.check_output(
                step.expected, output, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            ), f"{page.name}:{step.line}\nexpected\n{step.expected}\nbut it printed\n{output}"


def test_links_between_pages_lead_somewhere():
    pages = [*PAGES, *sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
