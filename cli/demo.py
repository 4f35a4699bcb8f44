"""`cas demo`."""

import typer

from .session import Session, command

app = typer.Typer(rich_markup_mode=None)


@command(app, "demo")
def demo(session: Session) -> None:
    """Show the main job on data that it makes, step by step."""
