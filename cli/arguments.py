"""Options whose text means something: pairs, times, percentages, ranges, choices.

Each function takes what was typed and the option it was typed for, and ends in a usage error
(exit code 2) that names the option where the text does not read.
"""

import math
import re
from collections.abc import Iterable, Sequence

import typer

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")


def wrong(option: str, message: str) -> typer.BadParameter:
    """Return the usage error for an option's value."""
    return typer.BadParameter(message, param_hint=option)


def pairs(values: Iterable[str], option: str) -> dict[str, str]:
    """Return `K=V` arguments as a mapping; the first `=` parts them."""
    found: dict[str, str] = {}
    for value in values:
        key, equals, rest = value.partition("=")
        if not key or not equals:
            raise wrong(option, f"{value!r} is not NAME=VALUE")
        if key in found:
            raise wrong(option, f"{key!r} is given twice")
        found[key] = rest
    return found


def duration(text: str, option: str) -> float:
    """Return a TIME in seconds: `90s`, `10m`, `1h30m`, `14d`, `2w`."""
    compact = text.strip().lower()
    parts = _DURATION.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise wrong(option, f"{text!r} is not a time such as 90s, 10m, 1h30m or 14d")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds == math.inf:
        raise wrong(option, f"{text!r} is longer than any clock runs")
    return seconds


def percentage(text: str, option: str) -> float:
    """Return a PERCENT, `5` or `5%`, as a number above 0 and up to 100."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 100.0:
        raise wrong(option, f"{text!r} is not a percentage above 0 and up to 100")
    return value


def natural(text: str, option: str) -> int:
    """Return a whole number of 1 or more."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise wrong(option, f"{text!r} is not a whole number of 1 or more")
    return int(text)


def count_from_zero(text: str, option: str) -> int:
    """Return a whole number of 0 or more."""
    if not text.isascii() or not text.isdigit():
        raise wrong(option, f"{text!r} is not a whole number of 0 or more")
    return int(text)


def share(text: str, option: str) -> float:
    """Return a share of 0 to 1, such as `0.5`."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise wrong(option, f"{text!r} is not a number from 0 to 1")
    return value


def byte_range(text: str, option: str) -> tuple[int | None, int | None]:
    """Return the two ends of `A-B`, as HTTP has them: both inclusive, either may be left out.

    Returns:
        `(first, last)`; `(first, None)` for `A-`, everything from A on; `(None, length)` for `-N`,
        the last N bytes.
    """
    match = re.fullmatch(r"(\d*)-(\d*)", text, re.ASCII)
    if match is None or text == "-":
        raise wrong(option, f"{text!r} is not a range such as 0-99, 100- or -100")
    first, last = (int(end) if end else None for end in match.groups())
    if first is not None and last is not None and last < first:
        raise wrong(option, f"{text!r} ends before it begins")
    return first, last


def one_of(text: str, allowed: Sequence[str], option: str) -> str:
    """Return the text if it is one of the words allowed."""
    if text not in allowed:
        raise wrong(option, f"{text!r} is not one of {', '.join(allowed)}")
    return text
