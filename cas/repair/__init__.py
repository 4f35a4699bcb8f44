"""Repair: good copies for what is damaged or lost. See `docs/repair.md`."""

from cas.repair.identity import mend_identity
from cas.repair.repairing import repair
from cas.repair.result import Healed, Repaired

__all__ = ["Healed", "Repaired", "mend_identity", "repair"]
