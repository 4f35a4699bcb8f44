"""What a workspace remembers of its checkout.

Specified in `docs/format.md`, "Workspaces".
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from cas import codec, fs
from cas.digest import DIGEST_SIZE, Digest, hash_bytes
from cas.errors import (
    CasError,
    DamagedError,
    FormatError,
    NewerFormatError,
    NotFoundError,
    environment_failure,
)
from cas.names import MEMORY

if TYPE_CHECKING:
    from types import TracebackType


STATE: Final = b"state"
LOCK: Final = b"lock"
INCOMING: Final = b"incoming"
FORMAT: Final = 1
MAX_STATE: Final = 1 << 20

_ID: Final = re.compile(r"[0-9a-f]{32}")
_INDEX: Final = re.compile(r"index-[0-9a-f]{8}")
_NO_DIGEST: Final = Digest(bytes(DIGEST_SIZE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Where an update that has not finished is going.

    Attributes:
        spec: What it goes to, as it was asked for.
        manifest: The version or seed that this named, if it named one.
        tree: The tree.
        via: Trees that earlier updates were on their way to when they were cut short.
    """

    spec: str
    manifest: Digest | None
    tree: Digest
    via: tuple[Digest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceState:
    """The memory of one workspace.

    Who asks for a checkout fills in the first four; the rest is what the checkout did.

    Attributes:
        store_path: Where the store was.
        store_id: The store's identity, which all its copies share.
        spec: What was checked out, as it was asked for.
        manifest: The version or seed that it named, if it named one.
        tree: The tree that the workspace holds.
        mode: `copy`, `reflink` or `hardlink`.
        only: The globs that its paths had to match; empty for all of the tree.
        created_at: UTC time of the checkout or last update, ISO 8601.
        id: 32 hexadecimal digits, the workspace's own.
        index: Name of the file in the memory that holds the stat of every path.
        exec_bits: Whether the filesystem keeps executable bits.
        intent: Set while an update is under way or was cut short.
    """

    store_path: Path
    store_id: str
    spec: str
    manifest: Digest | None = None
    tree: Digest = _NO_DIGEST
    mode: str = "copy"
    only: tuple[str, ...] = ()
    created_at: str = ""
    id: str = ""
    index: str = ""
    exec_bits: bool = True
    intent: Intent | None = None

    def to_bytes(self) -> bytes:
        """Return the content of the state file: the encoded state and its digest."""
        intent = self.intent
        return seal(
            {
                "store_path": os.fsencode(self.store_path),
                "store_id": self.store_id,
                "spec": text_bytes(self.spec),
                "manifest": self.manifest,
                "tree": self.tree,
                "mode": self.mode,
                "only": [text_bytes(glob) for glob in self.only],
                "created_at": self.created_at,
                "id": self.id,
                "index": self.index,
                "exec_bits": self.exec_bits,
                "intent": intent
                and {
                    "spec": text_bytes(intent.spec),
                    "manifest": intent.manifest,
                    "tree": intent.tree,
                    "via": intent.via,
                },
            },
            "workspace",
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the content of a state file.

        Raises:
            FormatError: It is damaged.
            NewerFormatError: A newer release wrote it.
        """
        body = unseal(data, "workspace")
        try:
            intent = body["intent"]
            state = cls(
                store_path=Path(os.fsdecode(body["store_path"])),
                store_id=body["store_id"],
                spec=os.fsdecode(body["spec"]),
                manifest=_digest_or_none(body["manifest"]),
                tree=Digest(body["tree"]),
                mode=body["mode"],
                only=tuple(os.fsdecode(glob) for glob in body["only"]),
                created_at=body["created_at"],
                id=body["id"],
                index=body["index"],
                exec_bits=body["exec_bits"],
                intent=intent
                and Intent(
                    spec=os.fsdecode(intent["spec"]),
                    manifest=_digest_or_none(intent["manifest"]),
                    tree=Digest(intent["tree"]),
                    via=tuple(Digest(tree) for tree in intent["via"]),
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"a field is missing or wrong: {error}") from None
        if not _ID.fullmatch(state.id) or not _INDEX.fullmatch(state.index):
            raise FormatError("its identity or the name of its index is none")
        return state


def text_bytes(text: str) -> bytes:
    """Return a text that may hold a path whose bytes are no UTF-8, as bytes."""
    return os.fsencode(text)


def _digest_or_none(raw: bytes | None) -> Digest | None:
    return None if raw is None else Digest(raw)


def seal(body: dict[str, Any], kind: str) -> bytes:
    """Return a memory of some kind as bytes that carry their digest."""
    data = codec.encode([kind, FORMAT, body])
    return data + hash_bytes(data)


def unseal(data: bytes, kind: str) -> dict[str, Any]:
    """Return what was sealed.

    Raises:
        FormatError: It is damaged, or of another kind.
        NewerFormatError: A newer release wrote it.
    """
    payload, checksum = data[:-DIGEST_SIZE], data[-DIGEST_SIZE:]
    if len(data) <= DIGEST_SIZE or hash_bytes(payload) != checksum:
        raise FormatError("its checksum does not match")
    value = codec.decode(payload, max_bytes=MAX_STATE)
    if type(value) is not list or len(value) != 3 or value[0] != kind:
        raise FormatError(f"it is no {kind} memory")
    if type(value[1]) is not int or type(value[2]) is not dict:
        raise FormatError(f"it is no {kind} memory")
    if value[1] > FORMAT:
        raise NewerFormatError(
            f"format {value[1]} is newer than the {FORMAT} known here: use a newer release"
        )
    body: dict[str, Any] = value[2]
    return body


class Opened:
    """A workspace with its root and memory folder open.

    Args:
        path: The workspace's directory.

    Raises:
        NotFoundError: There is no workspace at `path`.
        DamagedError: Its memory cannot be understood.
        EnvironmentFailure: It cannot be read.
    """

    __slots__ = ("memory", "path", "root", "state")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open both directories and read the state."""
        self.path = Path(os.path.abspath(path))
        self.root = -1
        self.memory = -1
        try:
            self.root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.memory = fs.open_dir(MEMORY, dir_fd=self.root)
            self.state = self._read()
        except (FileNotFoundError, NotADirectoryError) as error:
            self.close()
            if isinstance(error, CasError):
                raise
            raise NotFoundError(
                f"{self.path} is no workspace: no checkout made it", path=str(self.path)
            ) from None
        except OSError as error:
            self.close()
            raise environment_failure(error, f"opening the workspace {self.path}") from error
        except BaseException:
            self.close()
            raise

    def _read(self) -> WorkspaceState:
        fd = fs.open_read(STATE, dir_fd=self.memory)
        try:
            size = os.fstat(fd).st_size
            data = fs.pread(fd, min(size, MAX_STATE), 0)
        finally:
            os.close(fd)
        try:
            return WorkspaceState.from_bytes(data)
        except NewerFormatError as error:
            raise NewerFormatError(f"{self._shown(STATE)}: {error}") from None
        except FormatError as error:
            raise self.damaged(STATE, str(error)) from None

    def _shown(self, name: bytes) -> str:
        return os.fsdecode(os.path.join(os.fsencode(self.path), MEMORY, name))

    def damaged(self, name: bytes, why: str) -> DamagedError:
        """Return the error for a file of the memory that cannot be used."""
        return DamagedError(
            f"{self._shown(name)} is damaged: {why}; check out anew beside it, or delete "
            f"{self._shown(b'')[:-1]} to keep the files as an ordinary directory",
            path=self._shown(name),
        )

    def reload(self) -> None:
        """Read the state again.

        Raises:
            DamagedError: It cannot be understood.
            OSError: It cannot be read.
        """
        self.state = self._read()

    def save(self, state: WorkspaceState, *, durable: bool) -> None:
        """Replace the state, atomically."""
        write_state(self.memory, state, durable=durable)
        self.state = state

    def close(self) -> None:
        """Close both directories."""
        for fd in (self.memory, self.root):
            if fd >= 0:
                os.close(fd)
        self.memory = self.root = -1

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes the directories."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close both directories."""
        self.close()


def load(path: str | os.PathLike[str]) -> WorkspaceState:
    """Return what a workspace remembers.

    Raises:
        NotFoundError: There is no workspace at `path`.
        DamagedError: Its memory cannot be understood.
    """
    with Opened(path) as workspace:
        return workspace.state


def write_state(memory: int, state: WorkspaceState, *, durable: bool) -> None:
    """Put a state into a memory folder, replacing the one there atomically.

    Args:
        memory: A descriptor of the folder.
        state: What to remember.
        durable: Whether it must survive a power cut when this returns.
    """
    name = STATE + b"." + os.urandom(4).hex().encode()
    fd = fs.create_excl(name, 0o666, dir_fd=memory)
    try:
        fs.write_all(fd, state.to_bytes())
        if durable:
            fs.fsync(fd)
    finally:
        os.close(fd)
    fs.rename(name, STATE, src_dir_fd=memory, dst_dir_fd=memory)
    if durable:
        fs.fsync(memory)


def new_id() -> str:
    """Return a random identity for a workspace."""
    return os.urandom(16).hex()
