"""What is built and installed is the tree, under two names, and it works alone."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"cas": "cas", "cas_cli": "cli"}
"""Top-level package → the folder of the tree that it comes from."""

pytestmark = [pytest.mark.xdist_group("packaging"), pytest.mark.timeout(600)]


def run(*command: str | os.PathLike[str], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def in_tree() -> set[str]:
    """Return the files that a wheel must hold, by the path that they have in it."""
    return {
        f"{package}/{path.relative_to(ROOT / folder)}"
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and (path.suffix == ".py" or path.name == "py.typed")
    }


def in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def content(names: set[str]) -> set[str]:
    return {name for name in names if not name.split("/")[0].endswith(".dist-info")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an sdist and, from it, a wheel, out of a copy of the tree."""
    base = tmp_path_factory.mktemp("build")
    copy = base / "tree"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    for folder in PACKAGES.values():
        shutil.copytree(
            ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    run(sys.executable, "-m", "build", "--outdir", base / "dist", cwd=copy)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", base / "direct", cwd=copy)
    return base


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [found] = (built / "dist").glob("*.whl")
    return found


def test_the_top_level_of_the_wheel_is_the_two_packages(wheel):
    assert {name.split("/")[0] for name in content(in_wheel(wheel))} == set(PACKAGES)


def test_the_wheel_holds_the_tree_and_nothing_else(wheel):
    assert content(in_wheel(wheel)) == in_tree()


def test_the_sdist_builds_the_same_wheel_as_the_tree(built, wheel):
    [direct] = (built / "direct").glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(direct) as other:
        assert {name: one.read(name) for name in content(in_wheel(wheel))} == {
            name: other.read(name) for name in content(in_wheel(direct))
        }


def test_the_sdist_holds_what_a_build_needs(built):
    [sdist] = (built / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "cas/py.typed", "cli/py.typed"} <= names


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel, with what it needs, into an empty environment."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=True)
    run(place / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, cwd=place)
    return place


def test_an_installed_wheel_says_its_version(installed, wheel):
    said = run(installed / "bin" / "cas", "--version", cwd=installed)
    assert said == f"cas {wheel.name.split('-')[1]}\n"


def test_an_installed_wheel_runs_the_demo(installed, tmp_path):
    run(installed / "bin" / "cas", "demo", tmp_path / "demo", cwd=tmp_path)
    assert run(installed / "bin" / "cas", "verify", "--quiet", cwd=tmp_path / "demo") == ""


def test_an_installed_wheel_is_typed_for_those_who_import_it(installed):
    code = (
        "import pathlib, cas, cas_cli; "
        "print(*(pathlib.Path(m.__file__).with_name('py.typed').exists() for m in (cas, cas_cli)))"
    )
    assert run(installed / "bin" / "python", "-c", code, cwd=installed) == "True True\n"
    done = subprocess.run(
        [installed / "bin" / "python", "-c", "import cli"], cwd=installed, capture_output=True
    )
    assert done.returncode == 1
