"""The whole command line: which command lives in which module."""

from importlib import import_module
from typing import Annotated, Any

import typer

from .output import standard_output
from .plain import Group
from .session import group

COMMANDS = {
    "init": "stores",
    "add": "versions",
    "versions": "versions",
    "show": "looking",
    "ls": "looking",
    "cat": "looking",
    "diff": "diffs",
    "edit": "versions",
    "log": "looking",
    "seed": "seeds",
    "remove": "versions",
    "undelete": "versions",
    "checkout": "workspaces",
    "workspace": "workspaces",
    "status": "workspaces",
    "verify": "checks",
    "tag": "tags",
    "stats": "stores",
    "gc": "cleaning",
    "purge": "cleaning",
    "repack": "cleaning",
    "repair": "repairs",
    "push": "transfers",
    "pull": "transfers",
    "clone": "transfers",
    "import": "layouts",
    "export": "layouts",
    "learn": "learn",
    "demo": "demo",
}
"""Every command and the module of this package that holds it, in the order of `cas --help`."""


class LazyGroup(Group):
    """The commands of this table, each module imported when one of its commands is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer calls it so
        """Return the names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None; then all are loaded, for typer to suggest one from."""
        if cmd_name not in COMMANDS:
            for name in COMMANDS:
                self.get_command(ctx, name)
            return None
        if cmd_name not in self.commands:
            module = import_module(f".{COMMANDS[cmd_name]}", __package__)
            loaded = typer.main.get_group(module.app)
            self.commands.update(loaded.commands)
        return self.commands[cmd_name]


def _print_version(wanted: bool) -> None:
    if wanted:
        from cas import __version__

        standard_output().line(f"cas {__version__}")
        raise typer.Exit


app = group(
    "cas",
    "A content-addressed store for the files, versions and seeds of experiments.",
    {
        "version": Annotated[
            bool,
            typer.Option(
                "--version", help="Print the version.", callback=_print_version, is_eager=True
            ),
        ]
    },
    cls=LazyGroup,
)


def root() -> Any:
    """Build the click command that runs the whole command line."""
    return typer.main.get_command(app)
