"""Looking through an old layout: which versions and seeds it holds, and what is wrong with it.

Only names and the small files that tell about versions and seeds are read here. Every folder is
reached through its parent and never through a symlink.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from cas import fs, names
from cas.catalogue.draft import PROMPTS, SKILLS, check_parts
from cas.errors import RefusedError
from cas.layouts import board, shape, told
from cas.layouts.results import Skipped
from cas.layouts.told import SEED, VERSION, Told
from cas.workspace.handles import scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cas.layouts.told import Form
    from cas.workspace.handles import Handles

_FOLDER: Final = "a folder"
_FILE: Final = "a file"
_LINK: Final = "a symlink"
_OTHER: Final = "neither a file nor a folder"

_NO_PART: Final = "is not part of an old version store"


class FoundVersion(NamedTuple):
    """A version in an old layout.

    Attributes:
        resource: Its resource.
        number: Its number.
        path: Its folder, below the layout's directory.
        told: What the layout says of it.
        plain: The folder is content and nothing else.
    """

    resource: str
    number: int
    path: bytes
    told: Told
    plain: bool

    @property
    def spec(self) -> str:
        """The spec that will name it."""
        return f"{self.resource}@v{self.number}"


class FoundSeed(NamedTuple):
    """A seed in an old layout.

    Attributes:
        name: Its name.
        path: Its folder, below the layout's directory.
        told: What the layout says of it.
        extra: Names in its folder → names of the parts that they are, beside those every seed has.
    """

    name: str
    path: bytes
    told: Told
    extra: Mapping[bytes, str]

    @property
    def spec(self) -> str:
        """The spec that will name it."""
        return f"seed:{self.name}"


class Scan:
    """What an old layout holds.

    Args:
        handles: The folders below the layout's directory.

    Attributes:
        recognised: Whether it is an old layout at all.
        learning: Whether it is, or holds, a learning folder.
        versions: Its versions.
        seeds: Its seeds.
        skipped: What is in it that is neither, or is damaged.
    """

    def __init__(self, handles: Handles) -> None:
        """Look through the layout.

        Raises:
            OSError: Its directory cannot be read.
        """
        self._handles = handles
        self.recognised = False
        self.learning = False
        self.versions: list[FoundVersion] = []
        self.seeds: list[FoundSeed] = []
        self.skipped: list[Skipped] = []
        for name, kind in self._list(b""):
            self._top(name, kind)

    def _top(self, name: bytes, kind: str) -> None:
        known = name in shape.KNOWN or name == shape.SEEDS
        if name in board.NAMES:
            self.recognised = self.learning = True
        elif known and kind != _FOLDER:
            self._skip(name, _not_a_folder(kind))
        elif name == shape.SEEDS:
            self.recognised = True
            for seed, what in self._listed(name):
                self._seed(name + b"/" + seed, seed, what)
        elif kind == _FOLDER and (known or self._holds_versions(name)):
            self.recognised = True
            self._resource(name)
        elif not self._tells_about_folder(name):
            self._skip(name, _NO_PART)

    # --- versions --------------------------------------------------------------------------------

    def _resource(self, path: bytes) -> None:
        """Look through the folder of a resource, or of several whose names begin with its own."""
        resource = shape.resource_of(path)
        if resource is None:
            self._skip(path, "is no name for a resource")
            return
        if resource in shape.PLAIN and self._is_plain(path):
            self._plain(resource, path)
            return
        for name, kind in self._listed(path):
            below = path + b"/" + name
            number = shape.number_of(name)
            if number is not None or below in shape.KNOWN:
                if kind != _FOLDER:
                    self._skip(below, _not_a_folder(kind))
                elif number is None:
                    self._resource(below)
                else:
                    self._version(resource, number, below)
            elif kind == _FOLDER and self._holds_versions(below):
                self._resource(below)
            elif not self._tells_about_folder(below):
                self._skip(below, "is neither a version (v1, v2, ...) nor a folder of versions")

    def _version(self, resource: str, number: int, path: bytes) -> None:
        if self._kind(path, shape.VERSION_FILE) is None:
            self._skip(path, f"has no {VERSION.file}: it was not finished")
            return
        try:
            said = self._read(VERSION, f"v{number}", path, path, shape.VERSION_FILE)
            for name, lies in said.moved.items():
                there = names.check_entry_name(os.fsencode(lies))
                if name != VERSION.file or there == shape.VERSION_FILE:
                    raise RefusedError(f"its {VERSION.file} moves {name!r} to {lies!r}")
                if self._kind(path, there) is None:
                    raise RefusedError(f"its {VERSION.file} moves {name!r} to where nothing is")
        except RefusedError as error:
            self._skip(path, str(error))
            return
        self.versions.append(FoundVersion(resource, number, path, said, plain=False))

    def _is_plain(self, path: bytes) -> bool:
        """Tell whether a folder that may be plain is: content, not versions."""
        return self._kind(b"", path + shape.BESIDE) == _FILE or not self._holds_versions(path)

    def _plain(self, resource: str, path: bytes) -> None:
        beside = path + shape.BESIDE
        number = 1
        said = told.untold(VERSION, self._written(path))
        if self._kind(b"", beside) == _FILE:
            try:
                number, said = self._read_beside(path, beside)
            except RefusedError as error:
                self._skip(path, str(error))
                return
        elif not any(self._listed(path)):
            return  # nothing was ever put there
        self.versions.append(FoundVersion(resource, number, path, said, plain=True))

    def _read_beside(self, path: bytes, beside: bytes) -> tuple[int, Told]:
        folder, _, file = beside.rpartition(b"/")
        own = told.parse(self._content(folder, file)).get(VERSION.own)
        number = shape.number_of(own.encode()) if isinstance(own, str) and own.isascii() else None
        if number is None:
            raise RefusedError(f"its {os.fsdecode(file)} names no version")
        return number, self._read(VERSION, f"v{number}", path, folder, file)

    def _tells_about_folder(self, path: bytes) -> bool:
        """Tell whether a file is the one beside a plain folder that tells about it."""
        plain = path.removesuffix(shape.BESIDE)
        return (
            plain != path
            and shape.resource_of(plain) in shape.PLAIN
            and self._kind(b"", path) == _FILE
            and self._kind(b"", plain) == _FOLDER
        )

    def _holds_versions(self, path: bytes, depth: int = 0) -> bool:
        """Tell whether a folder holds versions and nothing else, at least one of them whole."""
        if depth >= shape.MAX_DEPTH:
            return False
        below = []
        try:
            with scan(self._handles.get(path)) as listing:
                for entry in listing:
                    if not entry.is_dir(follow_symlinks=False):
                        return False
                    below.append(path + b"/" + os.fsencode(entry.name))
        except OSError:
            return False
        whole = False
        for folder in below:
            if shape.number_of(folder.rpartition(b"/")[2]) is not None:
                whole = whole or self._kind(folder, shape.VERSION_FILE) == _FILE
            elif self._holds_versions(folder, depth + 1):
                whole = True
            else:
                return False
        return whole

    # --- seeds -----------------------------------------------------------------------------------

    def _seed(self, path: bytes, name: bytes, kind: str) -> None:
        try:
            if kind != _FOLDER:
                raise RefusedError(_not_a_folder(kind))
            seed = names.check_seed(os.fsdecode(name))
            for part, wanted in _PARTS.items():
                found = self._kind(path, part)
                if found != wanted:
                    what = os.fsdecode(part)
                    lies = f"has no {what}" if found is None else f"has a {what} that is {found}"
                    raise RefusedError(f"{lies}: it is not a whole seed")
            said = self._read(SEED, seed, path, path, shape.SEED_FILE)
            names.check_run_id(said.fields["baseline_run_id"] or "")
            extra = self._extra_parts(path, said)
        except RefusedError as error:
            self._skip(path, str(error))
            return
        self.seeds.append(FoundSeed(seed, path, said, extra))

    def _extra_parts(self, path: bytes, said: Told) -> dict[bytes, str]:
        """Return what a seed's folder holds beside what every seed has."""
        moved = {os.fsencode(lies): part for part, lies in said.moved.items()}
        extra: dict[bytes, str] = {}
        for name, _ in self._listed(path):
            if name in _PARTS or name in shape.BASELINE_SIDES:
                continue
            part = moved.pop(name, None)
            try:
                part = os.fsdecode(name) if part is None else part
                check_parts([part])
                if part in extra.values():
                    raise RefusedError(f"is a second part {part}")
            except RefusedError as error:
                self._skip(path + b"/" + name, str(error))
            else:
                extra[name] = part
        if moved:
            raise RefusedError(f"its {SEED.file} moves {min(moved.values())!r} to where nothing is")
        return extra

    # --- what is there ---------------------------------------------------------------------------

    def _read(self, form: Form, own: str, subject: bytes, folder: bytes, file: bytes) -> Told:
        """Read what a file tells about a folder.

        Raises:
            RefusedError: It cannot be understood; the message goes on after the folder's name.
        """
        content = self._content(folder, file)
        try:
            said = told.read(form, own, content, self._written(subject))
        except RefusedError as error:
            raise RefusedError(f"its {os.fsdecode(file)} {error}") from None
        return said

    def _content(self, folder: bytes, file: bytes) -> bytes:
        name = os.fsdecode(file)
        try:
            fd = fs.open_read(file, self._handles.get(folder))
        except OSError as error:
            link = error.errno == errno.ELOOP
            why = "is a symlink" if link else f"cannot be read: {error.strerror}"
            raise RefusedError(f"its {name} {why}") from None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise RefusedError(f"its {name} is no file")
            return fs.pread(fd, told.MAX_BYTES + 1, 0)
        except OSError as error:
            raise RefusedError(f"its {name} cannot be read: {error.strerror}") from None
        finally:
            os.close(fd)

    def _written(self, path: bytes) -> int:
        return os.fstat(self._handles.get(path)).st_mtime_ns

    def _kind(self, folder: bytes, name: bytes) -> str | None:
        """Return of what kind something is; None if it is not there."""
        above, _, last = name.rpartition(b"/")
        try:
            at = self._handles.get(folder + b"/" + above if folder and above else folder or above)
            return _kind_of(os.lstat(last, dir_fd=at).st_mode)
        except OSError:
            return None

    def _listed(self, path: bytes) -> Iterator[tuple[bytes, str]]:
        """Give what is in a folder, sorted; a folder that cannot be read is skipped."""
        try:
            found = self._list(path)
        except OSError as error:
            self._skip(path, f"cannot be read: {error.strerror}")
            return
        yield from found

    def _list(self, path: bytes) -> list[tuple[bytes, str]]:
        at = self._handles.get(path)
        with scan(at) as listing:
            found = [os.fsencode(entry.name) for entry in listing]
        return [(name, _kind_of(os.lstat(name, dir_fd=at).st_mode)) for name in sorted(found)]

    def _skip(self, path: bytes, reason: str) -> None:
        self.skipped.append(Skipped(path, reason))


_PARTS: Final = {
    SKILLS.encode(): _FOLDER,
    PROMPTS.encode(): _FOLDER,
    shape.BASELINE: _FILE,
    shape.SEED_FILE: _FILE,
}


def _kind_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return _FOLDER
    if stat.S_ISREG(mode):
        return _FILE
    return _LINK if stat.S_ISLNK(mode) else _OTHER


def _not_a_folder(kind: str) -> str:
    if kind == _LINK:
        return "is a symlink, which is not followed: put the folder itself there"
    return f"is {kind} where a folder belongs"
