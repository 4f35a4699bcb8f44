"""What a person did to a workspace since its checkout: a walk over stats, not a re-read."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from cas import fs
from cas.digest import DIGEST_SIZE, hash_bytes, hash_fd
from cas.errors import environment_failure
from cas.manifests import DIR, EXEC, FILE, LINK
from cas.paths import paths_json
from cas.statindex import FIELDS, StatIndexReader, trusted
from cas.workspace.alongside import Alongside, join
from cas.workspace.memory import Opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cas.statindex import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a workspace differs from what was checked out; paths are bytes, sorted.

    Attributes:
        clean: Nothing differs.
        added: Files, links and empty directories that the checkout did not make.
        changed: Content, type or executable bit differ.
        deleted: Gone; of a directory that is gone, what was in it (itself where it was empty).
        spec: What was checked out.
        interrupted: Where an update was going that was cut short; None if none was. Running it
            again finishes it.
    """

    clean: bool
    added: tuple[bytes, ...]
    changed: tuple[bytes, ...]
    deleted: tuple[bytes, ...]
    spec: str = ""
    interrupted: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "clean": self.clean,
            **paths_json(added=self.added, changed=self.changed, deleted=self.deleted),
            "spec": self.spec,
            "interrupted": self.interrupted,
        }


def status(workspace: str | os.PathLike[str]) -> Status:
    """Say what was added, changed and deleted in a workspace since its checkout.

    A file whose stat is what it was is not read; one whose stat says nothing for certain is.

    Raises:
        NotFoundError: There is no workspace.
        DamagedError: Its memory is damaged.
        EnvironmentFailure: Something in it cannot be read.
    """
    with Opened(workspace) as opened:
        return status_of(opened)


def status_of(opened: Opened) -> Status:
    """Say what differs in an open workspace; as `status`."""
    try:
        with Alongside(opened.root) as walk, open_index(opened) as index:
            comparison = _Comparison(walk, exec_bits=opened.state.exec_bits)
            for run in index:
                comparison.take(run)
            walk.finish()
    except OSError as error:
        raise environment_failure(error, f"looking at the workspace {opened.path}") from error
    intent = opened.state.intent
    return Status(
        clean=not (walk.extra or comparison.changed or walk.missing),
        added=tuple(sorted(walk.extra)),
        changed=tuple(sorted(comparison.changed)),
        deleted=tuple(sorted(walk.missing)),
        spec=opened.state.spec,
        interrupted=intent.spec if intent else None,
    )


@contextmanager
def open_index(opened: Opened) -> Iterator[Iterator[Run]]:
    """Open the stat index of a workspace and give its runs.

    Raises:
        DamagedError: It is missing or damaged; damage is said before anything that follows it.
    """
    name = opened.state.index.encode()
    try:
        fd = fs.open_read(name, dir_fd=opened.memory)
    except FileNotFoundError:
        raise opened.damaged(name, "it is missing") from None
    with open(fd, "rb", buffering=1 << 17) as source:
        yield _sound_runs(opened, name, source)


def _sound_runs(opened: Opened, name: bytes, source: BinaryIO) -> Iterator[Run]:
    reader = StatIndexReader(source)
    for run in reader.runs():
        if reader.damaged:
            break
        yield run
    if reader.damaged:
        raise opened.damaged(name, "a checksum does not match")


class _Comparison:
    """Compares a workspace with its index; `changed` collects the paths that differ."""

    def __init__(self, walk: Alongside, *, exec_bits: bool) -> None:
        self._walk = walk
        self.changed: list[bytes] = []
        # What of a mode has to be what: by type, the bits that count and their value.
        exec_bit = stat.S_IXUSR if exec_bits else 0
        kind = stat.S_IFMT(0o777777)
        self._modes = {
            DIR: (kind, stat.S_IFDIR),
            LINK: (kind, stat.S_IFLNK),
            FILE: (kind | exec_bit, stat.S_IFREG),
            EXEC: (kind | exec_bit, stat.S_IFREG | exec_bit),
        }

    def take(self, run: Run) -> None:
        """Compare the entries of one run."""
        walk = self._walk
        folder = run.folder
        at = walk.enter(folder)
        if at is None:
            walk.lack_below(folder, run.names)
            return
        look = os.stat
        modes = self._modes
        stats = run.stats
        settled = run.settled()
        for i, text in enumerate(walk.expect(run.names)):
            kind = run.types[i]
            try:
                st = look(text, dir_fd=at, follow_symlinks=False)
            except FileNotFoundError:
                walk.lack(join(folder, run.names[i]), is_dir=kind == DIR)
                continue
            mask, wanted = modes[kind]
            if st.st_mode & mask != wanted:
                self.changed.append(join(folder, run.names[i]))
                if kind == DIR:
                    walk.replaced(self.changed[-1])
                continue
            if kind == DIR:
                walk.descend(join(folder, run.names[i]))
                continue
            j = FIELDS * i
            if (
                st.st_mtime_ns == stats[j + 1]
                and st.st_ctime_ns == stats[j + 2]
                and st.st_size == stats[j]
                and st.st_ino == stats[j + 4]
                and (settled or trusted(stats[j + 1], stats[j + 2], run.at_ns))
            ):
                continue
            if not _same_content(at, text, kind, st.st_size, run, i):
                self.changed.append(join(folder, run.names[i]))


def _same_content(at: int, name: str, kind: str, size: int, run: Run, i: int) -> bool:
    """Tell, by reading it, whether something has the content that the index says."""
    wanted = run.digests[DIGEST_SIZE * i : DIGEST_SIZE * i + DIGEST_SIZE]
    if kind == LINK:
        return hash_bytes(fs.readlink(name, dir_fd=at)) == wanted
    if size != run.stats[FIELDS * i]:
        return False
    fd = fs.open_read(name, dir_fd=at)
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and hash_fd(fd) == wanted
    finally:
        os.close(fd)
