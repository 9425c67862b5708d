"""What the tests of native programs share.

Those that the chosen tests need are compiled beside the other tests, in the background: whoever
needs one that is not there yet builds it, or waits for who does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import build, group, parse, start_builder, stop_builder

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

BUILDER: pytest.StashKey[subprocess.Popen[bytes]] = pytest.StashKey()
NEEDED: pytest.StashKey[list[str]] = pytest.StashKey()


class Binaries(dict[str, "Path"]):
    """Programs by name, each built when it is asked for, with those that are compiled as one."""

    def __init__(self, needed: list[str]) -> None:
        self.groups = group(needed)

    def __missing__(self, name: str) -> Path:
        program = parse(name)
        build(next((members for members in self.groups if program in members), (program,)))
        self[name] = program.binary
        return self[name]


@pytest.fixture(scope="session")
def binaries(request: pytest.FixtureRequest) -> dict[str, Path]:
    return Binaries(request.session.stash[NEEDED])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Starts the compilers; of several processes that share the tests, the first one does."""
    needed = [
        str(item.callspec.params["program"])
        for item in session.items
        if isinstance(item, pytest.Function) and {"binaries", "program"} <= {*item.fixturenames}
    ]
    session.stash[NEEDED] = needed
    if session.config.option.collectonly or os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        return
    if needed:
        session.stash[BUILDER] = start_builder(dict.fromkeys(needed))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tests that were stopped leave no compiler behind."""
    builder = session.stash.get(BUILDER, None)
    if builder is not None:
        stop_builder(builder)
