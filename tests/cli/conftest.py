"""Running `cas`: inside the test process, or as a process where that is the point."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cas_cli.main import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "surrogateescape")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def message(self) -> str:
        return self.err.decode("utf-8", "surrogateescape")

    def json(self) -> Any:
        return json.loads(self.out)

    def error(self) -> Any:
        return json.loads(self.err)["error"]


Run = Callable[..., Ran]


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A current directory without a store above, and an environment that says nothing."""
    for name in list(os.environ):
        if name.startswith("CAS_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cas(clean: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run a command inside this process and return what it printed and its exit code.

    A code that is asked for is checked, with what was printed in the failure's text.
    """

    def run(*arguments: str | os.PathLike[str], code: int | None = 0) -> Ran:
        capsysbinary.readouterr()
        got = main([os.fspath(argument) for argument in arguments])
        printed = capsysbinary.readouterr()
        ran = Ran(got, printed.out, printed.err)
        assert code is None or got == code, (arguments, ran)
        return ran

    return run


@pytest.fixture
def process(clean: Path) -> Run:
    """Run a command as a process of its own."""

    def run(
        *arguments: str | os.PathLike[str] | bytes, code: int | None = 0, **settings: Any
    ) -> Ran:
        environment = os.environ | settings.pop("environment", {})
        done = subprocess.run(
            [sys.executable, "-m", "cas_cli", *arguments],
            capture_output="stdout" not in settings,
            env=environment,
            timeout=120,
            check=False,
            **settings,
        )
        ran = Ran(done.returncode, done.stdout or b"", done.stderr or b"")
        assert code is None or ran.code == code, (arguments, ran)
        return ran

    return run


Write = Callable[[Path, dict[str, str | bytes]], Path]


def _write(directory: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return directory


@pytest.fixture
def write() -> Write:
    """Write files, by path, below a directory."""
    return _write


@pytest.fixture
def skills(clean: Path) -> Path:
    return _write(
        clean / "skills",
        {
            "search.md": "# Search\nLook twice.\n",
            "tools/count.py": "print(1)\n",
            "tools/notes.txt": "one\ntwo\nthree\n",
        },
    )


@pytest.fixture
def store(cas: Run, clean: Path) -> Iterator[Path]:
    """A store at ./.cas, empty."""
    cas("init")
    return clean / ".cas"
