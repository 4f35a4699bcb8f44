"""Errors → one line, or one JSON document, on standard error; and the exit code."""

import json
import os
from typing import Any

import typer

from .output import standard_error, visible

EXIT_CODES = {
    0: "fine",
    1: "findings: `verify` found damage, `diff --exit-code` found differences",
    2: "usage: a command, an option or an argument that does not exist or does not read",
    3: "not found",
    4: "conflict: exists already, claimed by another, not empty",
    5: "damaged store",
    6: "refused input",
    7: "busy: a lock was not had in time",
    8: "environment: disk full, permission, network",
    70: "a bug in cas; nothing that is named in the store is harmed",
    130: "interrupted with Ctrl-C",
    141: "the reader of the output went away",
}
"""Every exit code and what it says; those of errors stand on the classes in `cas.errors`."""

USAGE, ENVIRONMENT, BUG, INTERRUPTED = 2, 8, 70, 130


def report(error: BaseException, arguments: list[str]) -> int:
    """Say what went wrong and return the exit code.

    Args:
        error: What a command raised.
        arguments: The command line, to see whether errors are wanted as JSON.

    Raises:
        BaseException: The error itself, if it is one that only asks the interpreter to exit, or if
            `CAS_DEBUG` is set and it is a bug.
    """
    if isinstance(error, typer.Abort):
        return INTERRUPTED
    if isinstance(error, typer.TyperException):
        return _say(USAGE, "usage", _usage(error), {}, arguments)
    from cas import CasError

    if isinstance(error, CasError):
        return _say(error.exit_code, error.code, str(error), error.facts, arguments)
    if isinstance(error, OSError):
        return _say(ENVIRONMENT, "environment", _system(error), {"errno": error.errno}, arguments)
    if not isinstance(error, Exception) or os.environ.get("CAS_DEBUG"):
        raise error
    kind = type(error).__name__
    message = f"this is a bug in cas: {kind}: {error}; CAS_DEBUG=1 shows where"
    return _say(BUG, "bug", message, {"type": kind}, arguments)


def _usage(error: typer.TyperException) -> str:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "cas"
    return f"{message.strip().rstrip('.')}; see '{where} --help'"


def _system(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    where = error.filename
    return reason if where is None else f"{os.fsdecode(where)}: {reason}"


def _say(code: int, name: str, message: str, facts: dict[str, Any], arguments: list[str]) -> int:
    stream = standard_error()
    try:
        if wants_json(arguments):
            error = {**facts, "code": name, "message": message}
            stream.line(json.dumps({"error": error}, default=str))
        else:
            stream.line(f"cas: {visible(message)}")
        stream.flush()
    except OSError:
        pass  # nobody reads it; the exit code still tells
    return code


def wants_json(arguments: list[str]) -> bool:
    """Tell whether `--json` is among the options, also where the rest does not parse."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options
