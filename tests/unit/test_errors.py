"""The error tree: codes, exit codes, built-in bases, and survival of pickling."""

from __future__ import annotations

import errno
import pickle

import pytest

from cas import errors
from cas.errors import CasError

EXIT_CODES = {
    "NotFoundError": 3,
    "ConflictError": 4,
    "DamagedError": 5,
    "RefusedError": 6,
    "BusyError": 7,
    "EnvironmentFailure": 8,
}


def tree(kind: type[CasError] = CasError) -> list[type[CasError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]


ALL = [kind for kind in tree() if kind.__module__ == "cas.errors"]


def test_every_error_of_the_module_is_in_the_tree():
    named = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert named == set(ALL)


def test_codes_are_unique_and_each_class_states_its_own():
    assert len({kind.code for kind in ALL}) == len(ALL)
    assert all("code" in vars(kind) for kind in ALL)


def test_every_class_has_the_exit_code_of_the_group_it_is_in():
    for kind in ALL:
        group = next((base for base in kind.__mro__ if base.__name__ in EXIT_CODES), None)
        assert kind.exit_code == (EXIT_CODES[group.__name__] if group else 8), kind


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.NotFoundError, FileNotFoundError),
        (errors.ConflictError, FileExistsError),
        (errors.RefusedError, ValueError),
        (errors.BusyError, TimeoutError),
        (errors.EnvironmentFailure, OSError),
    ],
)
def test_callers_of_the_old_code_catch_the_built_in(kind, builtin):
    with pytest.raises(builtin, match="a thing"):
        raise kind("a thing", fact=1)


@pytest.mark.parametrize("kind", ALL)
def test_message_and_facts_survive_pickling(kind):
    error = kind("one line", errno=5, path="x")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error) == "one line"
    assert copy.facts == {"errno": 5, "path": "x"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_apart(code):
    failure = errors.environment_failure(OSError(code, "no room", "some/file"), "writing a pack")
    assert type(failure) is errors.DiskFullError
    assert failure.errno == code
    assert failure.facts["path"] == "some/file"
    assert str(failure).startswith("writing a pack: no room: 'some/file'")


def test_any_other_system_error_keeps_its_errno_and_reason():
    failure = errors.environment_failure(
        PermissionError(errno.EACCES, "denied", b"f\xff"), "reading"
    )
    assert type(failure) is errors.EnvironmentFailure
    assert failure.errno == errno.EACCES
    assert "denied" in str(failure)
    assert "\n" not in str(failure)


@pytest.mark.parametrize("kind", [errors.DiskFullError, errors.NotFoundError, errors.BusyError])
def test_an_error_of_ours_is_not_wrapped(kind):
    failure = kind("said already", errno=errno.ENOSPC)
    assert errors.environment_failure(failure, "doing more") is failure


def test_a_system_error_without_a_number_says_what_it_says():
    missing = errors.environment_failure(OSError("plain"), "doing")
    assert str(missing) == "doing: plain"
