"""How paths inside a tree, which are bytes, are shown as text and in JSON.

The text of a path is what Python makes of a file name: bytes that are not UTF-8 become lone
surrogates (`surrogateescape`). Where that happens, JSON also gets the bytes in base64.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def path_json(path: bytes, key: str = "path") -> dict[str, str]:
    """Return the JSON members for one path.

    Args:
        path: The path, "/" between its components.
        key: The member that holds it as text.

    Returns:
        The text, and `<key>_bytes` where it is not UTF-8.
    """
    text = os.fsdecode(path)
    return {key: text} if is_utf8(path) else {key: text, f"{key}_bytes": _base64(path)}


def paths_json(**lists: Iterable[bytes]) -> dict[str, Any]:
    """Return the JSON members for lists of paths.

    Returns:
        Each list as texts, and `path_bytes`, from text to base64, of those that are not UTF-8.
    """
    shown: dict[str, Any] = {}
    odd: dict[str, str] = {}
    for key, paths in lists.items():
        known = list(paths)
        shown[key] = [os.fsdecode(path) for path in known]
        odd |= {os.fsdecode(path): _base64(path) for path in known if not is_utf8(path)}
    return shown | {"path_bytes": odd} if odd else shown


def is_utf8(path: bytes) -> bool:
    """Tell whether a path is valid UTF-8."""
    try:
        path.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _base64(path: bytes) -> str:
    return base64.b64encode(path).decode("ascii")
