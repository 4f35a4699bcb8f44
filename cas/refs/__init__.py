"""Refs: names for digests, as the catalogue's log says.

The log's events and the keys of its state are specified in `docs/format.md`, "The catalogue's
events". Every rule about names is enforced in the fold: an event that breaks one is refused before
its record is written, whoever wrote it.
"""

from cas.eventlog import Appended, Event
from cas.refs.fold import MAX_AFFECTED, MAX_MANIFEST, fold
from cas.refs.keys import PUBLICATION_SIZE
from cas.refs.view import (
    CATALOGUE,
    Purge,
    Refs,
    SeedRef,
    TagMove,
    TagRef,
    VersionRef,
    create_catalogue,
    open_catalogue,
)

__all__ = [
    "CATALOGUE",
    "MAX_AFFECTED",
    "MAX_MANIFEST",
    "PUBLICATION_SIZE",
    "Appended",
    "Event",
    "Purge",
    "Refs",
    "SeedRef",
    "TagMove",
    "TagRef",
    "VersionRef",
    "create_catalogue",
    "fold",
    "open_catalogue",
]
