"""Seeds: frozen states of skills, prompts and the baseline database that earned them."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cas.digest import Digest
    from cas.manifests import SeedPart
    from cas.progress import Progress

#: A path of the caller's filesystem, or a spec.
Source = str | PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A frozen state: named parts, the baseline run that earned it, and what it came from.

    `tree` is the workspace that a checkout of the seed gives. `files` and `bytes` count that tree.
    """

    name: str
    digest: Digest
    tree: Digest
    parts: Mapping[str, SeedPart]
    baseline_run_id: str
    parent: str | None
    parents: tuple[Digest, ...]
    created_at: str
    description: str
    meta: Mapping[str, str]
    files: int
    bytes: int
    removed_at: str | None = None
    notices: tuple[str, ...] = ()

    @property
    def spec(self) -> str:
        """The spec that names this seed."""
        return f"seed:{self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` shows."""
        return {
            "name": self.name,
            "spec": self.spec,
            "digest": str(self.digest),
            "tree": str(self.tree),
            "parts": {
                name: {
                    "kind": part.kind,
                    "digest": str(part.digest),
                    "files": part.files,
                    "bytes": part.bytes,
                    "label": part.label,
                }
                for name, part in self.parts.items()
            },
            "baseline_run_id": self.baseline_run_id,
            "parent": self.parent,
            "parents": [str(parent) for parent in self.parents],
            "created_at": self.created_at,
            "description": self.description,
            "meta": dict(self.meta),
            "files": self.files,
            "bytes": self.bytes,
            "removed_at": self.removed_at,
            "notices": list(self.notices),
        }


class Seeds:
    """The seeds of a store."""

    def create(
        self,
        name: str,
        *,
        skills: Source,
        prompts: Source,
        baseline: Source,
        baseline_run_id: str,
        parts: Mapping[str, Source] | None = None,
        parent: str | None = None,
        description: str = "",
        meta: Mapping[str, str] | None = None,
        reuse_name: bool = False,
        ignore: bool = True,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> Seed:
        """Freeze a seed; what has its name is never overwritten.

        Args:
            name: The seed's name.
            skills: A directory, or a spec of one.
            prompts: A directory, or a spec of one.
            baseline: The SQLite database of the baseline run; taken through SQLite's own backup.
            baseline_run_id: The run that the database must hold.
            parts: More parts by name, each a file or directory, or a spec of one.
            parent: What it came from: a spec, or free text such as `WORKSPACE:v3`.
            description: Why.
            meta: Any more texts by name.
            reuse_name: Allow the name of a removed seed.
            ignore: Honour `.casignore` files.
            workers: How many processes read and hash; by default as many as pay.
            progress: Called with what was done so far.

        Raises:
            ConflictError: The name is taken, or was removed and `reuse_name` is not given.
            NotFoundError: A source does not exist, or the database does not hold the run.
            RefusedError: A name or a source is one that a seed cannot take.
        """
        raise NotImplementedError

    def promote(
        self,
        workspace: Source,
        *,
        version: str,
        eval_run_id: str,
        name: str,
        description: str = "",
        force: bool = False,
        meta: Mapping[str, str] | None = None,
        reuse_name: bool = False,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> Seed:
        """Freeze a workspace's state as a seed that an eval run has earned.

        Takes `skills/<version>/`, the `prompts/<label>/` that the run names, and that run alone out
        of `harness.db`. The parent is recorded as `WORKSPACE:<version>` and linked to what the
        workspace was checked out from.

        Args:
            workspace: The workspace's directory.
            version: The label of the skills, which the run must carry.
            eval_run_id: The run in the workspace's `harness.db`.
            name: The new seed's name.
            description: Why.
            force: Also take a run that is not finished.
            meta: Any more texts by name.
            reuse_name: Allow the name of a removed seed.
            workers: How many processes read and hash; by default as many as pay.
            progress: Called with what was done so far.

        Raises:
            ConflictError: The name is taken.
            NotFoundError: The workspace lacks a part, or its database the run.
            RefusedError: The run is not finished, names other versions or none.
        """
        raise NotImplementedError

    def list(self, *, removed: bool = False) -> list[Seed]:
        """Return the seeds, sorted by name; with `removed` also those whose name was taken away."""
        raise NotImplementedError

    def get(self, name: str) -> Seed:
        """Return one seed.

        Raises:
            NotFoundError: There is no such seed.
        """
        raise NotImplementedError

    def remove(self, name: str, *, reason: str = "", by: str | None = None) -> Seed:
        """Take a seed's name away.

        Raises:
            NotFoundError: There is no such seed.
        """
        raise NotImplementedError

    def undelete(self, name: str, *, reason: str = "", by: str | None = None) -> Seed:
        """Bring a removed seed back, while its content is there.

        Raises:
            NotFoundError: There never was such a seed.
            ConflictError: It is not removed.
            MissingObjectError: Its content is gone.
        """
        raise NotImplementedError
