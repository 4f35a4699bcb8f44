"""`cas learn …`: candidates for changes of skills."""

import typer

from . import learn_drafts
from .session import group

app = typer.Typer(rich_markup_mode=None)
_learn = group("learn", "Candidates for changes of skills: recorded, claimed, drafted, published.")
_learn.add_typer(learn_drafts.app)
app.add_typer(_learn)
