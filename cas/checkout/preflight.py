"""Finding out, before the first byte is written, what the destination's filesystem cannot hold.

Nothing here knows filesystems by name. A handful of awkward names, a link and a mode are tried in
a scratch directory on the destination's filesystem; where all of them come back as they went in,
any tree fits. Where one does not, every name of the tree is tried, with empty files.
"""

from __future__ import annotations

import errno
import os
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cas import fs
from cas.checkout.removal import empty_tree, remove_tree
from cas.errors import RefusedError, UnsupportedError
from cas.manifests import DIR, LINK
from cas.workspace.handles import Handles, scan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cas.manifests import Entry
    from cas.workspace.runs import Run

_SCRATCH: Final = b".scratch"
_PROBES: Final = (
    b"a",
    b"A",
    b"x:y",
    b"back\\slash",
    b"dot.",
    b"space ",
    b" space",
    b'all"of*?<>|these',
    b"line\nbreak\x01",
    b"not-utf-8-\xff\xfe",
    unicodedata.normalize("NFC", "\u00e9").encode(),
    unicodedata.normalize("NFD", "\u00e9").encode(),
    b"con",
    b"-",
    b"n" * 255,
    b"\xc3\xa9" * 127 + b"n",
)
_LARGE: Final = (1 << 31) - 1
# Errors that say something about the machine, not about the name that was tried.
_NOT_THE_NAME: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a filesystem can hold.

    Attributes:
        names: Every name of 1 to 255 bytes, each apart from all others.
        symlinks: Symlinks.
        exec_bits: The executable bit of a file, set or not.
    """

    names: bool
    symlinks: bool
    exec_bits: bool


def probe(stage: int) -> Abilities:
    """Try awkward names, a link and modes in a scratch directory.

    Args:
        stage: A descriptor of an empty directory on the filesystem in question.

    Raises:
        OSError: The filesystem is full, read-only or broken.
    """
    fs.mkdir(_SCRATCH, 0o700, dir_fd=stage)
    scratch = fs.open_dir(_SCRATCH, dir_fd=stage)
    try:
        held = [_holds_file(scratch, name) for name in _PROBES]
        names = all(held) and _names_in(scratch) == set(_PROBES)
        empty_tree(scratch)
        return Abilities(names, _holds_symlink(scratch), _keeps_exec(scratch))
    finally:
        os.close(scratch)
        remove_tree(stage, _SCRATCH)


def check_tree(stage: int, runs: Iterable[Run], abilities: Abilities) -> None:
    """Try every name of a tree on a filesystem that has its limits.

    Args:
        stage: A descriptor of an empty directory on the filesystem in question; left empty.
        runs: What is to be written.
        abilities: What the filesystem can hold.

    Raises:
        UnsupportedError: It cannot hold one of the names, types or sizes.
        OSError: The filesystem is full, read-only or broken.
    """
    fs.mkdir(_SCRATCH, 0o700, dir_fd=stage)
    scratch = fs.open_dir(_SCRATCH, dir_fd=stage)
    try:
        with Handles(scratch) as handles:
            trial = _Trial(handles, abilities)
            for folder, run in runs:
                trial.take(folder, run)
            trial.finish()
    finally:
        os.close(scratch)
        remove_tree(stage, _SCRATCH)


class _Trial:
    """Makes the skeleton of a tree, a directory at a time, and removes each when it is whole."""

    def __init__(self, handles: Handles, abilities: Abilities) -> None:
        self._handles = handles
        self._abilities = abilities
        self._open: list[tuple[bytes, set[bytes]]] = [(b"", set())]

    def take(self, folder: bytes, run: Iterable[Entry]) -> None:
        while self._open[-1][0] != folder:
            self._close_last()
        names = self._open[-1][1]
        for name, kind, size, _ in run:
            path = folder + b"/" + name if folder else name
            if kind == LINK and not self._abilities.symlinks:
                raise _cannot(path, "it holds no symlinks")
            self._try(folder, name, path, kind, size)
            names.add(name)
            if kind == DIR:
                self._open.append((path, set()))

    def finish(self) -> None:
        while self._open:
            self._close_last()

    def _try(self, folder: bytes, name: bytes, path: bytes, kind: str, size: int) -> None:
        at = self._handles.get(folder)
        try:
            if kind == DIR:
                fs.mkdir(name, 0o700, dir_fd=at)
                return
            fd = fs.create_excl(name, 0o600, dir_fd=at)
            try:
                # A position past the filesystem's largest size is refused, and nothing is written.
                if size > _LARGE and kind != LINK:
                    os.lseek(fd, size, os.SEEK_SET)
            finally:
                os.close(fd)
        except FileExistsError:
            twin = _twin(name, self._open[-1][1])
            raise _cannot(path, f"it takes the name for that of {twin}") from None
        except OSError as error:
            if error.errno in _NOT_THE_NAME:
                raise
            what = "its size" if size > _LARGE and error.errno == errno.EINVAL else "its name"
            reason = error.strerror or str(error)
            raise _cannot(path, f"{what} is refused ({reason})") from None

    def _close_last(self) -> None:
        folder, names = self._open.pop()
        at = self._handles.get(folder)
        lost = sorted(names - _names_in(at))
        if lost:
            path = folder + b"/" + lost[0] if folder else lost[0]
            raise _cannot(path, "it keeps the name in another form")
        # The emptied directory itself stays for now, a name beside its siblings.
        empty_tree(at)


def _twin(name: bytes, names: set[bytes]) -> str:
    text = os.fsdecode(name)
    for other in sorted(names):
        if unicodedata.normalize("NFKC", os.fsdecode(other)).casefold() == (
            unicodedata.normalize("NFKC", text).casefold()
        ):
            return repr(os.fsdecode(other))
    return "another entry"


def _cannot(path: bytes, why: str) -> RefusedError:
    return UnsupportedError(
        f"the destination's filesystem cannot hold {os.fsdecode(path)!r}: {why}; "
        "choose a destination on another one, or leave it out with --only",
        path=os.fsdecode(path),
    )


def _names_in(directory: int) -> set[bytes]:
    with scan(directory) as listing:
        return {os.fsencode(entry.name) for entry in listing}


def _holds_file(directory: int, name: bytes) -> bool:
    try:
        os.close(fs.create_excl(name, 0o600, dir_fd=directory))
    except OSError as error:
        if error.errno in _NOT_THE_NAME:
            raise
        return False
    return True


def _holds_symlink(directory: int) -> bool:
    target = b"to/nowhere"
    try:
        fs.symlink(target, b"link", dir_fd=directory)
        return fs.readlink(b"link", dir_fd=directory) == target
    except OSError as error:
        if error.errno in _NOT_THE_NAME:
            raise
        return False


def _keeps_exec(directory: int) -> bool:
    kept = []
    for name, mode in ((b"plain", 0o600), (b"exec", 0o700)):
        fd = fs.create_excl(name, mode, dir_fd=directory)
        try:
            kept.append(os.fstat(fd).st_mode & 0o100 == mode & 0o100)
        finally:
            os.close(fd)
    return all(kept)
