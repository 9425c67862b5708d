"""The jobs that run on every entry point, on two nodes of a Ray cluster.

They are those of tests/unit/execution/test_entry_points.py; only the fixture `entry_point` is
another one.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

FILE = Path(__file__).parents[1] / "unit" / "execution" / "test_entry_points.py"
spec = importlib.util.spec_from_file_location("entry_points", FILE)
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
globals().update({name: value for name, value in vars(module).items() if name.startswith("test_")})
