"""Commands and groups of typer that take text as it was typed.

typer ≥ 0.29 converts every parameter through pydantic, which takes longer to load than most
commands take to run. All parameters here are text or flags, so there is nothing to convert.
"""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class _AsTyped:
    """What typer asks to convert a parameter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ARG002 - typer calls it so
        """Return the value as it is, or as a list where there may be several."""
        return list(value or ()) if param.multiple or param.nargs == -1 else value


def _converter() -> _AsTyped:
    return _AsTyped()


def _as_typed(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        parameter.get_runtime_param = _converter
    return parameters


class Command(TyperCommand):
    """A command whose parameters come as they were typed."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` included."""
        return _as_typed(super().get_params(ctx))


class Group(TyperGroup):
    """A group whose parameters come as they were typed."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` included."""
        return _as_typed(super().get_params(ctx))
