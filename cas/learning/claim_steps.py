"""Steps of the fold that claim candidates, renew claims and give them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cas.errors import RefusedError
from cas.learning.audit import Entry, put_entry
from cas.learning.document import encode_document
from cas.learning.fields import MOST, id_of, number_of
from cas.learning.ids import check_id
from cas.learning.keys import LEASE_FLOOR, PLACE_SIZE, TOKENS, open_floor
from cas.learning.rows import Held, find_row, iso, put_row
from cas.learning.rules import check_claimable, check_published, check_token, check_transition
from cas.learning.status import SYNTHESIZING

if TYPE_CHECKING:
    from cas.eventlog import MutableState
    from cas.learning.keys import Place

LONGEST_LEASE: Final = 366 * 24 * 3600 * 10**9
"""Nanoseconds that a lease may have, at most: a year."""


def claim(state: MutableState, event: dict[str, Any], place: Place) -> None:
    """Give a candidate to an owner, for a time, under a new token."""
    owner = id_of(event, "owner", "owner")
    at, row = find_row(state, id_of(event, "id", "candidate"))
    now, forced = number_of(event, "now"), event.get("forced") is True
    expires = now + _lease(event)
    check_claimable(row, now, forced=forced)
    if row.status != SYNTHESIZING:
        check_transition(state, row, SYNTHESIZING, forced=forced)
    if place.ordinal >= TOKENS:
        raise RefusedError(f"a record holds at most {TOKENS} claims; claim fewer at a time")
    if "floors" in event:
        _raise_floors(state, event["floors"])
    before = row.held.before if row.held else row.status
    held = Held(place.token(state), owner, expires, before)
    put_row(state, at, row._replace(status=SYNTHESIZING, held=held, updated_at=iso(now)), row)
    facts = {"expires_at": iso(expires)}
    if row.held is not None:
        facts["taken_over_from"] = row.held.owner
    entry = Entry(
        row.candidate_id,
        f"candidate_{SYNTHESIZING}",
        now,
        owner,
        from_status=row.status,
        to_status=SYNTHESIZING,
        token=held.token,
        forced=forced,
        payload=encode_document(facts, "payload"),
    )
    put_entry(state, place, entry)


def renew(state: MutableState, event: dict[str, Any], _place: Place) -> None:
    """Begin the lease of a claim anew; it never gets shorter."""
    at, row = find_row(state, id_of(event, "id", "candidate"))
    check_token(row, number_of(event, "token"))
    assert row.held is not None
    expires = max(row.held.expires_ns, number_of(event, "now") + _lease(event))
    put_row(state, at, row._replace(held=row.held._replace(expires_ns=expires)), row)


def release(state: MutableState, event: dict[str, Any], place: Place) -> None:
    """Give a candidate back, with the status that it had before it was claimed."""
    at, row = find_row(state, id_of(event, "id", "candidate"))
    now, token = number_of(event, "now"), number_of(event, "token")
    check_token(row, token)
    check_published(row)
    assert row.held is not None
    back = row.held.before
    put_row(state, at, row._replace(status=back, held=None, updated_at=iso(now)), row)
    entry = Entry(
        row.candidate_id,
        "candidate_released",
        now,
        id_of(event, "actor", "actor"),
        from_status=row.status,
        to_status=back,
        token=token,
    )
    put_entry(state, place, entry)


def _raise_floors(state: MutableState, floors: Any) -> None:
    """Note before which place and time there is nothing to be claimed next.

    What was claimed leaves gaps behind in an index until a compaction rewrites all of it; whoever
    looks for the next one begins behind them.
    """
    if not isinstance(floors, list) or len(floors) != 3:
        raise RefusedError("floors of a claim are a kind, a place and a time")
    kind, opened, lease = floors
    if opened is not None:
        if not isinstance(opened, bytes) or len(opened) != PLACE_SIZE:
            raise RefusedError("the floor of what is open is a place")
        state.put(open_floor(None if kind is None else check_id(kind, "kind")), opened)
    if lease is not None:
        if type(lease) is not int or not 0 <= lease <= MOST:
            raise RefusedError("the floor of leases is a time")
        state.put(LEASE_FLOOR, lease.to_bytes(8, "big"))


def _lease(event: dict[str, Any]) -> int:
    lease = number_of(event, "lease")
    if not 0 < lease <= LONGEST_LEASE:
        raise RefusedError("a lease is longer than nothing and at most a year")
    return lease
