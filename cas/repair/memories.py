"""Healing what a store remembers of workspaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cas.backends import Missing
from cas.errors import FormatError
from cas.repair.quarantine import put_aside
from cas.workspace import damaged_memories

if TYPE_CHECKING:
    from cas.catalogue.context import Context
    from cas.repair.result import Diary


def heal_memory(context: Context, copy: Context | None, key: str, diary: Diary) -> None:
    """Put the memory of a workspace that a copy of the store has in the place of a damaged one.

    Where there is none, the damaged one is put aside: the store then keeps no content for that
    workspace until it is checked out or updated again.

    Args:
        context: The store.
        copy: Another store.
        key: Of the memory.
        diary: Takes note of what is done.
    """
    aside = put_aside(context.backend, key)
    if copy is not None and key not in {damaged for damaged, _ in damaged_memories(copy.backend)}:
        try:
            content = copy.backend.get(key, max_bytes=1 << 20)
        except (Missing, FormatError):
            content = None
        if content is not None:
            context.backend.put(key, content)
            context.backend.delete(aside)
            diary.heal(key, None, f"replaced from {copy.root}")
            return
    diary.quarantined.append(aside)
    diary.notices.append(
        f"what is remembered of one workspace is damaged and was put aside as {aside}; "
        "run `cas checkout --update` in that workspace, so that its content is kept"
    )
