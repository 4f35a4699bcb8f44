"""Writing `store.json` anew, where it is damaged or gone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from cas.backends import LocalBackend
from cas.catalogue.context import now
from cas.catalogue.identity import FILE, Identity, new_id, read_identity
from cas.catalogue.opening import store_root
from cas.errors import CasError, NewerFormatError
from cas.refs import open_catalogue
from cas.repair.quarantine import put_aside

if TYPE_CHECKING:
    from pathlib import Path

_SHARED: Final = 0o2070
"""What the mode of a directory has at least, if a group may write to the store in it."""


def mend_identity(root: Path, source: str | os.PathLike[str]) -> None:
    """See to it that a store says again which one it is.

    Its catalogue knows that. If that cannot be read either, the source is asked, if it is a store;
    if it is none, the store gets a new identity.

    Args:
        root: The store's directory.
        source: What good copies are to come from.

    Raises:
        NewerFormatError: The store was made by a newer version of this program.
        EnvironmentFailure: It cannot be written.
    """
    try:
        read_identity(root)
    except NewerFormatError:
        raise
    except CasError:
        pass
    else:
        return
    st = os.stat(root)
    shared = st.st_mode & _SHARED == _SHARED
    backend = LocalBackend(root, shared_gid=st.st_gid if shared else None)
    try:
        told = _told(backend) or _copied(source)
        identity = Identity(
            id=told.get("store_id") or new_id(),
            shared=shared,
            created_at=told.get("created_at") or now(),
        )
        if os.path.lexists(root / FILE):
            put_aside(backend, FILE)
        backend.put_if_absent(FILE, identity.to_bytes())
    finally:
        backend.close()


def _told(backend: LocalBackend) -> dict[str, Any]:
    """Return the event that began the catalogue; nothing where it cannot be read."""
    try:
        refs = open_catalogue(backend)
        refs.refresh()
        return refs.origin()
    except CasError:
        return {}


def _copied(source: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        there = read_identity(store_root(source))
    except (CasError, OSError):
        return {}
    return {"store_id": there.id, "created_at": there.created_at}
