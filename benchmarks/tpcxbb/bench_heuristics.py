"""The four schedulers on the queries of TPCx-BB: rate and latency (Fig. 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.support.query_runs import compared, plot_compared
from benchmarks.tpcxbb.bench import cases

if TYPE_CHECKING:
    from benchmarks.support.common import Options

VARIANTS: dict[str, dict[str, Any]] = {
    name: {"scheduler": name} for name in ("ct", "et", "lp", "qst")
}


def run(options: Options) -> dict[str, Any]:
    return {"queries": compared(cases(options.pick(200_000, 2_000_000)), VARIANTS, options)}


plot = plot_compared
