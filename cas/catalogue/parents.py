"""What a version or seed came from: the words of whoever made it, linked to what they name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from cas import names
from cas.catalogue.lookup import seed_ref, version_ref
from cas.catalogue.resolve import resolve_spec
from cas.digest import Digest
from cas.errors import CasError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from cas.catalogue.context import Context

_BARE_VERSION = re.compile(r"v[1-9][0-9]{0,18}")


class Parent(NamedTuple):
    """The parent as it is recorded: the text, and the digests of the manifests that it names."""

    text: str | None
    digests: tuple[Digest, ...]


NO_PARENT = Parent(None, ())


def find_parent(context: Context, text: str, *, resource: str | None = None) -> Parent:
    """Link what somebody gave as the parent.

    A spec is recorded as the name of what it stands for now (`skills@latest` as `skills@v3`). A
    bare `v3` is a version of the resource, a bare name a seed, if there is such a one. Any other
    text, such as `WORKSPACE:v3`, is kept as it is.

    Args:
        context: The store.
        text: What was given.
        resource: The resource that a bare version belongs to; None where a seed is made.

    Raises:
        NotFoundError: It has the form of a version, seed or tag, and there is none.
        NameRefusedError: It is no text that a manifest can hold.
    """
    names.check_text(text, "parent")
    try:
        spec = names.parse_spec(text)
    except RefusedError:
        return _bare(context, text, resource)
    try:
        found = resolve_spec(context, text)
    except (NotFoundError, RefusedError):
        if spec.kind == "digest":
            return Parent(text, ())  # a word of hexadecimal digits is a word
        raise
    if found.manifest is None:
        return Parent(text, ())
    name = found.name if spec.path is None and spec.kind != "tag" else text
    return Parent(name, (found.manifest,))


def _bare(context: Context, text: str, resource: str | None) -> Parent:
    try:
        if resource is None:
            found = seed_ref(context.refs, names.check_seed(text)).digest
        elif _BARE_VERSION.fullmatch(text):
            found = version_ref(context.refs, names.parse_spec(f"{resource}@{text}")).digest
        else:
            return Parent(text, ())
    except CasError:
        return Parent(text, ())
    return Parent(text, (Digest(found),))
