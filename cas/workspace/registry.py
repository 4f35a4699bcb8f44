"""What a store remembers of the workspaces whose content it has to keep.

Specified in `docs/format.md`, "Workspaces".
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cas.backends import Missing
from cas.digest import Digest
from cas.errors import CasError, DamagedError, FormatError, NewerFormatError, NotFoundError
from cas.workspace.memory import MAX_STATE, WorkspaceState, load, new_id, seal, text_bytes, unseal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cas.backends import Backend

REGISTRY: Final = "workspaces/"

_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What a store remembers of a workspace.

    Attributes:
        id: The workspace's identity.
        path: Its real path when it was made or last updated.
        device: The device number of its filesystem then.
        spec: What was checked out.
        trees: What it may hold: its tree, and while an update is under way those it goes to.
        created_at: UTC time of the checkout or last update, ISO 8601.
    """

    id: str
    path: Path
    device: int
    spec: str
    trees: tuple[Digest, ...]
    created_at: str


def register(
    backend: Backend, path: Path, state: WorkspaceState, *, at: Path | None = None
) -> WorkspaceState:
    """Make the store remember a workspace; a store that cannot be written to does not.

    A copy of a workspace carries the identity of the first. If that one is still there, the copy
    gets an identity of its own.

    Args:
        backend: The store's.
        path: Where the workspace is now.
        state: What it remembers.
        at: Where it will be, if it is about to be renamed.

    Returns:
        The state, with another identity if it needed one.
    """
    real = Path(os.path.realpath(path if at is None else at))
    known = recall(backend, state.id)
    if known is not None and known.path != real and _is_workspace(known.path, state.id):
        state = replace(state, id=new_id())
    trees = [state.tree]
    if state.intent is not None:
        trees += [state.intent.tree, *state.intent.via]
    data = seal(
        {
            "id": state.id,
            "path": os.fsencode(real),
            "device": os.stat(path).st_dev,
            "spec": text_bytes(state.spec),
            "trees": trees,
            "created_at": state.created_at,
        },
        "remembered",
    )
    _where_writable(lambda: backend.put(REGISTRY + state.id, data))
    return state


def _is_workspace(path: Path, identity: str) -> bool:
    try:
        return load(path).id == identity
    except CasError:
        return False


def _where_writable(change: Callable[[], None]) -> None:
    try:
        change()
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise


def recall(backend: Backend, identity: str) -> Remembered | None:
    """Return what the store remembers of one workspace; None if nothing that can be read."""
    try:
        return _parse(backend.get(REGISTRY + identity, max_bytes=MAX_STATE))
    except (NotFoundError, FormatError, NewerFormatError):
        return None


def remembered(backend: Backend) -> Iterator[Remembered]:
    """Yield what the store remembers of its workspaces.

    Raises:
        DamagedError: A memory is damaged, so nobody can say what its workspace needs.
    """
    for entry in backend.list(REGISTRY):
        try:
            known = _parse(backend.get(entry.key, max_bytes=MAX_STATE))
        except Missing:
            continue  # forgotten meanwhile
        except FormatError as error:
            raise DamagedError(
                f"{entry.key} in the store is damaged: {error}; "
                "delete it and update the workspace that it stands for",
                location=entry.key,
            ) from None
        yield known


def damaged_memories(backend: Backend) -> Iterator[tuple[str, str]]:
    """Yield the key of each memory of a workspace that is damaged, and what is wrong with it."""
    for entry in backend.list(REGISTRY):
        try:
            _parse(backend.get(entry.key, max_bytes=MAX_STATE))
        except Missing:
            continue  # forgotten meanwhile
        except (FormatError, NewerFormatError) as error:
            yield entry.key, str(error)


def _parse(data: bytes) -> Remembered:
    body = unseal(data, "remembered")
    try:
        return Remembered(
            id=body["id"],
            path=Path(os.fsdecode(body["path"])),
            device=body["device"],
            spec=os.fsdecode(body["spec"]),
            trees=tuple(Digest(tree) for tree in body["trees"]),
            created_at=body["created_at"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"a field is missing or wrong: {error}") from None


def forget(backend: Backend, identity: str) -> None:
    """Make the store forget a workspace, which is not touched; a read-only store remembers none."""
    _where_writable(lambda: backend.delete(REGISTRY + identity))
