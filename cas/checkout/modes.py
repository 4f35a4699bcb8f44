"""Whether a mode can be had, and what was made of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cas import fs
from cas.checkout.writing import (
    COPY,
    HARDLINK,
    MODES,
    REFLINK,
    Tally,
    cannot_clone,
    cannot_link,
)
from cas.errors import CasError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cas.checkout.preflight import Abilities
    from cas.objects import ObjectStore

_MOST: Final = 100
"""Files that notices name, at most."""
_PROBE: Final = b".probe"


def check_mode_name(mode: str) -> None:
    """Refuse what is no mode.

    Raises:
        RefusedError: It is none.
    """
    if mode not in MODES:
        raise RefusedError(f"{mode!r} is no checkout mode: use one of {', '.join(MODES)}")


def check_mode(objects: ObjectStore, directory: int, mode: str) -> None:
    """Refuse a mode that cannot be had for a directory, as far as one file of the store tells.

    Raises:
        UnsupportedError: Not a local store, or the filesystem cannot link or share blocks.
    """
    if mode not in (REFLINK, HARDLINK):
        return
    local = objects.backend.local
    if local is None:
        raise cannot_link("the store is not on a disk") if mode == HARDLINK else cannot_clone()
    sample = _any_file(local.root)
    if sample is None:
        return  # nothing is stored yet that could be linked
    try:
        if mode == HARDLINK:
            fs.link(sample, _PROBE, dst_dir_fd=directory)
            fs.unlink(_PROBE, dir_fd=directory)
        elif not _clones(sample, directory):
            raise cannot_clone()
    except OSError as error:
        if error.errno not in fs.CANNOT or isinstance(error, CasError):
            raise
        raise cannot_link(error) from error


def _any_file(root: Path) -> Path | None:
    """Return some file of a store that no proof hangs on."""
    for folder in ("packs", "index"):
        try:
            with os.scandir(root / folder) as listing:
                for entry in listing:
                    if entry.is_file(follow_symlinks=False):
                        return Path(entry.path)
        except FileNotFoundError:
            continue
    return None


def _clones(sample: Path, directory: int) -> bool:
    source = fs.open_read(sample)
    try:
        target = fs.create_excl(_PROBE, 0o600, dir_fd=directory)
        try:
            return fs.clone(source, target)
        finally:
            os.close(target)
            fs.unlink(_PROBE, dir_fd=directory)
    finally:
        os.close(source)


def mode_used(mode: str, tally: Tally) -> str:
    """Return the name of what was done where `mode` was asked for."""
    if mode == HARDLINK:
        return HARDLINK
    return REFLINK if tally.cloned else COPY


def notices(
    abilities: Abilities,
    mode: str,
    dest: Path,
    *,
    left_out: Mapping[bytes, str],
    replaced_cwd: bool = False,
) -> tuple[str, ...]:
    """Return what a person should know about a workspace, one line each.

    Args:
        abilities: What its filesystem can hold.
        mode: How content came.
        dest: Where it is.
        left_out: Paths whose content was purged, and how a sentence goes on that says so.
        replaced_cwd: Whether the current directory was replaced.
    """
    said = [f"{os.fsdecode(path)} {told}; it was left out" for path, told in left_out.items()]
    if len(said) > _MOST:
        said = [*said[:_MOST], f"and {len(said) - _MOST} more were purged and left out"]
    if replaced_cwd:
        said.append("the current directory was replaced by a new one: enter it again (cd .)")
    if not abilities.exec_bits:
        said.append(f"the filesystem of {dest} keeps no executable bits: they are lost there")
    if mode == HARDLINK:
        said.append(
            "hard-linked files are the store's own: they are read-only, and forcing a change "
            "through one damages the store"
        )
    return tuple(said)
