"""`cas show`, `cas ls`, `cas cat`, `cas log`: look without checking out."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import byte_range, natural
from .graph import draw
from .output import files_and_size, short, size, table, title, visible, when
from .session import Session, command

if TYPE_CHECKING:
    import cas

Spec = Annotated[
    str, typer.Argument(metavar="SPEC", help="Such as skills@v3, seed:NAME, tag:NAME or a digest.")
]


app = typer.Typer(rich_markup_mode=None)


@command(app, "show")
def show(session: Session, spec: Spec) -> None:
    """Show a version, a seed, where a tag points, or what a digest names."""
    store = session.store()
    resolved = store.resolve(spec)
    shown: dict[str, Any] = resolved.to_json()
    if not resolved.path and resolved.name is not None:
        shown |= _named(store, resolved).to_json()
        if spec.startswith("tag:"):
            shown["tag"] = store.tags.get(spec.removeprefix("tag:")).to_json()
    if session.json:
        session.out.document(shown)
    else:
        for line in table(_facts(shown)):
            session.out.line(line)


def _named(store: "cas.Store", resolved: "cas.Resolved") -> "cas.Version | cas.Seed | cas.Resolved":
    import cas

    name = resolved.name or ""
    try:
        if resolved.kind == "seed":
            return store.seeds.get(name.removeprefix("seed:"))
        resource, _, number = name.rpartition("@")
        return store.versions.get(resource, number)
    except cas.NotFoundError:
        # The name was taken away; a digest still leads to the manifest.
        return resolved


def _facts(shown: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what there is to say, in the order in which a person asks."""
    yield shown["kind"], visible(str(shown.get("name") or shown["spec"]))
    tag = shown.get("tag")
    if tag:
        yield "tag", f"{tag['name']}, set {when(tag['at'])} by {tag['by']}"
        if tag["reason"]:
            yield "reason", title(tag["reason"])
    yield "digest", str(shown["digest"])
    if shown.get("tree") not in (None, shown["digest"]):
        yield "tree", str(shown["tree"])
    if "files" in shown:
        yield "content", files_and_size(shown["files"], shown["bytes"])
    else:
        yield "content", f"{shown['type']}, {size(shown['size'])}"
    for name, part in shown.get("parts", {}).items():
        label = f" {part['label']}" if part["label"] else ""
        content = files_and_size(part["files"], part["bytes"])
        yield f"part {name}{label}", f"{content}, {short(part['digest'])}"
    for key, word in (
        ("source", "source"),
        ("parent", "from"),
        ("baseline_run_id", "baseline run"),
        ("trigger_run", "run"),
        ("trigger_workspace", "workspace"),
    ):
        if shown.get(key):
            yield word, visible(str(shown[key]))
    if shown.get("created_at"):
        yield "created", when(shown["created_at"])
    if shown.get("removed_at"):
        yield "removed", when(shown["removed_at"])
    for key, value in shown.get("meta", {}).items():
        yield f"meta {visible(key)}", visible(value)
    for number, line in enumerate(shown.get("description", "").splitlines()):
        yield "" if number else "description", visible(line)


@command(app, "ls")
def ls(
    session: Session,
    spec: Annotated[str, typer.Argument(metavar="SPEC[:PATH]", help="Where to look.")],
    long: Annotated[bool, typer.Option("--long", "-l", help="Show type, size, digest.")] = False,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-R", help="Show everything below as well.")
    ] = False,
) -> None:
    """List a directory of a version, seed or tree."""

    def lines(entries: Iterable["cas.WalkEntry"]) -> Iterator[str]:
        for entry in entries:
            path = session.out.path(entry.path)
            if entry.type == "dir":
                path = session.out.paint(path, "blue") + "/"
            if long:
                yield f"{entry.type:7}  {size(entry.size):>8}  {short(entry.digest)}  {path}"
            else:
                yield path

    session.listing(session.store().list_dir(spec, recursive=recursive), lines)


@command(app, "cat")
def cat(
    session: Session,
    spec: Annotated[str, typer.Argument(metavar="SPEC:PATH", help="A file.")],
    wanted: Annotated[
        str | None,
        typer.Option(
            "--range",
            metavar="A-B",
            help="Only bytes A to B, both included and counted from 0; A- is from A on, -N the "
            "last N.",
        ),
    ] = None,
) -> None:
    """Write the bytes of a file to standard output."""
    first, last = (0, None) if wanted is None else byte_range(wanted, "--range")
    store = session.store()
    if first is None:
        first, last = max(0, store.resolve(spec).size - (last or 0)), None
    for piece in store.read_range(spec, first, None if last is None else last + 1):
        session.out.write(piece)


@command(app, "log")
def log(
    session: Session,
    spec: Spec,
    graph: Annotated[bool, typer.Option("--graph", help="Draw who came from what.")] = False,
    limit: Annotated[
        str | None, typer.Option("--limit", "-n", metavar="N", help="Show the newest N only.")
    ] = None,
) -> None:
    """Show the lineage of a version or seed: who made it, from what, why."""
    newest = None if limit is None else natural(limit, "--limit")
    entries = session.store().log(spec, limit=newest)
    names = {entry.digest: entry.spec or short(entry.digest) for entry in entries}

    def describe(entry: "cas.LineageEntry") -> list[str]:
        name = session.out.paint(names[entry.digest], "yellow")
        if not entry.known:
            return [f"{name}  not in this store"]
        marks = " (removed)" if entry.removed else ""
        about = [when(entry.created_at), visible(entry.source or ""), short(entry.digest)]
        lines = [f"{name}{marks}  " + "  ".join(filter(None, about))]
        origin = visible(entry.parent or "")
        parents = [names.get(parent, short(parent)) for parent in entry.parents]
        for fact, text in (
            ("from", ", ".join(dict.fromkeys([*parents, *([origin] if origin else [])]))),
            ("run", visible(entry.trigger_run or entry.baseline_run_id or "")),
            ("workspace", visible(entry.trigger_workspace or "")),
            ("candidate", visible(entry.meta.get("candidate", ""))),
            ("safety report", visible(entry.meta.get("safety_report", ""))),
            ("eval report", visible(entry.meta.get("eval_report", ""))),
        ):
            if text:
                lines.append(f"  {fact} {text}")
        lines.extend(f"  {visible(line)}" for line in entry.description.splitlines())
        lines.extend(f"  {visible(told)}" for told in entry.purged)
        return lines

    def plain(found: Iterable["cas.LineageEntry"]) -> Iterator[str]:
        for entry in found:
            yield from describe(entry)

    def drawn(found: Iterable["cas.LineageEntry"]) -> Iterator[str]:
        return draw([(entry.digest, entry.parents, describe(entry)) for entry in found])

    session.listing(entries, drawn if graph else plain)
