"""`python -m cas_cli` is `cas`."""

from .main import run

run()
