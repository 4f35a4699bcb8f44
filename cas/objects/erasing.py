"""Erasing: taking every copy of some objects off the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.errors import DamagedError, FormatError, NewerFormatError
from cas.objects.chunks import chunked
from cas.objects.entries import ENTRY
from cas.objects.loose import loose_key
from cas.objects.pack import PREFIX as PACKS
from cas.objects.pack import read_end, read_index
from cas.objects.rewriting import write_anew

if TYPE_CHECKING:
    from cas.objects.store import ObjectStore

_QUARANTINE: Final = "quarantine/"
_PIECE: Final = 1 << 20


def chunks_of(store: ObjectStore, digest: bytes) -> frozenset[bytes]:
    """Return the chunks that an object is stored in and no other is."""
    own: set[bytes] = set()
    others: set[bytes] = set()
    for found, chunks in chunked(store):
        (own if found == digest else others).update(chunks)
    return frozenset(own - others)


def erase(store: ObjectStore, digests: frozenset[bytes]) -> tuple[int, int]:
    """Take every copy of some objects off the disk; those in quarantine as well.

    Nobody else may place, merge or delete objects meanwhile. Where it is cut short, it is to be run
    again.

    Args:
        store: The objects, just reloaded.
        digests: Which.

    Returns:
        How many copies there were, and the bytes that they took.

    Raises:
        DamagedError: A pack that is damaged may hold one.
        EnvironmentFailure: Something cannot be written or deleted.
    """
    copies = size = 0
    for digest in digests:
        found = store.loose.size(digest)
        if found is not None:
            store.backend.delete(loose_key(digest))
            copies, size = copies + 1, size + found
        store.loose.forget(digest)
    store.index.complete()
    for pack, _ in list(store.packs()):
        if pack not in store.index.covered:
            continue
        held = [
            place.stored
            for digest in digests
            for place in store.index.locate_all(digest)
            if place.pack == pack
        ]
        if not held:
            continue
        covered = store.index.covered[pack]
        if pack not in write_anew(store, [covered], needed=lambda one: one not in digests):
            raise _in_doubt(f"{PACKS}{pack}.pack")
        copies, size = copies + len(held), size + sum(held)
    for key in store.index.damaged:
        if key.startswith(PACKS):
            raise _in_doubt(key)
    return copies, size


def _in_doubt(key: str) -> DamagedError:
    return DamagedError(
        f"{key} is damaged and may hold a copy; repair the store, or move that file out of it, and "
        "purge again",
        location=key,
    )


def erase_quarantined(store: ObjectStore, digests: frozenset[bytes]) -> list[str]:
    """Delete the files in quarantine that hold some objects, and return their keys.

    A pack whose index cannot be read goes if a digest is found anywhere in it.
    """
    gone = []
    for entry in list(store.backend.list(_QUARANTINE)):
        named = any(digest.hex() in entry.key for digest in digests)
        if named or _holds(store, entry.key, digests):
            store.backend.delete(entry.key)
            gone.append(entry.key)
    return gone


def _holds(store: ObjectStore, key: str, digests: frozenset[bytes]) -> bool:
    """Say whether a pack holds an object, or may."""
    with store.backend.open(key) as reader:
        try:
            index = read_index(reader.read_at, read_end(reader.read_at, reader.size, key), key)
        except (FormatError, NewerFormatError):
            pass
        else:
            return any(fields[0] in digests for fields in ENTRY.iter_unpack(index))
        before = b""
        for offset in range(0, reader.size, _PIECE):
            piece = before + reader.read_at(offset, _PIECE)
            if any(digest in piece for digest in digests):
                return True
            before = piece[-32:]
    return False
