"""The sdist and the wheel: built as a packager would, installed and used outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

import plait

ROOT = Path(__file__).parents[3]
SCHEDULERS = Path("node_runtime/include/plait/scheduler_abi.h")
JARS = Path("deploy/broker/jars.txt")
"""What a scheduler in C is compiled with."""
SDIST = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def run(command: list[str | Path], folder: Path) -> str:
    """What a program prints that must succeed; of this process's Python it sees nothing."""
    environment = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run([sys.executable, "-c", SDIST, folder], ROOT)
    (found,) = folder.glob("plait-*.tar.gz")
    return found


@pytest.fixture(scope="module")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with plait from a wheel that was built from the sdist; its dependencies are
    those of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    run([sys.executable, *build, sdist], folder)
    (wheel,) = folder.glob("plait-*.whl")
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    run([python, *PIP, "install", "--no-deps", wheel], folder)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    # A path in a .pth file: the .pth file there that leads to the checkout is not read.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment


@pytest.mark.slow
def test_the_sdist_has_all_sources_once(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
    assert {"pyproject.toml", "LICENSE", "node_runtime/CMakeLists.txt"} <= set(names)
    assert "node_runtime/include/plait/engine/engine.hpp" in names
    assert not [name for name in names if name.startswith("plait/node_runtime/")]


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = "import plait; print(plait.__file__); print(plait.__version__)"
    file, version = run([installed / "bin" / "python", "-c", where], tmp_path).splitlines()
    assert Path(file).is_relative_to(installed)
    assert version == plait.__version__
    assert "rescale" in run([installed / "bin" / "plait", "--help"], tmp_path)


@pytest.mark.slow
def test_the_first_job_of_the_readme(installed: Path, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    program, printed = readme.split("```python\n", 1)[1].split("```\n\n```text\n", 1)
    printed = printed.split("```", 1)[0]
    (tmp_path / "first.py").write_text(program)
    python, command = installed / "bin" / "python", installed / "bin" / "plait"
    assert run([python, "first.py"], tmp_path) == printed
    assert run([command, "run", "first.py"], tmp_path) == printed


@pytest.mark.slow
def test_the_wheel_has_what_a_job_needs_and_no_sources(installed: Path) -> None:
    (package,) = (installed / "lib").glob("python*/site-packages/plait")
    files = {file.relative_to(package) for file in package.rglob("*") if file.is_file()}
    kinds = {".py", ".pyi", ".pyc", ".so", ".typed", ".yaml", ".sh"}
    assert {file for file in files if file.suffix not in kinds} == {SCHEDULERS, JARS}
    assert Path("py.typed") in files
