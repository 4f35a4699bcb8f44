"""The values of the learning side: candidates, claims, audit events, snapshots and reports."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

from cas.errors import RefusedError
from cas.learning.document import checked
from cas.learning.ids import MAX_BYTES, check_file_id, check_id
from cas.learning.status import OPEN, check_status
from cas.names import check_text

Fields = dict[str, Any]

MAX_COUNT: Final = 1 << 62
"""The highest number of activations."""
MAX_TIME: Final = 200
"""Bytes of a time that came from elsewhere, at most."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposal to change a skill.

    Attributes:
        candidate_id: Its name.
        kind: What kind of proposal, as its maker calls it.
        status: See `cas.learning.status`.
        reason: Why it was made.
        draft_skill_name: The skill that a draft is of.
        draft_id: The draft that was made of it.
        last_error: What went wrong last.
        created_at: When it was recorded, by the store's clock unless it came with a time.
        updated_at: When it was changed last, likewise.
        extra: All other fields, as they came. They are not to be changed in place.
    """

    candidate_id: str
    kind: str
    status: str = OPEN
    reason: str = ""
    draft_skill_name: str | None = None
    draft_id: str | None = None
    last_error: str | None = None
    created_at: str = ""
    updated_at: str = ""
    extra: Fields = field(default_factory=dict)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Read a candidate; fields that are not known are kept.

        Raises:
            RefusedError: It has no id or kind, or a field is of the wrong type or no JSON.
        """
        return cls(**_sorted_out(cls, fields, "candidate"))

    def to_dict(self) -> Fields:
        """Return all fields, known and other."""
        return _told(self)

    def checked(self) -> Candidate:
        """Return it as it will be read back.

        Raises:
            RefusedError: A field cannot be kept.
        """
        known = {
            name: check_field(name, getattr(self, name))
            for name in self.__dataclass_fields__
            if name != "extra"
        }
        return Candidate(**known, extra=_checked_extra(self, f"candidate {self.candidate_id}"))


def check_field(name: str, value: Any) -> Any:
    """Return a known field of a candidate as it is kept.

    Raises:
        RefusedError: It cannot be.
    """
    if name == "status":
        return check_status(value)
    if name in ("created_at", "updated_at"):
        return check_text(value, name, max_bytes=MAX_TIME)
    if name == "reason":
        return _text("" if value is None else value, name)
    if name == "last_error":
        return None if value is None else _text(value, name)
    if value is None and name in ("draft_skill_name", "draft_id"):
        return None
    return check_id(value, name.removesuffix("_id").replace("_", " "))


CANDIDATE: Final = frozenset(Candidate.__dataclass_fields__) - {"extra"}
"""The known fields of a candidate."""


class Lease(NamedTuple):
    """Who holds a candidate."""

    owner: str
    expires_at: str
    """UTC, ISO 8601, by the store's clock. The holder stays the holder until another takes over."""
    live: bool
    """Whether that is still to come."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim won: the candidate, for as long as the lease is renewed.

    Attributes:
        candidate: As it is now.
        token: Fences off whoever held it before; larger than all tokens given before.
        expires_at: When another may take over: UTC, ISO 8601, by the store's clock.
        owner: Who holds it.
    """

    candidate: Candidate
    token: int
    expires_at: str
    owner: str

    def to_dict(self) -> Fields:
        """Return what `--json` shows."""
        return {
            "candidate_id": self.candidate.candidate_id,
            "token": self.token,
            "expires_at": self.expires_at,
            "owner": self.owner,
            "candidate": self.candidate.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One entry of the audit: what was done to a candidate, by whom, when.

    Attributes:
        event_id: Its name; of events made here, where it stands in the log.
        candidate_id: The candidate.
        event_type: What happened.
        created_at: When: UTC, ISO 8601, by the store's clock unless it came with a time.
        actor: Who did it.
        payload: What was said about it. It can add to the facts here, never change them.
        from_status: The status before, None where there was none.
        to_status: The status after; None for an event that is no change of state.
        token: The claim that it was done under, if any.
        forced: Whether it was done against the rules.
        extra: Other fields of an event that came from elsewhere, as they came.
    """

    event_id: str
    candidate_id: str
    event_type: str
    created_at: str = ""
    actor: str = ""
    payload: Fields = field(default_factory=dict)
    from_status: str | None = None
    to_status: str | None = None
    token: int | None = None
    forced: bool = False
    extra: Fields = field(default_factory=dict)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Read an event; fields that are not known are kept.

        Raises:
            RefusedError: It has no id, candidate or type, or a field is of the wrong type.
        """
        return cls(**_sorted_out(cls, fields, "audit event"))

    def to_dict(self) -> Fields:
        """Return all fields, known and other."""
        return _told(self)

    def checked(self) -> AuditEvent:
        """Return it as it will be read back.

        Raises:
            RefusedError: A field cannot be kept.
        """
        what = f"audit event {check_id(self.event_id, 'audit event')}"
        check_id(self.candidate_id, "candidate")
        check_id(self.event_type, "event type")
        check_text(self.created_at, "created_at", max_bytes=MAX_TIME)
        check_text(self.actor, "actor", max_bytes=MAX_BYTES)
        for status in (self.from_status, self.to_status):
            if status is not None:
                check_status(status)
        if self.token is not None and not (type(self.token) is int and 0 <= self.token < 1 << 63):
            raise RefusedError(f"the token of {what} is a number from 0 on")
        if type(self.payload) is not dict or type(self.forced) is not bool:
            raise RefusedError(f"the payload of {what} is a map, and forced true or false")
        return replace(
            self,
            payload=checked(self.payload, f"payload of {what}"),
            extra=_checked_extra(self, what),
        )


@dataclass(frozen=True, slots=True)
class PerformanceSnapshot:
    """How often a version of a skill was used, and how often with success.

    Attributes:
        skill_name: The skill.
        version: Its version, as its maker calls it.
        activations: How often it was used.
        successes: How often with success.
        recorded_at: When it was recorded, by the store's clock unless it came with a time.
        extra: All other fields, as they came.
    """

    skill_name: str
    version: str
    activations: int
    successes: int
    recorded_at: str = ""
    extra: Fields = field(default_factory=dict)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Read a snapshot; fields that are not known are kept. A version may be an integer, too.

        Raises:
            RefusedError: A field is missing or of the wrong type.
        """
        known = _sorted_out(cls, fields, "performance snapshot")
        if type(known.get("version")) is int:
            known["version"] = str(known["version"])
        return cls(**known)

    def to_dict(self) -> Fields:
        """Return all fields, known and other."""
        return _told(self)

    @property
    def success_ratio(self) -> float:
        """Successes per activation, from 0.0 to 1.0; 0.0 where it was never used."""
        return self.successes / self.activations if self.activations else 0.0

    def checked(self) -> PerformanceSnapshot:
        """Return it as it will be read back.

        Raises:
            RefusedError: A field cannot be kept, or there are more successes than activations.
        """
        check_id(self.skill_name, "skill")
        check_id(self.version, "skill's version")
        check_text(self.recorded_at, "recorded_at", max_bytes=MAX_TIME)
        for name, count in (("activations", self.activations), ("successes", self.successes)):
            if type(count) is not int or not 0 <= count <= MAX_COUNT:
                raise RefusedError(f"{name} is a number from 0 on, not {ascii(count)[:80]}")
        if self.successes > self.activations:
            raise RefusedError(
                f"{self.successes} successes in {self.activations} activations of "
                f"{self.skill_name}: there cannot be more"
            )
        what = f"the performance of {self.skill_name} {self.version}"
        return replace(self, extra=_checked_extra(self, what))


@dataclass(frozen=True, slots=True)
class _Report:
    """What was found out about a draft.

    Attributes:
        skill_name: The skill that the draft is of.
        draft_id: The draft.
        report_id: The report's name.
        content: Any JSON document.
        recorded_at: When it was recorded: UTC, ISO 8601, by the store's clock unless it was taken
            in with a time.
    """

    skill_name: str
    draft_id: str
    report_id: str
    content: Any
    recorded_at: str = ""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Read a report.

        Raises:
            RefusedError: A field is missing, unknown or of the wrong type.
        """
        names = cls.__dataclass_fields__
        if names.keys() ^ (fields.keys() | {"recorded_at"}):
            raise RefusedError(f"a report has the fields {', '.join(names)}")
        return cls(**fields)

    def to_dict(self) -> Fields:
        """Return all fields."""
        return {name: deepcopy(getattr(self, name)) for name in self.__dataclass_fields__}

    def check_names(self) -> None:
        """See that its names are in their grammar.

        Raises:
            NameRefusedError: One is not.
        """
        check_file_id(self.skill_name, "skill")
        check_file_id(self.draft_id, "draft")
        check_file_id(self.report_id, "report")


class SafetyReport(_Report):
    """Whether a draft is safe."""

    __slots__ = ()


class EvalReport(_Report):
    """How well a draft does."""

    __slots__ = ()


def _sorted_out(kind: Any, fields: Any, what: str) -> Fields:
    """Return the arguments for a value: the known fields, and the others as `extra`."""
    if not isinstance(fields, Mapping):
        raise RefusedError(f"a {what} is a map of fields, not {type(fields).__name__}")
    known = kind.__dataclass_fields__
    arguments: Fields = {"extra": {}}
    for name, value in fields.items():
        if type(name) is not str:
            raise RefusedError(f"a field of a {what} has a name that is no text: {name!a}")
        if name in known and name != "extra":
            if value is not None or known[name].default is None:
                arguments[name] = value
        else:
            arguments["extra"][name] = checked(value, f"{name!a} of a {what}")
    for name, about in known.items():
        if name not in arguments and about.default is about.default_factory:
            raise RefusedError(f"a {what} has no {name}", field=name)
    return arguments


def _told(value: Any) -> Fields:
    names = value.__dataclass_fields__
    told = {name: deepcopy(getattr(value, name)) for name in names if name != "extra"}
    told.update(deepcopy(value.extra))
    return told


def _checked_extra(value: Any, what: str) -> Fields:
    """Return the fields beside the known ones as they are kept."""
    if type(value.extra) is not dict:
        raise RefusedError(f"extra of {what} is a map of fields")
    if taken := sorted(value.extra.keys() & value.__dataclass_fields__.keys() - {"extra"}):
        raise RefusedError(f"extra of {what} holds {', '.join(taken)}, which it has of its own")
    extra: Fields = checked(value.extra, what)
    return extra


def _text(value: Any, what: str) -> Any:
    if not isinstance(value, str):
        raise RefusedError(f"{what} is text, not {type(value).__name__}", field=what)
    return checked(value, what)
