"""The memory of what a file's stat was when its content had a digest.

One stream in walk order, written and read front to back in bounded memory: ingest keeps one as its
cache, a workspace keeps one of what checkout made. Walk order is that of entries, not of folders: a
folder's entries come in the order of their names' bytes, and right after the entry of a subfolder
come that subfolder's entries (`docs/format.md`, 'Caches').

An entry may stand for its file's content only if `trusted` says so: a file that was changed in the
same tick of the clock in which it was looked at keeps its stat.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cas import codec, fs
from cas.digest import DIGEST_SIZE, raw_hash
from cas.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAGIC: Final = b"CASSTAT\x01"
MAX_RUN: Final = 1024
"""Most entries of one run."""
FIELDS: Final = 5
"""Numbers an entry in `Run.stats`: size, mtime_ns, ctime_ns, dev, ino."""

_BLOCK_ENTRIES = 1024
_BLOCK_BYTES = 1 << 16
_MAX_BLOCK = 16 << 20
_HEADER = 4 + DIGEST_SIZE
_END_FIELDS = 4

COARSE_NS: Final = 2_000_000_000
"""Tick of a filesystem that keeps whole seconds (FAT keeps every other one)."""
_SECOND = 1_000_000_000


def trusted(mtime_ns: int, ctime_ns: int, at_ns: int) -> bool:
    """Tell whether an equal stat proves equal content.

    It does if the file's last change was over, and the clock had moved on, before the file was
    looked at: any later change then carries a later time. ctime is part of the key because nobody
    can put it back.

    Args:
        mtime_ns: The file's mtime.
        ctime_ns: The file's ctime.
        at_ns: The clock before the stat was taken and the content read.
    """
    return settles_at(mtime_ns, ctime_ns) <= at_ns


def settles_at(mtime_ns: int, ctime_ns: int) -> int:
    """Return the clock from which on any change of a file will show in its stat."""
    grain = fs.CLOCK_GRAIN_NS if ctime_ns % _SECOND else COARSE_NS
    return max(mtime_ns, ctime_ns) + grain


class Entry(NamedTuple):
    """One remembered entry; a folder has zeros for its stat."""

    name: bytes
    type: str
    size: int
    mtime_ns: int
    ctime_ns: int
    dev: int
    ino: int
    digest: bytes
    at_ns: int


class Run(NamedTuple):
    """Neighbouring entries of one folder, as columns: comparing two runs is comparing lists.

    A run ends at the latest after the entry of a subfolder.
    """

    folder: bytes
    """Path of the folder below the root, names joined by "/"; b"" is the root."""
    at_ns: int
    """The clock before the first of its stats was taken."""
    names: list[bytes]
    types: str
    """One letter an entry, as in a tree."""
    stats: list[int]
    """`FIELDS` numbers an entry: size, mtime_ns, ctime_ns, dev, ino."""
    digests: bytes
    """`DIGEST_SIZE` bytes an entry."""

    def settled(self) -> bool:
        """Tell that every entry is trusted."""
        stats = self.stats
        ctimes = stats[2::FIELDS]
        newest = max(max(stats[1::FIELDS]), max(ctimes))
        if newest + COARSE_NS <= self.at_ns:
            return True
        if newest + fs.CLOCK_GRAIN_NS > self.at_ns:
            return False
        return all(map(trusted, stats[1::FIELDS], ctimes, repeat(self.at_ns)))

    def entries(self) -> Iterator[Entry]:
        """Yield the run's entries in order."""
        at, stats, digests = self.at_ns, self.stats, self.digests
        for i, (name, kind) in enumerate(zip(self.names, self.types, strict=True)):
            size, mtime, ctime, dev, ino = stats[FIELDS * i : FIELDS * i + FIELDS]
            digest = digests[DIGEST_SIZE * i : DIGEST_SIZE * i + DIGEST_SIZE]
            yield Entry(name, kind, size, mtime, ctime, dev, ino, digest, at)


class End(NamedTuple):
    """The end of a folder: what its tree was, for who finds everything in it unchanged."""

    folder: bytes
    files: int
    """Recursive count, as in a tree."""
    size: int
    """Recursive sum of sizes."""
    tree: bytes
    """Digest of the tree."""


class Sink(Protocol):
    """What a writer writes to: a file opened for bytes."""

    def write(self, data: bytes, /) -> object:
        """Take all of the bytes."""


class Source(Protocol):
    """What a reader reads from: a file opened for bytes, at its beginning."""

    def read(self, size: int, /) -> bytes:
        """Return that many bytes, fewer only at the end."""


Position = tuple[bytes, ...]

_LAST: Final = b"\xff" * 256
"""Greater than any name: names have at most 255 bytes."""


def position(folder: bytes, name: bytes) -> Position:
    """Return the place of an entry in walk order, to be compared with others."""
    return (*folder.split(b"/"), name) if folder else (name,)


class StatIndexWriter:
    """Writes an index; what is added must come in walk order, which is the caller's to keep."""

    def __init__(self, sink: Sink) -> None:
        """Write the head of an index to `sink`."""
        self._sink = sink
        self._items: list[Run | End] = []
        self._weight = 0
        self._bytes = 0
        self._number = 0
        self._total = 0
        self._folder = b""
        self._at_ns = 0
        self._names: list[bytes] = []
        self._types: list[str] = []
        self._stats: list[int] = []
        self._digests: list[bytes] = []
        sink.write(MAGIC)

    def add(
        self,
        folder: bytes,
        name: bytes,
        kind: str,
        stat: Sequence[int] = (0, 0, 0, 0, 0),
        digest: bytes = bytes(DIGEST_SIZE),
        *,
        at_ns: int = 0,
    ) -> None:
        """Add one entry.

        Args:
            folder: Path of its folder below the root; b"" is the root.
            name: Its name.
            kind: Its type letter, as in a tree.
            stat: size, mtime_ns, ctime_ns, dev, ino; zeros for a folder.
            digest: What its content had; zeros where there is none.
            at_ns: The clock before the stat was taken. A run keeps its earliest.
        """
        if folder != self._folder or len(self._names) >= MAX_RUN:
            self._end_run()
        if not self._names or at_ns < self._at_ns:
            self._at_ns = at_ns
        self._folder = folder
        self._names.append(name)
        self._types.append(kind)
        self._stats += stat
        self._digests.append(digest)
        if kind == "d":
            self._end_run()

    def add_run(self, run: Run) -> None:
        """Add a run of 1 to `MAX_RUN` entries as it is."""
        self.append(run)

    def append(self, item: Run | End) -> None:
        """Add a run of 1 to `MAX_RUN` entries, or the end of a folder, as it is."""
        self._end_run()
        self._append(item)

    def _end_run(self) -> None:
        if self._names:
            self._append(
                Run(
                    self._folder,
                    self._at_ns,
                    self._names,
                    "".join(self._types),
                    self._stats,
                    b"".join(self._digests),
                )
            )
            self._names, self._types, self._stats, self._digests = [], [], [], []

    def _append(self, item: Run | End) -> None:
        self._items.append(item)
        self._bytes += len(item.folder)
        if isinstance(item, Run):
            self._weight += len(item.names)
            self._total += len(item.names)
        else:
            self._weight += 1
        if self._weight >= _BLOCK_ENTRIES or self._bytes >= _BLOCK_BYTES:
            self._end_block()

    def _end_block(self) -> None:
        if self._items:
            self._write([self._number, self._items])
            self._number += 1
            self._items, self._weight, self._bytes = [], 0, 0

    def _write(self, value: list[object]) -> None:
        payload = codec.encode_plain(value)
        self._sink.write(len(payload).to_bytes(4, "big") + raw_hash(payload) + payload)

    def finish(self) -> None:
        """Write what is pending and the end mark; the sink stays open and is not synced."""
        self._end_run()
        self._end_block()
        self._write([self._number, None, self._total])


class StatIndexReader:
    """Reads an index alongside a walk, each part once, passing over what the walk no longer has.

    A damaged block is passed over; `damaged` counts them, and what was cut off counts as one, once
    the reader has come to the end. Nothing that a source holds makes it raise, except for a read
    that fails.

    Attributes:
        damaged: How many blocks were damaged or missing so far.
        taken: How many runs and ends were handed out or passed over so far.
        passed: How many of these were passed over.
    """

    def __init__(self, source: Source) -> None:
        """Check the head of the index; one that is not an index reads as an empty, damaged one."""
        self.damaged = 0
        self.taken = -1
        self.passed = 0
        self._source: Source | None = source
        self._number = 0
        self._total = 0
        self._items: list[list[object]] = []  # of the current block, last one first
        self._next: Run | End | None = None
        self._at: Position = ()
        if source.read(len(MAGIC)) != MAGIC:
            self._cut()
        self._advance()

    def next_run(self, folder: bytes, last: bytes) -> Run | None:
        """Return the next run of `folder` that begins at or before the name `last`.

        What comes before it in walk order is passed over; calls follow walk order.
        """
        limit = position(folder, last)
        while (item := self._next) is not None and self._at <= limit:
            self._advance()
            if item.folder == folder and isinstance(item, Run):
                return item
            self.passed += 1
        return None

    def end(self, folder: bytes) -> End | None:
        """Return the end of `folder` if the index has it; what comes before is passed over."""
        limit = position(folder, _LAST)
        while (item := self._next) is not None and self._at <= limit:
            self._advance()
            if item.folder == folder and isinstance(item, End):
                return item
            self.passed += 1
        return None

    def entries(self, folder: bytes) -> Iterator[Entry]:
        """Yield the entries of `folder` in order.

        It may be called for a subfolder when that one's entry has been yielded, before the next
        entry is asked for; the entries of a subfolder for which it is not called are passed over.
        """
        inside = folder + b"/" if folder else b""
        start = position(folder, b"") if folder else ()
        while (item := self._next) is not None:
            if item.folder == folder:
                self._advance()
                if isinstance(item, Run):
                    yield from item.entries()
            elif self._at < start or item.folder.startswith(inside):
                self._advance()
            else:
                return

    def runs(self) -> Iterator[Run]:
        """Yield all runs that are left, in order."""
        for item in self.items():
            if isinstance(item, Run):
                yield item

    def items(self) -> Iterator[Run | End]:
        """Yield all that is left, in order."""
        while (item := self._next) is not None:
            self._advance()
            yield item

    def _advance(self) -> None:
        if self._next is not None or self.taken < 0:
            self.taken += 1
        while not self._items:
            if self._source is None:
                self._next = None
                return
            self._read_block()
        fields = self._items.pop()
        # The checksum vouches for the shape.
        if len(fields) == _END_FIELDS:
            end = End(*fields)  # type: ignore[arg-type]
            self._at = position(end.folder, _LAST)
            self._next = end
        else:
            run = Run(*fields)  # type: ignore[arg-type]
            self._at = position(run.folder, run.names[0])
            self._next = run

    def _read_block(self) -> None:
        assert self._source is not None
        header = self._source.read(_HEADER)
        length = int.from_bytes(header[:4], "big")
        if len(header) < _HEADER or length > _MAX_BLOCK:
            self._cut()
            return
        payload = self._source.read(length)
        if len(payload) < length:
            self._cut()
            return
        if raw_hash(payload) != header[4:]:
            self.damaged += 1
            self._number = -1  # a block is missing: its number and its entries are not known
            return
        try:
            block = codec.decode_sealed(payload)
        except FormatError:
            self._cut()
            return
        number, items = block[0], block[1]
        if self._number >= 0 and number != self._number:
            self.damaged += 1
            self._number = -1
        if items is None:
            if self._number >= 0 and block[2] != self._total:
                self.damaged += 1
            self._source = None
            return
        if self._number >= 0:
            self._number += 1
        self._total += sum(len(item[2]) for item in items if len(item) != _END_FIELDS)
        items.reverse()
        self._items = items

    def _cut(self) -> None:
        self.damaged += 1
        self._source = None
