"""Damage to stored files, as media and people do it: in place, behind the back of everything."""

from __future__ import annotations

import os
from typing import BinaryIO

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def flip(path: Path, offset: int, mask: int = 1) -> None:
    """Change bits of one byte of a file; doing it again undoes it.

    Args:
        path: The file; one that may not be written is written anyway.
        offset: Which byte.
        mask: Which bits, 1 to 255.
    """
    with _forced(path) as file:
        file.seek(offset)
        old = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([old ^ mask]))


def cut(path: Path, size: int) -> None:
    """Cut a file to `size` bytes."""
    with _forced(path) as file:
        file.truncate(size)


def _forced(path: Path) -> BinaryIO:
    """Open a file for changing it, whatever its mode."""
    os.chmod(path, 0o644)
    return open(path, "r+b")
