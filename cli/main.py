"""The entry point `cas`: runs one command and turns whatever it raises into an exit code."""

import os
import sys
from typing import NoReturn, TextIO

INTERRUPTED = 130


def run() -> NoReturn:
    """Run the command line of this process and exit.

    At once: whatever a command opens is closed when it returns, and to take the interpreter apart
    would take longer than many a command.
    """
    os._exit(_flushed(main(sys.argv[1:])))


def main(arguments: list[str]) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: What was typed after `cas`.
    """
    try:
        # Imported here so that Ctrl-C while modules load is as quiet as later.
        from .app import root
        from .failures import report

        try:
            code = root().main(args=arguments, prog_name="cas", standalone_mode=False)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the last place where anything can be said
            code = report(error, arguments)
        return code or 0
    except KeyboardInterrupt:
        return INTERRUPTED


def _flushed(code: int) -> int:
    """Write out what is still held back, so that the interpreter has nothing to complain of.

    What nobody reads, and all of it after Ctrl-C, goes nowhere.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            if code == INTERRUPTED:
                _swallow(stream)
            stream.flush()
        except OSError:
            _swallow(stream)
    return code


def _swallow(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
