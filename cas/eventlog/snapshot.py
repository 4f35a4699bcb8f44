"""Snapshots: where a fold stood at a position, as the list of the segments that hold its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cas.digest import DIGEST_SIZE
from cas.errors import DamagedLogError, FormatError
from cas.eventlog.record import IDENTITY_SIZE, NO_DIGEST
from cas.eventlog.sealed import seal, unseal
from cas.eventlog.segment import SegmentInfo

if TYPE_CHECKING:
    from cas.backends import Backend
    from cas.eventlog.keys import Keys

MAX_SNAPSHOT: Final = 1 << 20
"""Bytes of a snapshot, at most."""


class Snapshot(NamedTuple):
    """One snapshot.

    Attributes:
        sequence: Its number, from 1; each is made from the one before it. 0 stands for the
            beginning of the log, which is no file.
        previous: The number of the one that it was made from, which is kept beside it.
        position: The last record that it holds.
        digest: The digest of that record.
        nonce: 16 random bytes that tell it from any other that was meant for its number.
        at: When it was written, by its writer's clock: UTC, ISO 8601.
        segments: What holds the state, oldest first; where several have a key, the newest counts.
    """

    sequence: int
    previous: int
    position: int
    digest: bytes
    nonce: bytes
    at: str
    segments: tuple[SegmentInfo, ...]

    def to_bytes(self) -> bytes:
        """Return what is stored."""
        return seal(
            "snapshot",
            self.sequence,
            self.previous,
            self.position,
            self.digest,
            self.nonce,
            self.at,
            [info.to_fields() for info in self.segments],
        )

    @classmethod
    def from_bytes(cls, sealed: bytes, sequence: int) -> Snapshot:
        """Read what is stored.

        Raises:
            FormatError: Cut, changed, or not the snapshot of this number.
            NewerFormatError: Written by a newer version of this package.
        """
        own, previous, position, digest, nonce, at, segments = unseal(sealed, "snapshot", 7)
        if own != sequence:
            raise FormatError(f"it is snapshot {own!r}")
        if not (
            isinstance(previous, int)
            and 0 <= previous < sequence
            and isinstance(position, int)
            and position > 0
            and isinstance(digest, bytes)
            and len(digest) == DIGEST_SIZE
            and isinstance(nonce, bytes)
            and len(nonce) == IDENTITY_SIZE
            and isinstance(at, str)
            and isinstance(segments, list)
        ):
            raise FormatError("its fields are not those of a snapshot")
        infos = tuple(map(SegmentInfo.from_fields, segments))
        covered = 0
        for info in infos:
            if not covered < info.first <= info.last or info.first != covered + 1:
                raise FormatError("its segments do not follow each other")
            covered = info.last
        if covered != position:
            raise FormatError("its segments do not reach its position")
        return cls(sequence, previous, position, digest, nonce, at, infos)


BEGINNING: Final = Snapshot(0, 0, 0, NO_DIGEST, bytes(IDENTITY_SIZE), "", ())
"""What stands for a snapshot before there is one."""


def read_snapshot(backend: Backend, keys: Keys, sequence: int) -> Snapshot:
    """Read a snapshot.

    Raises:
        NotFoundError: There is none of this number.
        DamagedLogError: It is cut or changed.
    """
    try:
        sealed = backend.get(keys.snapshot(sequence), max_bytes=MAX_SNAPSHOT)
        return Snapshot.from_bytes(sealed, sequence)
    except FormatError as error:
        raise DamagedLogError(
            f"snapshot {sequence} of log {keys.name} is damaged: {error}; "
            "repair it from a copy of the store",
            location=keys.snapshot(sequence),
            detail=str(error),
        ) from None
