"""For tests of jobs: tables as text, the sequential run as the judge, a clock moved by hand.

from plait.testing import check, table

`check` runs a job with several numbers of workers and of nodes, and can add a node in the middle.
`plait.testing.nodes.run_on_nodes` runs a job on nodes of this process, with any changes.
"""

from __future__ import annotations

from plait.testing.check import assert_same, check
from plait.testing.clock import Capture, Feed, VirtualClock
from plait.testing.oracle import OracleResult, sequential
from plait.testing.tables import Rows, format_rows, table

__all__ = [
    "Capture",
    "Feed",
    "OracleResult",
    "Rows",
    "VirtualClock",
    "assert_same",
    "check",
    "format_rows",
    "sequential",
    "table",
]
