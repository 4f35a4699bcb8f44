"""docs/cli.md is what the commands themselves say."""

from pathlib import Path

from cas_cli.app import COMMANDS
from cas_cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_generated_from_the_commands():
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "run `python -m cas_cli.reference > docs/cli.md`"
    )


def test_every_command_is_on_the_page():
    headings = [line.split() for line in reference().splitlines() if line.startswith("## cas ")]
    assert list(dict.fromkeys(words[2] for words in headings)) == list(COMMANDS)
