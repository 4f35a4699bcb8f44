"""`meta.json` and `seed.json`: what an old store says of a version or a seed.

Reading gives the fields of a manifest, and everything else as `meta`, text by name. Writing gives
back an equal JSON object. Where the fields and texts alone would not do that (a number, a member
that is missing, a time in another zone), reading keeps the whole object as one more text, under the
file's own name.

What only this store knows goes into a member `cas`, which is written where it is needed:

- `parents`: specs of what a version or seed came from, where its `parent` does not say it;
- `moved`: names of content that the layout needs for itself → the names it lies under;
- `meta`: texts under names that the layout uses otherwise.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cas import names
from cas.errors import NameRefusedError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_BYTES: Final = 2 << 20
"""Bytes in such a file, at most: more than any manifest needs, however much of it is escaped."""
CREATED: Final = "created_at"
SECTION: Final = "cas"

_MAX_DEPTH: Final = 32
_MAX_PARENTS: Final = 1000
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_UTC_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|\+00:00)?"
)
_REQUIRED: Final = "(must be there)"


@dataclass(frozen=True, slots=True)
class Form:
    """One of the two kinds of file.

    Attributes:
        file: Its name.
        own: The member that says which version or seed it is of.
        fields: Members that are fields of a manifest → what they are where the file is silent.
    """

    file: str
    own: str
    fields: Mapping[str, str | None]

    @property
    def taken(self) -> frozenset[str]:
        """The members that are no `meta`."""
        return frozenset((self.own, *self.fields, CREATED, SECTION))


VERSION: Final = Form(
    "meta.json",
    "version",
    {
        "source": "import",
        "parent": None,
        "trigger_run": None,
        "trigger_workspace": None,
        "description": "",
    },
)
SEED: Final = Form(
    "seed.json",
    "name",
    {"baseline_run_id": _REQUIRED, "parent": None, "description": ""},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a file says.

    Attributes:
        fields: Fields of the manifest, `created_at` among them.
        meta: Any more texts by name.
        parents: Specs of what it came from; None where only `parent` tells.
        moved: Names of content → the names that they lie under in the layout.
        dated: The time is what the file says, not that of the folder.
        notices: What a person should know of how it was read.
    """

    fields: Mapping[str, str | None]
    meta: Mapping[str, str]
    parents: tuple[str, ...] | None = None
    moved: Mapping[str, str]
    dated: bool = True
    notices: tuple[str, ...] = ()


def untold(form: Form, written_ns: int) -> Told:
    """Return what is known where there is no file: the time of the folder."""
    return Told(
        fields={**form.fields, CREATED: time_text(written_ns)},
        meta={},
        moved={},
        dated=False,
        notices=("created_at is when the folder was last written: nothing else tells",),
    )


def read(form: Form, own: str, content: bytes, written_ns: int) -> Told:
    """Read a file.

    Args:
        form: Which kind it is.
        own: The version or name that the layout gives to what the file is of.
        content: Its bytes.
        written_ns: When the folder was last written, which stands in for a time that is missing.

    Raises:
        RefusedError: It is no such file; the message says why, after "its meta.json ".
    """
    found = parse(content)
    section = _Section.of(found.pop(SECTION, {}))
    texts = dict(section.meta)
    notices = []
    told = found.get(CREATED)
    dated = utc_time(told) is not None
    if not dated:
        why = f"has no {CREATED}" if told is None else f"has a {CREATED} that is no time"
        notices.append(f"its {form.file} {why}: that of the folder was taken")
        if told is not None:
            texts[CREATED] = told if isinstance(told, str) else _compact(told)
        found[CREATED] = time_text(written_ns)
    if not _names(found.get(form.own), own):
        notices.append(f"its {form.file} says {_shown(found[form.own])}: the folder's name counts")
    fields, meta = _understand(form, own, found)
    if not texts.keys() <= form.taken:
        raise RefusedError(f"has a member {SECTION!r} that is not understood")
    return Told(
        fields=fields,
        meta=meta | texts,
        parents=section.parents,
        moved=section.moved,
        dated=dated,
        notices=tuple(notices),
    )


def write(form: Form, own: str, told: Told) -> bytes:
    """Return a file that says what `read` reads back."""
    meta = {name: text for name, text in told.meta.items() if name not in form.taken}
    found = _whole(form, own, told.fields, meta)
    if found is None:
        found = _plain(form, own, told.fields, meta)
    section: dict[str, Any] = {
        "parents": None if told.parents is None else list(told.parents),
        "moved": dict(told.moved) or None,
        "meta": {name: text for name, text in told.meta.items() if name in form.taken} or None,
    }
    section = {name: value for name, value in section.items() if value is not None}
    if section:
        found[SECTION] = section
    return (json.dumps(found, indent=2, ensure_ascii=False) + "\n").encode()


# --- fields and texts --------------------------------------------------------------------------


def _understand(
    form: Form, own: str, found: Mapping[str, Any]
) -> tuple[dict[str, str | None], dict[str, str]]:
    """Return fields and texts, among these the whole object if they alone would not tell it."""
    fields: dict[str, str | None] = {}
    for name, silent in form.fields.items():
        value = found.get(name)
        if value is None:
            if silent is _REQUIRED:
                raise RefusedError(f"says no {name}")
            value = silent
        elif not isinstance(value, str):
            raise RefusedError(f"has a {name} that is no text: {_shown(value)}")
        fields[name] = value if value is None else _text(value, name)
    created = utc_time(found.get(CREATED))
    if created is None:
        raise RefusedError(f"has a {CREATED} that is no time")
    fields[CREATED] = created
    meta = {
        _text(name, "member"): _text(value if isinstance(value, str) else _compact(value), name)
        for name, value in found.items()
        if name not in form.taken
    }
    if _canonical(_plain(form, own, fields, meta)) != _canonical(found):
        meta[form.file] = _text(_compact(found), form.file)
    return fields, meta


def _plain(
    form: Form, own: str, fields: Mapping[str, str | None], meta: Mapping[str, str]
) -> dict[str, Any]:
    """Return the object that fields and texts make by themselves."""
    return {
        form.own: own,
        **{name: fields[name] for name in form.fields},
        CREATED: fields[CREATED],
        **meta,
    }


def _whole(
    form: Form, own: str, fields: Mapping[str, str | None], meta: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the object that was kept whole, if one was: any text may have that name."""
    kept = meta.get(form.file)
    if kept is None:
        return None
    try:
        found = parse(kept.encode())
        if SECTION in found or _understand(form, own, found) != (dict(fields), dict(meta)):
            return None
    except RefusedError:
        return None
    return found


def _names(told: object, own: str) -> bool:
    """Tell whether a file that says this is of what it should be."""
    return told is None or told == own or (type(told) in (str, int) and f"v{told}" == own)


@dataclass(frozen=True, slots=True)
class _Section:
    """The member that only this store writes."""

    parents: tuple[str, ...] | None
    moved: Mapping[str, str]
    meta: Mapping[str, str]

    @classmethod
    def of(cls, value: Any) -> _Section:
        try:
            if not isinstance(value, dict) or not value.keys() <= {"parents", "moved", "meta"}:
                raise RefusedError("")
            parents = value.get("parents")
            if parents is not None:
                if not isinstance(parents, list) or len(parents) > _MAX_PARENTS:
                    raise RefusedError("")
                parents = tuple(_text(parent, "parent") for parent in parents)
            return cls(parents, _texts(value.get("moved", {})), _texts(value.get("meta", {})))
        except RefusedError:
            raise RefusedError(f"has a member {SECTION!r} that is not understood") from None


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise RefusedError("")
    return {_text(name, "name"): _text(text, name) for name, text in value.items()}


def _text(value: str, what: str) -> str:
    try:
        return names.check_text(value, what)
    except NameRefusedError as error:
        raise RefusedError(f"has a text that cannot be kept: {error}") from None


# --- JSON --------------------------------------------------------------------------------------


def parse(content: bytes) -> dict[str, Any]:
    """Read one JSON object, strictly: no NaN, no member twice, nothing deep or large.

    Raises:
        RefusedError: It is none.
    """
    if len(content) > MAX_BYTES:
        raise RefusedError(f"is larger than {MAX_BYTES} bytes")
    try:
        text = content.decode()
        depth = 0
        for token in _TOKEN.finditer(text):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
            if depth > _MAX_DEPTH:
                raise RefusedError("is nested too deeply")
        found = json.loads(
            text, object_pairs_hook=members, parse_constant=_no_number, parse_float=_number
        )
    except RefusedError:
        raise
    except ValueError as error:
        raise RefusedError(f"is no JSON: {error}") from None
    if type(found) is not dict:
        raise RefusedError("is no JSON object")
    return found


def members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object.

    Raises:
        RefusedError: One is there twice.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RefusedError("has a member twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise RefusedError(f"holds {text}, which is no number")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RefusedError("holds a number that is too large")
    return value


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _canonical(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


# --- times -------------------------------------------------------------------------------------


def utc_time(told: object) -> str | None:
    """Return a time as manifests have it: in UTC where it says its zone; None for what is none."""
    if not isinstance(told, str):
        return None
    try:
        moment = dt.datetime.fromisoformat(told)
        if _UTC_TIME.fullmatch(told):
            return told
        if moment.tzinfo is not None:
            moment = moment.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None
    return moment.isoformat()


def time_text(ns: int) -> str:
    """Return a time of the filesystem as text, to the microsecond."""
    seconds, part = divmod(ns // 1000, 1_000_000)
    try:
        moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    except (ValueError, OverflowError, OSError):
        moment = dt.datetime.fromtimestamp(0, dt.UTC)
    return moment.replace(microsecond=part).isoformat(timespec="microseconds")


def time_ns(text: str) -> int | None:
    """Return the time of the filesystem that `time_text` makes this text of, if there is one."""
    try:
        moment = dt.datetime.fromisoformat(text)
        since = moment - dt.datetime.fromtimestamp(0, dt.UTC)
    except (ValueError, TypeError):
        return None
    ns = (since // dt.timedelta(microseconds=1)) * 1000
    return ns if time_text(ns) == text else None
