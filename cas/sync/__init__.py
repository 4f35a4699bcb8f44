"""Two stores: names and what they reach from one to the other. See `docs/sync.md`."""

from cas.sync.clone import clone
from cas.sync.plan import Renumbered
from cas.sync.result import Synced
from cas.sync.transferring import transfer

__all__ = ["Renumbered", "Synced", "clone", "transfer"]
