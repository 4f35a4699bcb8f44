"""How a path inside a tree, which is bytes, is shown in JSON."""

from __future__ import annotations

import base64
import os


def path_json(path: bytes, key: str = "path") -> dict[str, str]:
    """Return the JSON members for a path.

    Args:
        path: The path as bytes, "/" between its components.
        key: The member that holds it as text.

    Returns:
        The path as text, bytes that are not UTF-8 escaped as `surrogateescape` does; where there
        are such bytes, also `<key>_bytes`, the path in base64.
    """
    text = os.fsdecode(path)
    try:
        path.decode("utf-8")
    except UnicodeDecodeError:
        return {key: text, f"{key}_bytes": base64.b64encode(path).decode("ascii")}
    return {key: text}
