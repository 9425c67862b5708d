"""The jobs that run on every entry point, on two nodes of a Ray cluster.

They are those of tests/unit/execution/test_entry_points.py; only the fixture `entry_point` is
another one. All of them run on several nodes there, so make test takes only `QUICK` here: one of
each kind of function that has to be sent to the nodes, of state, of source and of end. make
test-long takes all.
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

QUICK = {
    "test_a_job[compiled-a table]",
    "test_a_job[map_batches-a table]",
    "test_a_job[stateful by key-records]",
    "test_a_job[two outputs-records]",
    "test_a_job_that_knows_time[join in between]",
    "test_a_job_that_knows_time[timeouts]",
    "test_files_in_and_out[parquet]",
    "test_dead_letters_go_to_their_sink",
    "test_a_record_that_fails[True-records]",
    "test_a_sink_that_has_enough",
}
"""What is awaited, loops, pools and schedulers are in `test_ray_who_runs.py`, all in one job."""
