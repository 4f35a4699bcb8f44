"""What a source is called in messages, and what it means when the system refuses it."""

from __future__ import annotations

import errno
import os

from cas.errors import CasError, PurgedError, SourceChangedError, environment_failure

_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})


def join(folder: bytes, name: bytes) -> bytes:
    """Return the path of an entry below the root."""
    return folder + b"/" + name if folder else name


def shown(where: bytes, path: bytes) -> str:
    """Return how a message calls what lies at `path` below the source `where`."""
    text = os.fsdecode(os.path.join(where, path) if path else where)
    if text.isprintable():
        return text
    return ascii(text)


def failed(error: OSError, where: bytes, path: bytes) -> CasError:
    """Translate what the system said of an entry.

    Returns:
        SourceChangedError for what is gone or was replaced since it was listed, else
        EnvironmentFailure.
    """
    if isinstance(error, CasError):
        return error
    name = shown(where, path)
    if error.errno in _GONE:
        return SourceChangedError(
            f"{name} vanished or was replaced while it was read; add it when it is quiet",
            path=name,
        )
    plain = OSError(error.errno, os.strerror(error.errno or 0))
    hint = "; make it readable or list it in .casignore" if error.errno in _FORBIDDEN else ""
    failure = environment_failure(plain, f"reading {name}")
    return type(failure)(failure.message + hint, errno=error.errno, path=name)


def kept_out(told: str, digest: bytes, where: bytes, path: bytes) -> PurgedError:
    """Return the error for a file that holds what was purged from the store.

    Args:
        told: When it was purged, by whom and why.
        digest: Of the content.
        where: The source.
        path: Of the file in it.
    """
    name = shown(where, path)
    return PurgedError(
        f"{name} holds content that {told}; remove it, or list it in .casignore",
        digest=digest.hex(),
        told=told,
        path=name,
    )


def changing(where: bytes, path: bytes) -> SourceChangedError:
    """Return the error for a file that was read again and again and never stood still."""
    name = shown(where, path)
    return SourceChangedError(
        f"{name} keeps changing while it is read; stop its writer or add it when it is quiet",
        path=name,
    )
