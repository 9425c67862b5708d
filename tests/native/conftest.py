"""What the tests of native programs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.native.native_build import build_all

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def binaries(request: pytest.FixtureRequest) -> dict[str, Path]:
    """The programs in `RUNS` of the test's module, by name."""
    return build_all(request.module.RUNS)
