"""What all commands share: four options, before or after the command's name, and one session.

A command is a plain function whose first argument is a `Session`; `command` adds the options. The
package `cas` is imported when a command first needs it and not at the top of these modules, so that
`cas --help` and completion start without the store's dependencies.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import typer

from .arguments import natural
from .output import Item, Output, Render, Shown, standard_error, standard_output
from .plain import Command, Group

if TYPE_CHECKING:
    import cas

Function = TypeVar("Function", bound=Callable[..., int | None])
"""A command: it gets the session first, and what it returns is the exit code; None is 0."""

FINDINGS = 1
"""Exit code of a command that did its work and found what it looks for."""

CLOSED_PIPE = 141
"""Exit code after the reader of our output went away: 128 + SIGPIPE, as a shell reports it."""

COMMON: dict[str, Any] = {
    "store": Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="PATH-or-URL",
            help="The store; else $CAS_STORE, else the nearest one found upward from here.",
            show_default=False,
        ),
    ],
    "json": Annotated[bool, typer.Option("--json", help="Print one JSON document.")],
    "quiet": Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only what was asked for, and errors.")
    ],
    "no_progress": Annotated[
        bool, typer.Option("--no-progress", help="Never draw progress on the terminal.")
    ],
}
"""The options that every command takes, as typer declares them."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options that every command takes."""

    store: str | None = None
    json: bool = False
    quiet: bool = False
    no_progress: bool = False

    def over(self, outer: object) -> "Options":
        """Return these options with what was given before the command's name added."""
        if not isinstance(outer, Options):
            return self
        return Options(
            store=outer.store if self.store is None else self.store,
            json=self.json or outer.json,
            quiet=self.quiet or outer.quiet,
            no_progress=self.no_progress or outer.no_progress,
        )


class Session:
    """One run of a command: its store, its output, its progress.

    Attributes:
        out: Standard output.
        json: Whether the result is wanted as JSON.
    """

    def __init__(self, options: Options) -> None:
        """Open nothing yet."""
        self._options = options
        self._store: cas.Store | None = None
        self.out: Output = standard_output()
        self.json = options.json

    @property
    def store_name(self) -> str | None:
        """The store that was named, by option or environment."""
        return self._options.store or os.environ.get("CAS_STORE") or None

    @property
    def explicit_store_name(self) -> str | None:
        """The store that was named by option."""
        return self._options.store

    @property
    def workers(self) -> int | None:
        """How many worker processes the environment asks for; None leaves it to the library."""
        text = os.environ.get("CAS_WORKERS")
        return natural(text, "CAS_WORKERS") if text else None

    def store(self, near: str | None = None) -> "cas.Store":
        """Open the store, once.

        Args:
            near: A workspace that the command works on: its store is taken where none is named and
                none is found upward from the current directory.
        """
        if self._store is None:
            import cas

            name = self.store_name
            if name is not None:
                self._store = cas.Store.open(name)
            else:
                try:
                    self._store = cas.Store.discover()
                except cas.NotFoundError:
                    if near is None:
                        raise
                    self._store = cas.Store.discover(near)
        return self._store

    def __enter__(self) -> Self:
        """Change nothing: the store is opened when it is first asked for."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close what was opened, and hand all output to the system.

        After Ctrl-C the output stays where it is: whoever should read it may never do so.
        """
        if self._store is not None:
            self._store.close()
        if not isinstance(error, KeyboardInterrupt):
            self.out.flush()

    @contextmanager
    def progress(self) -> Iterator["cas.Progress | None"]:
        """Give a progress function for bulk work, or None where nobody would see it."""
        if self._options.quiet or self._options.no_progress or not standard_error().terminal:
            yield None
            return
        from .progress import Bar

        with Bar() as bar:
            yield bar

    def say(self, text: str) -> None:
        """Print a line that confirms; not for `--json` and `--quiet`."""
        if not self.json and not self._options.quiet:
            self.out.line(text)

    def note(self, text: str) -> None:
        """Print a remark to standard error; in JSON it is part of the document."""
        if not self.json and not self._options.quiet:
            self.out.flush()
            standard_error().line(f"cas: note: {text}")

    def done(self, result: Shown, *lines: str, notices: Iterable[str] = ()) -> None:
        """Report what was done: the JSON of the result, or lines that confirm it."""
        for notice in notices:
            self.note(notice)
        if self.json:
            self.out.document(result.to_json())
        for line in lines:
            self.say(line)

    def listing(self, items: Iterable[Item], render: Render[Item]) -> None:
        """Print a list that was asked for: one JSON list, or the lines that `render` makes."""
        if self.json:
            self.out.documents(item.to_json() for item in items)
        else:
            for line in render(items):
                self.out.line(line)


def command(
    app: typer.Typer, name: str, cls: type[Command] = Command
) -> Callable[[Function], Function]:
    """Register a function as a command of `app`, with the common options after its own."""

    def register(function: Function) -> Function:
        def run(ctx: typer.Context, **given: Any) -> int:
            try:
                with Session(_taken(given).over(ctx.obj)) as session:
                    code = function(session, **given)
            except BrokenPipeError:
                return CLOSED_PIPE
            return code or 0

        own = list(inspect.signature(function).parameters.values())[1:]
        _declare(run, function.__doc__, own)
        app.command(name, cls=cls)(run)
        return function

    return register


def group(
    name: str,
    purpose: str,
    flags: dict[str, Any] | None = None,
    cls: type[Group] = Group,
) -> typer.Typer:
    """Make a group of commands that takes the common options before the command's name.

    Args:
        name: The group's name.
        purpose: Its help.
        flags: Annotations of flags of its own, by name; what they do is up to their callbacks.
        cls: How it finds its commands.
    """
    app = typer.Typer(name=name, help=purpose, rich_markup_mode=None, cls=cls)
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [
        inspect.Parameter(flag, keyword, annotation=annotation, default=False)
        for flag, annotation in (flags or {}).items()
    ]

    def before(ctx: typer.Context, **given: Any) -> None:
        options = _taken(given).over(ctx.obj)
        ctx.obj = options
        if ctx.invoked_subcommand is None:
            if options.json:
                ctx.fail("Missing command.")
            standard_output().line(ctx.get_help())

    _declare(before, purpose, own)
    app.callback(invoke_without_command=True)(before)
    return app


def _taken(given: dict[str, Any]) -> Options:
    """Take the common options out of what typer parsed."""
    return Options(**{name: given.pop(name) for name in COMMON})


def _declare(
    target: Callable[..., Any], description: str | None, own: Iterable[inspect.Parameter]
) -> None:
    """Give a function the signature that typer shall see."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("ctx", keyword, annotation=typer.Context),
        *(parameter.replace(kind=keyword) for parameter in own),
        *(
            inspect.Parameter(
                name, keyword, annotation=annotation, default=None if name == "store" else False
            )
            for name, annotation in COMMON.items()
        ),
    ]
    target.__doc__ = description
    target.__annotations__ = {item.name: item.annotation for item in parameters}
    target.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
