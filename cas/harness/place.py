"""Making a database under a private name and putting it in place whole, durably, once."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cas import fs
from cas.errors import CasError, ConflictError, environment_failure

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIDE_FILES: Final = (b"-wal", b"-shm", b"-journal")


@contextmanager
def new_file(dst: str | os.PathLike[str]) -> Iterator[str]:
    """Give a private name beside `dst` to make a database under; then put it in place, durably.

    Raises:
        ConflictError: `dst` exists, from the beginning or by the time that the database is made.
    """
    target = os.fsencode(os.path.abspath(dst))
    directory, name = os.path.split(target)
    _check_free(target)
    temporary = os.path.join(directory, b".%s.cas-%s" % (name[:100], secrets.token_hex(8).encode()))
    try:
        try:
            yield os.fsdecode(temporary)
            fd = fs.open_read(temporary)
            try:
                fs.fsync(fd)
            finally:
                os.close(fd)
            _check_free(target)
            _put_in_place(temporary, target, directory)
        except CasError:
            raise
        except FileExistsError:
            raise _exists(target) from None
        except OSError as error:
            raise environment_failure(error, f"making database {os.fspath(dst)!r}") from error
    finally:
        for suffix in (b"", *_SIDE_FILES):
            try:
                fs.unlink(temporary + suffix)
            except FileNotFoundError:
                pass


def _check_free(target: bytes) -> None:
    for suffix in (b"", *_SIDE_FILES):
        if os.path.lexists(target + suffix):
            raise _exists(target + suffix)


def _exists(path: bytes) -> ConflictError:
    return ConflictError(f"{os.fsdecode(path)!r} exists: give a new file name")


def _put_in_place(temporary: bytes, target: bytes, directory: bytes) -> None:
    try:
        fs.link(temporary, target)
    except OSError as error:
        if error.errno not in fs.CANNOT:
            raise
        fs.rename_noreplace(temporary, target)
    try:
        fs.fsync_dir(directory)
    except OSError:
        fs.unlink(target)  # it may not last: better not there at all
        raise
