"""Where objects lie in packs: the index tables of a store, and what they do not cover yet.

Tables are derived from packs. So whatever is wrong with a table costs time and nothing else: it is
put aside, and the packs that it covered are asked themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.backends import Missing
from cas.errors import EnvironmentFailure, FormatError
from cas.objects.entries import DIGEST_AND_SIZE, DIGEST_AT, ENTRY_SIZE, Location
from cas.objects.open_packs import OpenPacks, PackRun, held_run, matching
from cas.objects.pack import PREFIX as PACKS
from cas.objects.pack import Covered, pack_digest, pack_key
from cas.objects.table import PREFIX as TABLES
from cas.objects.table import WHOLE_LIMIT, Table, table_digest, table_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cas.backends import Backend

HELD: Final = 32 << 20
"""Bytes of tables and of packs' own indexes that are held in memory, at most."""

_RETRIES: Final = 20


class Index:
    """All that is known about where packed objects lie.

    Args:
        backend: The store's.
        packs: The open packs.
    """

    def __init__(self, backend: Backend, packs: OpenPacks) -> None:
        """Open the tables; packs are not looked at."""
        self._backend = backend
        self._packs = packs
        self._tables: dict[bytes, Table] = {}
        self._sources: list[Table | PackRun] = []
        self._loaded: list[tuple[bytes, list[int], int, Table]] = []
        self._others: list[Table | PackRun] = []
        self._held = 0
        self._complete = False
        self.gone: set[bytes] = set()
        """Packs that tables name and that are known not to be there any more."""
        self.damaged: dict[str, str] = {}
        """Keys of tables and packs whose index cannot be used, and why."""
        self._load()

    # --- what there is -------------------------------------------------------------------------

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables in use."""
        return tuple(self._tables.values())

    @property
    def runs(self) -> tuple[PackRun, ...]:
        """The packs that are asked themselves, after `complete`."""
        return tuple(source for source in self._sources if isinstance(source, PackRun))

    @property
    def covered(self) -> dict[bytes, Covered]:
        """The packs that tables and runs speak of and that are not known to be gone."""
        return {
            pack.digest: pack
            for source in self._sources
            for pack in source.packs
            if pack.digest not in self.gone
        }

    @property
    def is_complete(self) -> bool:
        """Whether every pack that there was at the last `complete` is accounted for."""
        return self._complete

    def reload(self) -> None:
        """Look again which tables there are, and forget what was concluded about packs."""
        self._complete = False
        self.gone.clear()
        self.damaged.clear()
        self._packs.close()
        self._load()

    def refresh(self) -> None:
        """Look again what there is, and account for every pack."""
        self._complete = False
        self.complete()

    def put_aside(self, table: Table) -> None:
        """Stop using a table that is damaged, and ask its packs themselves."""
        self._drop(table, FormatError(f"{table.key} is damaged", location=table.key))

    def add(self, digest: bytes) -> None:
        """Take in a table that was just written."""
        if digest not in self._tables:
            try:
                table = Table.open(self._backend, digest)
            except (Missing, FormatError):
                self.refresh()  # merged into another one already
                return
            self._tables[digest] = table
            covered = {pack.digest for pack in table.packs}
            # A pack seen before its table was there is not asked itself any more.
            self._sources = [
                source
                for source in self._sources
                if not (isinstance(source, PackRun) and source.packs[0].digest in covered)
            ]
            self._sources.append(table)
            self._order()

    def complete(self) -> None:
        """Compare the tables with the packs that there are, and ask uncovered ones themselves.

        Takes one listing of the packs; does nothing when called again before `reload`.
        """
        if self._complete:
            return
        # Tables first: a pack is there before the table that covers it.
        self._load()
        present = dict(self.listing())
        listed = {pack.digest for table in self.tables for pack in table.packs}
        self.gone = listed - present.keys()
        for digest in present.keys() - listed:
            try:
                covered, index = self._packs.index(digest)
                if self._held + len(index) <= HELD:
                    self._held += len(index)
                    run = held_run(covered, index)
                else:
                    run = PackRun(covered, self._packs.run(digest))
            except Missing:
                continue
            except (FormatError, EnvironmentFailure) as error:
                self.damaged[pack_key(digest)] = str(error)
                continue
            self._sources.append(run)
        self._order()
        self._complete = True

    def listing(self) -> Iterator[tuple[bytes, int]]:
        """Give digest and size of the packs that there are."""
        for entry in self._backend.list(PACKS):
            digest = pack_digest(entry.key)
            if digest is not None:
                yield digest, entry.size

    def close(self) -> None:
        """Let go of all files."""
        for table in self._tables.values():
            table.close()
        self._tables.clear()
        self._sources = []
        self._order()

    # --- finding -------------------------------------------------------------------------------

    def locate(self, digest: bytes) -> Location | None:
        """Return where an object lies, or None if no table in use says so."""
        key = int.from_bytes(digest[:8])
        for data, ends, shift, table in self._loaded:
            slot = key >> shift
            base = ends[slot]
            at = data.find(digest, base, ends[slot + 1])
            if at >= 0:
                if (at - base) % ENTRY_SIZE == 0:
                    found = table.location(data[at : at + ENTRY_SIZE])
                    if found.pack not in self.gone:
                        return found
                # Rare: two packs hold it and one is gone, or a digest made to lie across entries.
                for found in table.find_all(digest):
                    if found.pack not in self.gone:
                        return found
        for source in self._others:
            try:
                if isinstance(source, Table) and source.warm() and self._hold(source):
                    return self.locate(digest)
                for found in source.find_all(digest):
                    if found.pack not in self.gone:
                        return found
            except FormatError as error:
                self._drop(source, error)
                return self.locate(digest)
        return None

    def holds(self, digest: bytes) -> bool:
        """Say whether a table in use says where an object lies: `locate`, but faster."""
        if not self.gone:
            key = int.from_bytes(digest[:8])
            for data, ends, shift, _ in self._loaded:
                slot = key >> shift
                base = ends[slot]
                at = data.find(digest, base, ends[slot + 1])
                if at >= 0 and (at - base) % ENTRY_SIZE == 0:
                    return True
            if not self._others:
                return False
        return self.locate(digest) is not None

    def unlike(self, items: Iterable[bytes]) -> list[bytes]:
        """Give the items that the tables in memory do not show to be there as they say.

        The rest is sure; of these it is only not known yet.

        Args:
            items: Digests, each with the object's size in 8 bytes, big-endian, behind it.
        """
        left = list(items)
        for data, ends, shift, _ in self._loaded if not self.gone else ():
            shown: set[bytes] = set()
            for slot in {int.from_bytes(item[:8]) >> shift for item in left}:
                bucket = data[ends[slot] : ends[slot + 1]]
                shown.update(map(b"".join, DIGEST_AND_SIZE.iter_unpack(bucket)))
            left = [item for item in left if item not in shown]
        return left

    def locate_all(self, digest: bytes) -> Iterator[Location]:
        """Give every place of an object that the tables in use know."""
        for source in tuple(self._sources):
            try:
                places = list(source.find_all(digest))
            except FormatError as error:
                self._drop(source, error)
                yield from self.locate_all(digest)
                return
            for place in places:
                if place.pack not in self.gone:
                    yield place

    def ask_packs(self, digest: bytes) -> Iterator[Location]:
        """Give every place of an object by asking each pack's own index, whatever tables say."""
        for pack, _ in self.listing():
            try:
                yield from matching(self._packs.run(pack), pack, digest)
            except (Missing, FormatError):
                continue

    def find(self, prefix: bytes) -> Iterator[bytes]:
        """Give digests that begin with whole bytes `prefix`, some of them maybe twice."""
        self.complete()
        for source in self._sources:
            for entry in source.entries.matching(prefix):
                yield entry[DIGEST_AT]

    # --- inside --------------------------------------------------------------------------------

    def _load(self) -> None:
        """Open the tables that are new and forget those that are gone."""
        for _ in range(_RETRIES):
            names = {
                digest
                for entry in self._backend.list(TABLES)
                if (digest := table_digest(entry.key)) is not None
            }
            for gone in self._tables.keys() - names:
                self._forget(self._tables.pop(gone))
            try:
                for digest in names - self._tables.keys():
                    if table_key(digest) not in self.damaged:
                        self._open(digest)
            except Missing:
                continue  # merged away between listing and opening: a newer one covers it
            break
        self._held = sum(table.held for table in self.tables)
        self._sources = list(self._tables.values())
        self._order()

    def _open(self, digest: bytes) -> None:
        try:
            self._tables[digest] = Table.open(self._backend, digest)
        except FormatError as error:
            self.damaged[table_key(digest)] = str(error)

    def _order(self) -> None:
        """Ask what is in memory first, and of it the largest: most of what is there lies in it."""
        self._sources.sort(key=lambda source: -source.entries.count)
        tables = [table for table in self._sources if isinstance(table, Table) and table.loaded]
        self._loaded = [(table.data, table.ends, table.shift, table) for table in tables]
        self._others = [source for source in self._sources if source not in tables]

    def _hold(self, table: Table) -> bool:
        """Load a table that is used much, or at least its fan-out, if there is memory for it."""
        if table.size > WHOLE_LIMIT or self._held + table.size > HELD:
            if self._held < HELD:
                self._held += table.load_slots()
            return False
        table.load()
        self._held += table.size
        self._order()
        return True

    def _forget(self, table: Table) -> None:
        self._held -= table.held
        table.close()

    def _drop(self, source: Table | PackRun, error: FormatError) -> None:
        """Put a damaged table aside and ask its packs themselves."""
        if isinstance(source, PackRun):
            self.damaged[pack_key(source.packs[0].digest)] = str(error)
            self._sources.remove(source)
            self._order()
            return
        self.damaged[source.key] = str(error)
        self._forget(self._tables.pop(source.digest))
        self._complete = False
        self.complete()
