"""Index tables: sorted entries of one or more packs, looked up without being loaded whole.

A table is derived: it can be rebuilt from the packs that it covers. Entries lie in buckets by the
leading bits of the digest; a bucket carries a checksum of its own, so one that was damaged is
noticed by the lookup that reads it and never believed.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from cas.digest import Digest, Hasher, hash_bytes, raw_hash
from cas.errors import FormatError, RefusedError
from cas.objects.entries import ENTRY_SIZE, PLACE, Entries, Location
from cas.objects.pack import Covered, check_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cas.backends import Backend, Reader

FORMAT: Final = 1
PREFIX: Final = "index/"
SUFFIX: Final = ".idx"

MAGIC: Final = b"CASINDX\x01"
END: Final = b"CASIEND\x01"
PACK: Final = struct.Struct(">32sQQQ")
SLOT: Final = struct.Struct(">Q8s")
"""Where the bucket ends, counted in entries; checksum of the bucket."""
TRAILER: Final = struct.Struct(">QQII32s8s")
"""Entries, packs, bits, format, checksum of packs and this, magic."""
_SEALED: Final = 24
_BUCKET: Final = struct.Struct(">QQQ")
_SLOT: Final = SLOT.size
_SUM: Final = 8

WHOLE_LIMIT: Final = 16 << 20
"""A table of at most so many bytes is held whole once it is used much; of others the fan-out."""
WARM: Final = 32
"""Lookups after which a table counts as used much."""

_FIRST: Final = len(MAGIC)
_PIECE: Final = 1 << 20
_ORDINAL: Final = slice(32, 36)


def table_key(digest: bytes) -> str:
    """Return the key of the table with that digest."""
    return f"{PREFIX}{digest.hex()}{SUFFIX}"


def table_digest(key: str) -> Digest | None:
    """Return the digest in a table's key, or None if the key is not one of a table."""
    if not key.startswith(PREFIX) or not key.endswith(SUFFIX):
        return None
    try:
        return Digest.parse(key[len(PREFIX) : -len(SUFFIX)])
    except RefusedError:
        return None


class _Shape(NamedTuple):
    """Where the parts of a table lie."""

    entries: int
    bits: int
    packs: int
    packs_at: int
    slots_at: int


class Table:
    """One index table, held open.

    Args:
        reader: Its file; closed with the table.
        digest: Its name.
        key: Its key, for messages.

    Raises:
        FormatError: It is not a table, or its list of packs is damaged.
    """

    def __init__(self, reader: Reader, digest: bytes, key: str) -> None:
        """Read the trailer and the list of packs, not the entries."""
        self.digest = digest
        self.key = key
        self.size = reader.size
        self._reader: Reader | None = reader
        self._shape, self.packs = _read_shape(reader, key)
        self._digests = [pack.digest for pack in self.packs]
        self.entries = Entries(reader.read_at, _FIRST, self._shape.entries)
        self.shift = 64 - self._shape.bits
        """By how much the first 64 bits of a digest are shifted to give its bucket."""
        self._used = 0
        self._slots = b""
        self.data = b""
        """The whole table, once it is loaded."""
        self.ends: list[int] = []
        """Where in `data` each bucket begins, and the last one ends."""

    @classmethod
    def open(cls, backend: Backend, digest: bytes) -> Table:
        """Open a table by its name.

        Raises:
            Missing: There is none.
            FormatError: It is damaged.
        """
        key = table_key(digest)
        reader = backend.open(key)
        try:
            return cls(reader, digest, key)
        except BaseException:
            reader.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def find_all(self, digest: bytes) -> Iterator[Location]:
        """Give every place of an object in the packs covered.

        Raises:
            FormatError: The bucket that would hold it is damaged.
        """
        bucket = self._bucket(int.from_bytes(digest[:8]) >> self.shift)
        at = bucket.find(digest)
        while at >= 0:
            if at % ENTRY_SIZE == 0:
                yield self.location(bucket[at : at + ENTRY_SIZE])
            at = bucket.find(digest, at + 1)

    def load(self) -> None:
        """Hold the whole table in memory, after a check of all of it.

        Raises:
            FormatError: It is not what it was when it was named.
        """
        if self._reader is None:
            return
        data = self._reader.read_at(0, self.size)
        if hash_bytes(data) != self.digest:
            raise FormatError(f"{self.key} is damaged", location=self.key)
        shape = self._shape
        slots = struct.unpack_from(">" + "QQ" * (1 << shape.bits), data, shape.slots_at)
        ends = [_FIRST, *(_FIRST + end * ENTRY_SIZE for end in slots[::2])]
        if ends[-1] != shape.packs_at or any(a > b for a, b in pairwise(ends)):
            raise FormatError(f"{self.key} has buckets out of order", location=self.key)
        self.data = data
        self.ends = ends
        self.entries = Entries(
            lambda offset, length: data[offset : offset + length], _FIRST, shape.entries
        )
        self.close()

    def sound(self) -> bool:
        """Read all of the table and say whether it is what it was when it was named."""
        if self._reader is None:
            return True  # checked when it was loaded
        hasher = Hasher()
        for offset in range(0, self.size, _PIECE):
            hasher.update(self._reader.read_at(offset, _PIECE))
        return hasher.digest() == self.digest

    def load_slots(self) -> int:
        """Hold the fan-out in memory, unchecked as it lies on the disk.

        Returns:
            How many bytes that takes.
        """
        if self._reader is None:
            return 0
        self._slots = self._reader.read_at(self._shape.slots_at, _SLOT << self._shape.bits)
        return len(self._slots)

    def warm(self) -> bool:
        """Count a lookup; True when it pays to `load`."""
        self._used += 1
        return self._used == WARM

    @property
    def loaded(self) -> bool:
        """Whether the table is held in memory."""
        return bool(self.ends)

    @property
    def held(self) -> int:
        """How many bytes of memory the table takes."""
        return self.size if self.ends else len(self._slots)

    def check_buckets(self) -> Iterator[int]:
        """Give the numbers of the buckets that are damaged or hold what belongs elsewhere.

        That the entries are sorted, which is for others to check, is taken for granted.
        """
        for slot in range(1 << self._shape.bits):
            try:
                bucket = self._bucket(slot)
            except FormatError:
                yield slot
                continue
            outer = (0, len(bucket) - ENTRY_SIZE) if bucket else ()
            if any(int.from_bytes(bucket[at : at + 8]) >> self.shift != slot for at in outer):
                yield slot

    def _bucket(self, slot: int) -> bytes:
        """Return the entries of a bucket, checked."""
        if self.ends:
            return self.data[self.ends[slot] : self.ends[slot + 1]]
        start, stop, total = self._slot(slot)
        if not start <= stop <= self._shape.entries:
            raise FormatError(f"{self.key} has a damaged bucket {slot}", location=self.key)
        bucket = self.entries.slice(start, stop)
        if total != _bucket_sum(slot, start, stop, bucket):
            raise FormatError(f"{self.key} has a damaged bucket {slot}", location=self.key)
        return bucket

    def _slot(self, slot: int) -> tuple[int, int, bytes]:
        """Return where a bucket begins and ends, and its checksum; all of it unchecked."""
        if self._slots:
            before = max(slot - 1, 0) * _SLOT
            start = int.from_bytes(self._slots[before : before + _SUM]) if slot else 0
            own = self._slots[slot * _SLOT : (slot + 1) * _SLOT]
            return start, int.from_bytes(own[:_SUM]), own[_SUM:]
        assert self._reader is not None, "a closed table is not asked"
        at = self._shape.slots_at + slot * _SLOT
        if not slot:
            own = self._reader.read_at(at, _SLOT)
            return 0, int.from_bytes(own[:_SUM]), own[_SUM:]
        pair = self._reader.read_at(at - _SLOT, 2 * _SLOT)
        return (
            int.from_bytes(pair[:_SUM]),
            int.from_bytes(pair[_SLOT : _SLOT + _SUM]),
            pair[_SLOT + _SUM :],
        )

    def location(self, entry: bytes) -> Location:
        """Return what an entry says.

        Raises:
            FormatError: It is of a pack that is not listed.
        """
        ordinal, offset, stored, size, encoding, kind = PLACE.unpack_from(entry, 32)
        if ordinal >= len(self._digests):
            raise FormatError(f"{self.key} has an entry of no pack", location=self.key)
        return Location(self._digests[ordinal], offset, stored, size, encoding, kind)


def _bucket_sum(slot: int, start: int, stop: int, bucket: bytes) -> bytes:
    return raw_hash(_BUCKET.pack(slot, start, stop) + bucket)[:_SUM]


def _read_shape(reader: Reader, key: str) -> tuple[_Shape, tuple[Covered, ...]]:
    """Read the end of a table, believing no number before it fits the file."""
    size = reader.size
    end = reader.read_at(size - TRAILER.size, TRAILER.size) if size >= TRAILER.size else b""
    if len(end) != TRAILER.size or not end.endswith(END):
        raise FormatError(f"{key} does not end like an index table", location=key)
    count, packs, bits, version, checksum, _ = TRAILER.unpack(end)
    packs_at = _FIRST + count * ENTRY_SIZE
    slots_at = packs_at + packs * PACK.size
    if bits > 40 or slots_at + (SLOT.size << bits) + TRAILER.size != size:
        raise FormatError(f"{key} has a trailer that does not fit the file", location=key)
    listed = reader.read_at(packs_at, packs * PACK.size)
    if raw_hash(listed + end[:_SEALED]) != checksum or reader.read_at(0, _FIRST) != MAGIC:
        raise FormatError(f"{key} has a damaged list of packs", location=key)
    check_format(version, FORMAT, key)
    covered = tuple(Covered(*fields) for fields in PACK.iter_unpack(listed))
    digests = [pack.digest for pack in covered]
    if digests != sorted(set(digests)) or sum(pack.entries for pack in covered) != count:
        raise FormatError(f"{key} has a damaged list of packs", location=key)
    return _Shape(count, bits, packs, packs_at, slots_at), covered


# --- writing -----------------------------------------------------------------------------------


class Run(NamedTuple):
    """What goes into a new table: sorted entries, and which of their packs are to be kept."""

    entries: Entries
    packs: Sequence[Covered]
    """In the order of the entries' ordinals."""


def write_table(backend: Backend, runs: Sequence[Run], keep: frozenset[bytes]) -> Digest:
    """Merge runs into one table and put it in place, durably.

    Memory stays bounded: digests are spread evenly, so the runs are merged range by range.

    Args:
        backend: Where the table goes.
        runs: What to merge; a pack that several cover is taken from the first.
        keep: Digests of the packs whose entries are wanted; at least one.

    Returns:
        The table's digest. It may have existed already.
    """
    owners: dict[bytes, tuple[int, Covered]] = {}
    for number, run in enumerate(runs):
        for pack in run.packs:
            if pack.digest in keep:
                owners.setdefault(pack.digest, (number, pack))
    packs = [pack for _, pack in sorted(owners.values(), key=lambda owner: owner[1].digest)]
    ordinals = {pack.digest: number.to_bytes(4) for number, pack in enumerate(packs)}
    renumber = [
        {
            old.to_bytes(4): ordinals[pack.digest]
            for old, pack in enumerate(run.packs)
            if owners.get(pack.digest, (-1,))[0] == number
        }
        for number, run in enumerate(runs)
    ]
    count = sum(pack.entries for pack in packs)
    with backend.stage() as staging:
        hasher = Hasher()

        def write(data: bytes) -> None:
            hasher.update(data)
            staging.write(data)

        write(MAGIC)
        slots = _Slots(count)
        for block in _merged(runs, renumber, count):
            slots.add(block)
            write(block)
        listed = b"".join(PACK.pack(*pack) for pack in packs)
        sealed = TRAILER.pack(count, len(packs), slots.bits, FORMAT, bytes(32), END)[:_SEALED]
        write(listed + slots.finish() + sealed + raw_hash(listed + sealed) + END)
        digest = hasher.digest()
        backend.put_if_absent(table_key(digest), staging)
    return digest


class _Slots:
    """The fan-out of a table, made while its entries go by in order."""

    def __init__(self, count: int) -> None:
        self.bits = max(0, (count // 16).bit_length() - 1)
        self.shift = 64 - self.bits
        self._slots = bytearray()
        self._closed = 0
        self._open: list[bytes] = []
        self._done = 0

    def add(self, block: bytes) -> None:
        """Take the next entries: all of a whole number of buckets, or of a part of one."""
        at = 0
        size = len(block)
        while at < size:
            slot = int.from_bytes(block[at : at + 8]) >> self.shift
            if slot != self._closed:
                self._close(slot)
            stop = at + ENTRY_SIZE
            while stop < size and int.from_bytes(block[stop : stop + 8]) >> self.shift == slot:
                stop += ENTRY_SIZE
            self._open.append(block[at:stop])
            at = stop

    def finish(self) -> bytes:
        """Return the fan-out."""
        self._close(1 << self.bits)
        return bytes(self._slots)

    def _close(self, until: int) -> None:
        """End the open bucket, and the empty ones up to but without `until`."""
        bucket = b"".join(self._open)
        self._open = []
        for slot in range(self._closed, until):
            start = self._done
            self._done += len(bucket) // ENTRY_SIZE
            total = _bucket_sum(slot, start, self._done, bucket)
            self._slots += SLOT.pack(self._done, total)
            bucket = b""
        self._closed = until


def _merged(
    runs: Sequence[Run], renumber: Sequence[dict[bytes, bytes]], count: int
) -> Iterator[bytes]:
    """Give the entries of all runs in one order, with their new ordinals."""
    bits = max(0, (count >> 15).bit_length())
    starts = [0] * len(runs)
    for part in range(1, (1 << bits) + 1):
        entries: list[bytes] = []
        limit = (part << (64 - bits)).to_bytes(8) if part < 1 << bits else None
        for number, run in enumerate(runs):
            start = starts[number]
            stop = run.entries.count if limit is None else run.entries.bisect(limit, start)
            starts[number] = stop
            entries += _renumbered(run.entries.slice(start, stop), renumber[number])
        entries.sort()
        yield b"".join(entries)


def _renumbered(block: bytes, ordinals: dict[bytes, bytes]) -> Iterable[bytes]:
    for at in range(0, len(block), ENTRY_SIZE):
        entry = block[at : at + ENTRY_SIZE]
        ordinal = ordinals.get(entry[_ORDINAL])
        if ordinal is not None:
            yield entry[:32] + ordinal + entry[36:]
