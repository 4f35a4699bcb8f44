"""The file that makes a directory a store: what format it has, and which store it is.

`store.json` is two lines: a JSON object, and `blake3:` with the digest of that line.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from cas import fs
from cas.digest import hash_bytes
from cas.errors import FormatError, NewerFormatError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "store.json"
FOUNDING = "store.json.new"
"""What the file is called until everything else of a new store is in place."""
FOLDER = ".cas"
"""The directory of a store that lies inside the folder it serves."""
FORMAT = 1

_CATALOGUE = os.path.join("log", "catalogue")

_MAX_BYTES = 64 << 10
_ID = re.compile(r"[0-9a-f]{32}")


class Identity(NamedTuple):
    """What a store says of itself.

    Attributes:
        id: 32 hexadecimal digits, the same for all its copies.
        shared: Whether its files are for the group of its directory, whatever the umask.
        created_at: UTC time, ISO 8601.
    """

    id: str
    shared: bool
    created_at: str

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        line = json.dumps(
            {
                "format": FORMAT,
                "id": self.id,
                "shared": self.shared,
                "created_at": self.created_at,
            }
        ).encode()
        return line + b"\nblake3:" + hash_bytes(line).hex().encode() + b"\n"


def new_id() -> str:
    """Return a random identity."""
    return os.urandom(16).hex()


def is_store(directory: Path) -> bool:
    """Tell whether a directory is a store, whole or damaged."""
    return os.path.lexists(directory / FILE) or _lost_its_file(directory)


def _lost_its_file(directory: Path) -> bool:
    """Tell whether a directory has a catalogue, and nothing that says what it belongs to."""
    names = [directory / name for name in (FILE, FOUNDING, _CATALOGUE)]
    return list(map(os.path.lexists, names)) == [False, False, True]


def read_identity(root: Path) -> Identity:
    """Read what a store says of itself.

    Raises:
        NotFoundError: The directory is no store.
        NewerFormatError: It has a format that this release does not know.
        FormatError: The file is damaged.
        OSError: It cannot be read.
    """
    path = root / FILE
    try:
        fd = fs.open_read(path)
    except (FileNotFoundError, NotADirectoryError):
        if _lost_its_file(root):
            raise FormatError(
                f"{path} is missing; put back the one of another copy of this store",
                path=str(path),
            ) from None
        raise NotFoundError(
            f"{root} is no store; make one there with `cas init`, or name another",
            path=str(root),
        ) from None
    try:
        content = fs.pread(fd, _MAX_BYTES, 0)
    finally:
        os.close(fd)
    try:
        return _parse(content)
    except NewerFormatError as error:
        raise NewerFormatError(f"store {root}: {error}", **error.facts) from None
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{path} is damaged ({error}); put back the one of another copy of this store",
            path=str(path),
        ) from None


def _parse(content: bytes) -> Identity:
    line, _, rest = content.partition(b"\n")
    if rest != b"blake3:" + hash_bytes(line).hex().encode() + b"\n":
        raise ValueError("its checksum does not match")
    told = json.loads(line)
    if type(told["format"]) is not int or told["format"] < 1:
        raise ValueError("it has no format number")
    if told["format"] > FORMAT:
        raise NewerFormatError(
            f"format {told['format']} is newer than the {FORMAT} known here; use a newer release "
            "of cas-store",
            format=told["format"],
        )
    if not _ID.fullmatch(told["id"]) or type(told["shared"]) is not bool:
        raise ValueError("a field has the wrong form")
    return Identity(id=told["id"], shared=told["shared"], created_at=str(told["created_at"]))
