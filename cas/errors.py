"""Every error that this package raises on purpose, grouped by what a caller would do about it.

A class carries a stable ``code`` (for scripts) and the exit code that the command line gives for
it. Where older code would have met a built-in, the class derives from that built-in too, so that
``except FileNotFoundError`` keeps working.
"""

from __future__ import annotations

import errno
from typing import Any, ClassVar, Final


class CasError(Exception):
    """The root of the tree.

    Args:
        message: One line: the thing, the cause, the way out.
        **facts: What the message says, for programs; values are JSON-able.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 8

    def __init__(self, message: str, **facts: Any) -> None:
        """Keep the message as the text of the error and the facts beside it."""
        super().__init__(message)
        self.message = message
        self.facts: dict[str, Any] = facts

    def __str__(self) -> str:
        """Return the message, also where OSError would print an errno."""
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from message and facts: OSError's own way knows neither."""
        return _rebuild, (type(self), self.message, self.facts)


def _rebuild(kind: type[CasError], message: str, facts: dict[str, Any]) -> CasError:
    return kind(message, **facts)


class NotFoundError(CasError, FileNotFoundError):
    """A name, path or digest that is asked for does not exist."""

    code = "not_found"
    exit_code = 3


class UnknownCandidateError(NotFoundError):
    """No learning candidate has this id."""

    code = "unknown_candidate"


class ConflictError(CasError, FileExistsError):
    """Something exists already, is claimed by another, or is not empty."""

    code = "conflict"
    exit_code = 4


class BeingSynthesizedError(ConflictError):
    """A candidate is claimed by another, who may still be at it."""

    code = "being_synthesized"


class AlreadyDraftedError(ConflictError):
    """A candidate has its draft."""

    code = "already_drafted"


class BeingPublishedError(ConflictError):
    """The draft of a candidate is being published."""

    code = "being_published"


class LeaseLostError(ConflictError):
    """A fencing token is not the one of the claim that a candidate is held by now."""

    code = "lease_lost"


class TransitionRefusedError(ConflictError):
    """The store's table of transitions does not allow this one."""

    code = "transition_refused"


class DamagedError(CasError):
    """The store does not hold what it promised to hold."""

    code = "damaged"
    exit_code = 5


class CorruptObjectError(DamagedError):
    """Stored bytes do not have the digest they are stored under."""

    code = "corrupt"


class MissingObjectError(DamagedError):
    """A digest that the store should hold is nowhere in it."""

    code = "missing"


class DamagedLogError(DamagedError):
    """A log record is cut, changed or gone."""

    code = "damaged_log"


class FormatError(DamagedError):
    """Bytes do not parse as what they should be."""

    code = "bad_format"


class RefusedError(CasError, ValueError):
    """Input that is not taken; nothing was changed."""

    code = "refused"
    exit_code = 6


class NameRefusedError(RefusedError):
    """A name from outside that its grammar does not allow."""

    code = "bad_name"


class SourceChangedError(RefusedError):
    """A source kept changing while it was read."""

    code = "source_changed"


class PurgedError(RefusedError):
    """The content was purged from the store, for good."""

    code = "purged"


class UnsupportedError(RefusedError):
    """This filesystem, file type or system cannot do what is asked."""

    code = "unsupported"


class NewerFormatError(RefusedError):
    """Written by a newer version of this package."""

    code = "newer_format"


class BusyError(CasError, TimeoutError):
    """A lock was not had in time."""

    code = "busy"
    exit_code = 7


class EnvironmentFailure(CasError, OSError):  # noqa: N818 - "EnvironmentError" is a built-in
    """The system refused: permission, input/output, network.

    ``errno`` is that of the system's error, if one is behind it.
    """

    code = "environment"
    exit_code = 8

    def __init__(self, message: str, **facts: Any) -> None:
        """Take ``errno`` from the facts, where code written for OSError looks for it."""
        super().__init__(message, **facts)
        self.errno = facts.get("errno")


class DiskFullError(EnvironmentFailure):
    """No space or quota is left."""

    code = "disk_full"


class OutcomeUnknownError(EnvironmentFailure):
    """It cannot be known whether the change is durable; look before trying again."""

    code = "outcome_unknown"


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


_HINTS: Final = {
    errno.EROFS: "; it is read-only here: use it where it can be written to, or clone it",
    errno.EACCES: "; ask its owner for the right",
    errno.EPERM: "; ask its owner for the right",
}


def environment_failure(error: OSError, doing: str) -> CasError:
    """Translate a system error into one of ours.

    Args:
        error: What the system raised.
        doing: What was being done, as the beginning of a sentence: ``"writing a pack"``.

    Returns:
        DiskFullError where space or quota ran out, else EnvironmentFailure. An error that is one
        of ours already (some are OSErrors too) comes back as it is.
    """
    if isinstance(error, CasError):
        return error
    kind = DiskFullError if error.errno in _FULL else EnvironmentFailure
    reason = error.strerror or str(error) or type(error).__name__
    hint = _HINTS.get(error.errno or 0, "")
    if kind is DiskFullError:
        hint = "; free some space and try again"
    where = error.filename
    if isinstance(where, bytes):
        where = where.decode("utf-8", "backslashreplace")
    if isinstance(where, str):
        return kind(f"{doing}: {reason}: {where!r}{hint}", errno=error.errno, path=where)
    return kind(f"{doing}: {reason}{hint}", errno=error.errno)
