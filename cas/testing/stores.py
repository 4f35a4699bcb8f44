"""What a whole store must hold, whatever was done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cas.store import Store
    from cas.testing.strategies import Model


def read_state(store: Store, spec: str) -> Model:
    """Return the model of all that a spec names, every byte read through the public API.

    Raises:
        CasError: Something of it is not there, or not right.
    """
    model: Model = {}
    for entry in store.walk(spec):
        *above, name = entry.path.split(b"/")
        at = model
        for folder in above:
            below = at[folder]
            assert isinstance(below, dict)
            at = below
        if entry.type == "dir":
            at[name] = {}
            continue
        with store.open(str(entry.digest)) as file:
            content = file.read()
        assert len(content) == entry.size
        if entry.type == "exec":
            at[name] = ("exec", content)
        elif entry.type == "symlink":
            at[name] = ("symlink", content)
        else:
            at[name] = ("file", content)
    return model


def check_names_are_whole(store: Store) -> list[str]:
    """Read all that every version and seed of a store names, and return their specs.

    Raises:
        CasError: Something of them is not there, or not right.
    """
    specs = [version.spec for version in store.versions.list()]
    specs += [seed.spec for seed in store.seeds.list()]
    for spec in specs:
        read_state(store, spec)
    return specs
