"""Real filesystems in a file, for tests that run as root.

with mounts.mounted("xfs", folder) as mount:
    ...  # mount.path is the root of a fresh xfs
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Kind = Literal["ext4", "ext4 without a journal", "xfs", "btrfs", "vfat", "exfat"]

SAFE: Final[tuple[Kind, ...]] = ("ext4", "ext4 without a journal", "xfs", "btrfs", "vfat")
"""Those that a store can lie on: exfat, through FUSE, can neither link nor rename safely."""

_MAKE: Final[dict[Kind, list[str]]] = {
    "ext4": ["mkfs.ext4", "-q"],
    "ext4 without a journal": ["mkfs.ext4", "-q", "-O", "^has_journal"],
    "xfs": ["mkfs.xfs", "-q"],
    "btrfs": ["mkfs.btrfs", "-q"],
    "vfat": ["mkfs.vfat"],
    "exfat": ["mkfs.exfat"],
}
_LEAST: Final[dict[Kind, int]] = {
    "ext4": 16 << 20,
    "ext4 without a journal": 8 << 20,
    "xfs": 300 << 20,
    "btrfs": 128 << 20,
    "vfat": 8 << 20,
    "exfat": 8 << 20,
}


class Unavailable(Exception):  # noqa: N818 - named for what it says
    """This machine, or this user, cannot have the filesystem; a reason to skip."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted filesystem."""

    path: Path
    kind: Kind
    image: Path


@contextlib.contextmanager
def mounted(kind: Kind, folder: Path, *, size: int | None = None) -> Iterator[Mount]:
    """Make and mount a fresh filesystem, and take it away at the end.

    Args:
        kind: Which one.
        folder: An existing folder for its image and its mount point.
        size: Bytes; as small as the kind can be, if not given.

    Raises:
        Unavailable: It cannot be had.
    """
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(max(size or 0, _LEAST[kind]))
    _run([*_MAKE[kind], str(image)])
    with mounted_image(kind, image, folder / "mnt") as path:
        yield Mount(path, kind, image)


@contextlib.contextmanager
def after_power_cut(mount: Mount, folder: Path) -> Iterator[Path]:
    """Mount what the medium of a mounted filesystem holds at this moment.

    It replays its journal, or is checked and mended where it has none, as after a power cut.

    Args:
        mount: Whose medium.
        folder: An existing folder for the copy.

    Raises:
        Unavailable: It cannot be mounted.
    """
    image = folder / "image-after-the-cut"
    _run(["cp", "--sparse=always", str(mount.image), str(image)])
    if mount.kind == "ext4 without a journal":
        # Its exit code says what was mended.
        subprocess.run(["fsck.ext4", "-f", "-y", str(image)], capture_output=True, check=False)
    with mounted_image(mount.kind, image, folder / "mnt-after-the-cut") as path:
        yield path


@contextlib.contextmanager
def mounted_image(kind: Kind, image: Path, path: Path, *, options: str = "") -> Iterator[Path]:
    """Mount a filesystem that is in a file.

    Raises:
        Unavailable: It cannot be mounted.
    """
    path.mkdir(exist_ok=True)
    every = ["loop", *(["nouuid"] if kind == "xfs" else []), *([options] if options else [])]
    fuse = ["-t", "exfat-fuse"] if kind == "exfat" else []
    _run(["mount", *fuse, "-o", ",".join(every), str(image), str(path)])
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], capture_output=True, check=True)


def remount_read_only(mount: Mount) -> None:
    """Take the right to write away.

    Raises:
        Unavailable: The system refuses.
    """
    _run(["mount", "-o", "remount,ro", str(mount.path)])


def _run(command: list[str]) -> None:
    if os.geteuid() != 0:
        raise Unavailable("loop mounts need root")
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not installed") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise Unavailable(f"{' '.join(command)}: {said}")
