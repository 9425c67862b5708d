"""The seed of a run of the tests: always the same one, unless PLAIT_SEED gives another."""

from __future__ import annotations

import os

SEED = int(os.environ.get("PLAIT_SEED", "") or 20260101)
