"""Proving what is stored: every byte of packs and loose objects, and tables against their packs.

Nothing here changes anything, and one finding does not end a check: what is right around it is
still counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from functools import partial
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cas.backends import Missing
from cas.digest import Digest, Hasher, hash_bytes, raw_hash
from cas.errors import CasError, CorruptObjectError, EnvironmentFailure, FormatError
from cas.objects.entries import (
    CHUNKS,
    ENCODINGS,
    ENTRY,
    ENTRY_SIZE,
    KINDS,
    MAX_PACKED,
    RAW,
    Location,
    is_sorted,
    split,
)
from cas.objects.loose import loose_key
from cas.objects.pack import HEADER_SIZE, pack_key, read_end, read_index
from cas.objects.table import PREFIX as TABLES
from cas.objects.table import Table, table_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cas.backends import Reader
    from cas.objects.store import ObjectStore

CORRUPT: Final = "corrupt"
MISSING: Final = "missing"
TRUNCATED: Final = "truncated"
UNREADABLE: Final = "unreadable"

_WINDOW: Final = 512 << 10
"""Bytes read at once: what a core keeps in its cache between hashing the pack and its objects."""
_PARALLEL: Final = 128 << 10
LARGE: Final = 16 << 20
"""Bytes of a loose object that are worth the work of all cores."""
_ORDINAL: Final = range(32, 36)
"""Where in an entry the pack's ordinal stands."""


class Finding(NamedTuple):
    """One thing that is wrong."""

    kind: str
    """corrupt, missing, truncated or unreadable."""
    digest: Digest | None
    """The object that is hit, where it is known."""
    location: str
    """Key, and offset after a colon where an object lies in a pack."""
    detail: str


class Checked(NamedTuple):
    """What a check looked at and what it found."""

    objects: int
    """Objects that are right."""
    bytes: int
    """Their bytes."""
    read: int
    """Bytes that were really read from where they lie."""
    findings: tuple[Finding, ...]


_Row = tuple[Any, ...]
"""An entry, unpacked."""


# --- packs -------------------------------------------------------------------------------------


def check_pack(store: ObjectStore, digest: bytes, *, quick: bool) -> Checked:
    """Prove a pack: its name, its index, each object in it.

    Damage inside an object names that object, damage elsewhere the pack.

    Args:
        store: Where it is.
        digest: The pack's.
        quick: Only look at structure and sizes; then no object counts as read.
    """
    return _PackCheck(store, digest).run(quick=quick)


class _PackCheck:
    """The check of one pack."""

    def __init__(self, store: ObjectStore, digest: bytes) -> None:
        self._store = store
        self._digest = digest
        self._key = pack_key(digest)
        self._findings: list[Finding] = []
        self._objects = 0
        self._bytes = 0
        self._read = 0

    def run(self, *, quick: bool) -> Checked:
        try:
            with self._store.backend.open(self._key) as reader:
                self._check(reader, quick=quick)
        except Missing:
            self._find(MISSING, None, "the pack is not there")
        except EnvironmentFailure as error:
            self._find(UNREADABLE, None, str(error))
        return Checked(self._objects, self._bytes, self._read, tuple(self._findings))

    def _find(self, kind: str, row: _Row | None, detail: str) -> None:
        if row is None:
            self._findings.append(Finding(kind, None, self._key, detail))
        else:
            location = f"{self._key}:{row[2]}"
            self._findings.append(Finding(kind, Digest(row[0]), location, detail))

    def _check(self, reader: Reader, *, quick: bool) -> None:
        recorded = self._store.index.covered.get(self._digest)
        cut = recorded is not None and reader.size < recorded.size
        if cut:
            assert recorded is not None, "a pack is cut only if its size is known"
            self._find(TRUNCATED, None, f"{reader.size} bytes are left of {recorded.size}")
        try:
            end = read_end(reader.read_at, reader.size, self._key)
            index = read_index(reader.read_at, end, self._key)
        except FormatError as error:
            if not cut:
                self._find(CORRUPT, None, str(error))
            if not quick:
                self._check_scattered(reader, self._tabled())
            return
        rows = list(ENTRY.iter_unpack(index))
        digests = [row[0] for row in rows]
        ordered = all(map(bytes.__lt__, digests, digests[1:]))
        rows.sort(key=itemgetter(2, 3))
        problem, ends = _structure(rows, end.index_offset)
        if problem or not ordered:
            problem = problem or "the index is not sorted, or holds an object twice"
            self._find(CORRUPT, None, problem)
            if not quick:
                self._check_scattered(reader, rows)
        elif not quick:
            self._check_content(reader, rows, ends)

    def _check_content(self, reader: Reader, rows: list[_Row], ends: list[int]) -> None:
        """Read a pack of sound structure once, from start to end.

        Args:
            reader: The pack.
            rows: Its entries in order of offsets.
            ends: How many of them lie before the end of each piece that is read at once.
        """
        hasher = Hasher(parallel=False)  # other cores have packs of their own
        hasher.update(reader.read_at(0, HEADER_SIZE))
        whole = True
        at = HEADER_SIZE
        for first, last in pairwise([0, *ends]):
            group = rows[first:last]
            start, at = at, group[-1][2] + group[-1][3]
            try:
                data = reader.read_at(start, at - start)
            except EnvironmentFailure:
                whole = False
                self._check_scattered(reader, group)
                continue
            hasher.update(data)
            self._check_window(data, start, group)
        self._read += at
        for offset in range(at, reader.size, _WINDOW):
            data = reader.read_at(offset, min(_WINDOW, reader.size - offset))
            hasher.update(data)
            self._read += len(data)
        if whole and not self._findings and hasher.digest() != self._digest:
            self._find(CORRUPT, None, "the pack is not what it was when it was named")

    def _check_window(self, data: bytes, start: int, group: list[_Row]) -> None:
        """Check objects whose stored bytes lie in `data`."""
        places = [row[2:6] for row in group]
        contents = self._store.decompressor.decode_all(memoryview(data), start, places)
        for row, content in zip(group, contents, strict=True):
            if content is None:
                if row[5] == CHUNKS:
                    self._check_chunks(row)
                else:
                    self._find(CORRUPT, row, "the bytes there cannot be decoded")
                continue
            size = row[4]
            if (raw_hash(content) if size < _PARALLEL else hash_bytes(content)) == row[0]:
                self._objects += 1
                self._bytes += size
            else:
                self._find(CORRUPT, row, "other bytes lie there")

    def _check_scattered(self, reader: Reader, rows: Iterable[_Row]) -> None:
        """Check objects one by one, where the pack around them cannot be trusted."""
        for row in rows:
            _, _, offset, stored, *_ = row
            if offset + stored > reader.size:
                self._find(TRUNCATED, row, "its bytes are cut off")
                continue
            try:
                data = reader.read_at(offset, stored)
            except EnvironmentFailure as error:
                self._find(UNREADABLE, row, str(error))
                continue
            self._read += len(data)
            self._check_window(data, offset, [row])

    def _check_chunks(self, row: _Row) -> None:
        digest, _, *place, _ = row
        try:
            for _ in self._store.stream_chunks(digest, Location(self._digest, *place)):
                pass
        except EnvironmentFailure as error:
            self._find(UNREADABLE, row, str(error))
        except CasError as error:
            self._find(CORRUPT, row, str(error))
        else:
            self._objects += 1
            self._bytes += row[4]

    def _tabled(self) -> Iterator[_Row]:
        """Give what a table says to be in this pack."""
        for table in self._store.index.tables:
            listed = [pack.digest for pack in table.packs]
            if self._digest in listed and table.sound():
                ordinal = listed.index(self._digest)
                for block in table.entries.blocks():
                    yield from (row for row in ENTRY.iter_unpack(block) if row[1] == ordinal)
                return


def _structure(rows: list[_Row], index_offset: int) -> tuple[str, list[int]]:
    """Say what is wrong with the places that a pack's index gives, if anything.

    Args:
        rows: The entries in order of offsets.
        index_offset: Where the index begins.

    Returns:
        The problem or nothing, and how many entries lie before the end of each window.
    """
    ends: list[int] = []
    if not rows:
        return "" if index_offset == HEADER_SIZE else "the index is empty", ends
    _, ordinals, offsets, stored, sizes, encodings, kinds, zeros = zip(*rows, strict=True)
    starts = [*accumulate(stored, initial=HEADER_SIZE)]
    end = starts.pop()
    for at, offset in zip(starts, offsets, strict=True):
        if at != offset:
            return f"objects overlap or leave a gap at {at}", ends
    if any(ordinals) or any(zeros) or max(encodings) >= len(ENCODINGS) or max(kinds) >= len(KINDS):
        return "an entry is not one that is known here", ends
    for at, packed, size, encoding in zip(starts, stored, sizes, encodings, strict=True):
        small = packed <= MAX_PACKED and (size <= MAX_PACKED or encoding == CHUNKS)
        if not small or (packed != size and encoding == RAW):
            return f"the object at {at} has a size that cannot be", ends
    while not ends or ends[-1] < len(rows):
        first = ends[-1] if ends else 0
        ends.append(bisect_left(starts, starts[first] + _WINDOW, first + 1))
    return "" if end == index_offset else "objects do not reach to the index", ends


# --- loose objects -----------------------------------------------------------------------------


def check_loose(store: ObjectStore, digests: Sequence[bytes], *, quick: bool) -> Checked:
    """Prove loose objects, and remember their stats as those of proven objects.

    Several are hashed at once, each by a thread of its own; a single large one on all cores.

    Args:
        store: Where they are.
        digests: Whose.
        quick: Only see that they are there; then they do not count as read.
    """
    if quick or len(digests) == 1:
        return _together([_check_loose(store, digest, quick=quick) for digest in digests])
    from concurrent.futures import ThreadPoolExecutor  # late: start-up time

    check = partial(_check_loose, store, quick=quick, alone=False)
    with ThreadPoolExecutor(len(digests)) as threads:
        return _together(list(threads.map(check, digests)))


def _together(parts: Sequence[Checked]) -> Checked:
    return Checked(
        sum(part.objects for part in parts),
        sum(part.bytes for part in parts),
        sum(part.read for part in parts),
        tuple(finding for part in parts for finding in part.findings),
    )


def _check_loose(store: ObjectStore, digest: bytes, *, quick: bool, alone: bool = True) -> Checked:
    key = loose_key(digest)
    name = Digest(digest)
    try:
        with store.loose.open(digest) as reader:
            size = reader.size
            if quick:
                return Checked(1, size, 0, ())
            store.loose.prove(digest, reader, parallel=alone and size >= LARGE)
            return Checked(1, size, size, ())
    except Missing:
        finding = Finding(MISSING, name, key, "the file is not there")
    except CorruptObjectError as error:
        finding = Finding(CORRUPT, name, key, str(error))
    except EnvironmentFailure as error:
        finding = Finding(UNREADABLE, name, key, str(error))
    return Checked(0, 0, 0, (finding,))


def check_objects(store: ObjectStore, digests: Iterable[bytes]) -> Checked:
    """Read and hash objects wherever they lie."""
    found: list[Finding] = []
    count = total = 0
    for digest in digests:
        try:
            size = 0
            for piece in store.stream(digest):
                size += len(piece)
        except CasError as error:
            found.append(_failure(digest, error))
        else:
            count += 1
            total += size
    return Checked(count, total, total, tuple(found))


def _failure(digest: bytes, error: CasError) -> Finding:
    """Return what reading an object failed for, as a finding."""
    if isinstance(error, CorruptObjectError):
        kind = CORRUPT
    elif isinstance(error, EnvironmentFailure):
        kind = UNREADABLE
    else:
        kind = MISSING
    location = error.facts.get("location") or "nowhere in the store"
    return Finding(kind, Digest(digest), str(location), str(error))


# --- tables ------------------------------------------------------------------------------------


def check_tables(store: ObjectStore, *, quick: bool) -> Checked:
    """Check every index table, against the packs that it covers, and that these are there.

    A table that names a pack which was merged away is sound: its objects lie elsewhere. Where they
    do not, each is reported as missing.

    Args:
        store: Where they are.
        quick: Do not read the entries.
    """
    store.reload()
    store.index.complete()
    findings: list[Finding] = []
    read = 0
    for entry in store.backend.list(TABLES):
        digest = table_digest(entry.key)
        if digest is None:
            continue
        try:
            table = Table.open(store.backend, digest)
        except Missing:
            continue
        except FormatError as error:
            findings.append(Finding(CORRUPT, None, entry.key, str(error)))
            continue
        except EnvironmentFailure as error:
            findings.append(Finding(UNREADABLE, None, entry.key, str(error)))
            continue
        try:
            if not quick:
                read += table.size
                problem = _check_table(store, table)
                if problem:
                    findings.append(Finding(CORRUPT, None, entry.key, problem))
                    continue
            findings += _lost(store, table)
        except EnvironmentFailure as error:
            findings.append(Finding(UNREADABLE, None, entry.key, str(error)))
        finally:
            table.close()
    return Checked(0, 0, read, tuple(findings))


def _check_table(store: ObjectStore, table: Table) -> str:
    """Return what is wrong with a table, or nothing."""
    if not table.sound():
        return "the table is not what it was when it was named"
    for slot in table.check_buckets():
        return f"bucket {slot} is not what its checksum says, or holds what belongs elsewhere"
    packs: list[bytes | None] = [
        None if pack.digest in store.index.gone else pack.digest for pack in table.packs
    ]
    at = [0] * len(packs)
    last = b""
    for block in table.entries.blocks():
        entries = split(block)
        if not is_sorted([last, *entries]):
            return "the entries are not sorted"
        last = entries[-1]
        own: list[bytes] = []
        ordinals = (block[i::ENTRY_SIZE] for i in _ORDINAL)
        for ordinal, count in Counter(zip(*ordinals, strict=True)).items():
            number = int.from_bytes(ordinal)
            if number >= len(packs):
                return "an entry names no pack"
            start, at[number] = at[number], at[number] + count
            pack = packs[number]
            part = None if pack is None else _own_entries(store, pack, start, at[number])
            if part is None:
                packs[number] = None  # the pack's own check says what is wrong with it
                entries = [entry for entry in entries if entry[32:36] != bytes(ordinal)]
            else:
                for i, byte in zip(_ORDINAL, ordinal, strict=True):
                    part[i::ENTRY_SIZE] = bytes([byte]) * (len(part) // ENTRY_SIZE)
                own += split(bytes(part))
        own.sort()
        if own != entries:
            return "its entries are not those of its packs"
    if at != [pack.entries for pack in table.packs]:
        return "packs have other numbers of entries than listed"
    return ""


def _own_entries(store: ObjectStore, pack: bytes, start: int, stop: int) -> bytearray | None:
    """Return some entries of a pack's own index; None if it cannot be read."""
    try:
        own = store.open_packs.run(pack)
        return bytearray(own.slice(start, min(stop, own.count)))
    except (Missing, FormatError):
        return None


def _lost(store: ObjectStore, table: Table) -> Iterator[Finding]:
    """Give the objects of a table that lay in packs which are gone, and lie nowhere else."""
    gone = {n: pack.digest for n, pack in enumerate(table.packs) if pack.digest in store.index.gone}
    if not gone:
        return
    for block in table.entries.blocks():
        for start in range(0, len(block), ENTRY_SIZE):
            pack = gone.get(int.from_bytes(block[start + 32 : start + 36]))
            digest = block[start : start + 32]
            if pack is None or store.index.holds(digest) or store.loose.size(digest) is not None:
                continue
            if next(store.index.ask_packs(digest), None) is None:
                detail = "the pack that held it is not there"
                yield Finding(MISSING, Digest(digest), pack_key(pack), detail)
