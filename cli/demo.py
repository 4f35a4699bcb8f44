"""`cas demo`: the main job, step by step, on data that it makes."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from .session import Session, command

app = typer.Typer(rich_markup_mode=None)


@command(app, "demo")
def demo(
    session: Session,
    directory: Annotated[
        str | None,
        typer.Argument(metavar="DIR", help="Keep everything in DIR.", show_default=False),
    ] = None,
) -> int:
    """Show the main job on data that it makes, ending in a verified copy.

    Each step shows the command that does the same. With DIR, which must be new or empty, all of it
    stays there to look at; else it is made in a temporary directory and removed at the end.
    """
    # Late, like the library: `cas --help` loads this module.
    import cas

    from .demo_steps import run

    if directory is None:
        with tempfile.TemporaryDirectory(prefix="cas-demo-") as temporary:
            return run(session, Path(temporary), kept=False)
    place = Path(directory)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise cas.ConflictError(f"{directory} is not an empty directory; name a new one")
    place.mkdir(parents=True, exist_ok=True)
    return run(session, place, kept=True)
