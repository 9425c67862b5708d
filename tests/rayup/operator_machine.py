"""The operator: somebody with the README, on a machine with Ray, in front of three others.

Commands come from the blocks of the page. Three things are done to them: the path of the checkout
and the addresses of the example are put in, and lines that call pip for a wheel run on the machine
of the test, since the others have no way to an index.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.rayup.namespace_site import CACHE, Site
from tests.rayup.readme_blocks import blocks_of, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "deploy" / "README.md"
DEPLOYING = ROOT / "docs" / "deploying.md"
ADDRESSES = {"m1": "10.99.0.1", "m2": "10.99.0.2", "m3": "10.99.0.3", "m4": "10.99.0.4"}
EXAMPLES = {f"192.0.2.1{number}": f"10.99.0.{number + 1}" for number in range(4)}
FOLDER = "/home/plait/cluster"
PATIENCE_S = 300.0
ACTIVATE = f"cd {FOLDER} && . ~/venv/bin/activate && "


def say(text: str) -> None:
    print(text, flush=True)


def build_wheels() -> Path:
    """The wheel of plait and those it needs, by the lines of the pages; in the user's cache."""
    source = ROOT / "build" / "rayup" / "source"
    left_out = shutil.ignore_patterns(".*", "build", "dist", "__pycache__")
    if source.exists():
        shutil.rmtree(source)
    shutil.copytree(ROOT, source, symlinks=True, ignore=left_out)
    wheels = CACHE / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_NO_BUILD_ISOLATION": "0",  # what the build needs is installed here
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }

    def here(line: str) -> None:
        command = line.replace(".../plait", str(source))
        subprocess.run(["bash", "-ec", command], cwd=CACHE, env=environment, check=True)

    (build,) = pip_lines(README, "Up")
    here(build)
    (download,) = pip_lines(DEPLOYING, "Machines without PyPI")
    asked = (
        download + re.findall(r"^dependencies = .*", (ROOT / "pyproject.toml").read_text(), re.M)[0]
    )
    stamp = CACHE / "downloaded"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != asked:
        here(download)
        stamp.write_text(asked, encoding="utf-8")
    return wheels


def pip_lines(page: Path, heading: str) -> list[str]:
    lines = [line for block in blocks_of(page)[heading] for line in lines_of(block)]
    return [line for line in lines if re.match(r"pip (wheel|download) ", line)]


class Operator:
    """Has a site, and does on the machine `op` what the pages say."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.began = time.monotonic()

    def step(self, text: str) -> None:
        say(f"== {time.monotonic() - self.began:5.0f} s  {text}")

    def sh(self, command: str, status: int | None = 0, timeout_s: float = 900.0) -> str:
        """A command in the folder of the cluster; what it said. `status` None: any."""
        for example, address in EXAMPLES.items():
            command = command.replace(example, address)
        say(f"$ {command}")
        began = time.monotonic()
        done = self.site.on(
            *("op:plait", "bash", "-c", ACTIVATE + command), check=False, timeout_s=timeout_s
        )
        said = done.stdout
        say(f"  ({time.monotonic() - began:.1f} s, status {done.returncode})")
        assert status is None or done.returncode == status, f"status {done.returncode}\n{said}"
        return said

    def block(self, heading: str, number: int = 0, page: Path = README) -> str:
        """Runs a block of a page, line by line; what its last line said."""
        said = ""
        for line in lines_of(blocks_of(page)[heading][number]):
            if not line.startswith("pip "):
                said = self.sh(line.replace(".../plait", "/srv/plait"))
        return said

    def on_head(self, command: str, status: int | None = 0) -> str:
        """As the page does it: by `ray exec`."""
        return self.sh(f"ray exec cluster.yaml {shell_quote(command)}", status)

    def prepare(self, wheels: Path) -> None:
        """The machine of the operator as the page wants it: with Ray, and a new folder."""
        shutil.copytree(ROOT / "deploy", self.site.srv / "plait" / "deploy")
        shutil.copytree(wheels, self.site.srv / "wheels", copy_function=link_or_copy)
        for name in ("job.py", "check.py"):
            shutil.copy(ROOT / "tests" / "rayup" / name, self.site.srv)
        self.site.on(
            *("op:plait", "bash", "-ec"),
            f"mkdir {FOLDER} && cd {FOLDER} && python3 -m venv ~/venv && ~/venv/bin/pip install "
            '-q --no-compile --no-index --find-links /srv/wheels "ray[default]" plait && '
            "cp /srv/*.py . && "
            "cp -r /srv/wheels wheels",
        )

    def change(self, name: str, changes: dict[str, str]) -> None:
        """Edits a file of the folder by hand; each text must be there."""
        path = f"{FOLDER}/{name}"
        text = self.site.on("op:plait", "cat", path).stdout
        for old, new in changes.items():
            assert old in text, f"{name} has no {old}"
            text = text.replace(old, new)
        self.site.on("op:plait", "python3", "-c", WRITE, path, text)

    def status(self, job: str) -> dict[str, Any]:
        said = self.on_head(f"plait status {job} --json", None)
        start = re.search(r"^\{", said, re.M)
        assert start, said
        found: dict[str, Any] = json.JSONDecoder().raw_decode(said[start.start() :])[0]
        return found

    def wait_for(self, job: str, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE_S
        while True:
            view = self.status(job)
            if true(view):
                return view
            assert time.monotonic() < end, json.dumps(view, indent=1)

    def tell_logs(self) -> None:
        """Prints the ends of Ray's logs on all machines: after a failure they are gone."""
        for name in self.site.machines:
            said = self.site.on(name, "bash", "-c", LOGS, check=False, timeout_s=60.0).stdout
            if said:
                say(f"---- logs of {name}\n{said}")

    def rays_left(self) -> dict[str, str]:
        """Processes of the user plait on the machines, but for those of SSH."""
        found = {}
        for name in self.site.machines:
            said = self.site.on(name, "ps", "-u", "plait", "-o", "args=", check=False).stdout
            left = [line for line in said.splitlines() if "sshd" not in line]
            if left and name != "op":
                found[name] = "\n".join(left)
        return found


LOGS = """
shopt -s nullglob
cd /home/plait/.plait/tmp/ray/session_latest/logs 2>/dev/null || exit 0
tail -n 40 monitor.{out,err,log} raylet.err gcs_server.err ray_client_server*.{err,out} 2>/dev/null
tail -n 15 worker-*.err | grep -v '^$' | tail -n 300
"""
WRITE = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"


def shell_quote(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
