"""The object store: digest → bytes over a backend."""

from cas.objects.check import LARGE, Checked, Finding
from cas.objects.entries import BLOB, KINDS, SEED, TREE, VERSION
from cas.objects.mending import Mended, mend_pack, replace_tables
from cas.objects.store import ObjectInfo, ObjectStore, Totals
from cas.objects.transfer import Consignment, copy_file
from cas.objects.writer import ObjectWriter

__all__ = [
    "BLOB",
    "KINDS",
    "LARGE",
    "SEED",
    "TREE",
    "VERSION",
    "Checked",
    "Consignment",
    "Finding",
    "Mended",
    "ObjectInfo",
    "ObjectStore",
    "ObjectWriter",
    "Totals",
    "copy_file",
    "mend_pack",
    "replace_tables",
]
