"""Trees of models in an object store, without a walk over a disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cas.manifests import DIR, EXEC, FILE, LINK, TreeBuilder
from cas.objects import TREE

if TYPE_CHECKING:
    from cas.manifests import TreeRef
    from cas.objects import ObjectStore, ObjectWriter
    from cas.testing.strategies import Model

_TYPES: Final = {"file": FILE, "exec": EXEC, "symlink": LINK}


def put_model(objects: ObjectStore, model: Model) -> TreeRef:
    """Store a model of a directory and everything in it."""
    with objects.writer() as writer:
        ref = _put(writer, model)
        writer.flush()
    return ref


def _put(writer: ObjectWriter, model: Model) -> TreeRef:
    builder = TreeBuilder(lambda data: writer.put(data, TREE))
    for name in sorted(model):
        node = model[name]
        if isinstance(node, dict):
            below = _put(writer, node)
            builder.add(name, DIR, below.bytes, below.digest, below.files)
        else:
            kind, content = node
            builder.add(name, _TYPES[kind], len(content), writer.put(content))
    return builder.finish()
