"""Opening a store: what its directory says of itself, and what it consists of."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cas.backends import LocalBackend
from cas.catalogue.context import Context, doing
from cas.catalogue.identity import FOLDER, is_store, read_identity
from cas.errors import UnsupportedError
from cas.refs import open_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def store_root(path: str | os.PathLike[str]) -> Path:
    """Return the directory of a store that is named by it or by the one that holds its `.cas`.

    Raises:
        UnsupportedError: It is named by a URL.
    """
    if _URL.match(os.fspath(path)):
        raise UnsupportedError(f"{path} is a URL; only stores in directories are known")
    named = Path(os.path.abspath(path))
    inside = named / FOLDER
    return inside if not is_store(named) and is_store(inside) else named


def open_context(root: Path) -> Context:
    """Open the store at a directory; its log and objects are looked at when needed.

    Raises:
        NotFoundError: There is none.
        NewerFormatError: It was made by a newer version of this program.
        DamagedError: It cannot be understood.
    """
    with doing(f"opening the store {root}"):
        identity = read_identity(root)
        gid = os.stat(root).st_gid if identity.shared else None
        backend = LocalBackend(root, shared_gid=gid)
    return Context(root, identity.id, backend, open_catalogue(backend))


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Context]:
    """Open another store beside the one that is worked on, and close it in the end.

    Raises:
        CasError: As `open_context`.
    """
    context = open_context(store_root(path))
    try:
        yield context
    finally:
        context.close()
        context.backend.close()
