"""What an event-time operator does, in one line for `explain`, and what a join keeps."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, assert_never

from plait.expr.text import text
from plait.graph import temporal
from plait.graph.delays import hold_us

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.expr.aggregates import Aggregate


def spec_text(spec: temporal.TimedSpec) -> str:
    """What the operator does with the records of a key."""
    match spec:
        case temporal.WindowSpec():
            more = arrival_text(spec) + late_text(spec.lateness_us) + kept_text(spec.ttl_us)
            more += f", early results every {length(spec.early_us)}" if spec.early_us else ""
            return f"{window_text(spec.window)}{more}: {results_text(spec.aggregates)}"
        case temporal.TopSpec():
            which = "greatest" if spec.greatest else "least"
            ties = ", with ties" if spec.ties else ""
            late = arrival_text(spec) + late_text(spec.lateness_us)
            return f"{window_text(spec.window)}{late}: the {spec.k} {which} by {spec.by}{ties}"
        case temporal.LateSpec():
            late = late_text(spec.lateness_us)
            return f"what comes too late for {window_text(spec.window)}{late}"
        case temporal.LastSpec():
            kept = kept_text(spec.ttl_us)
            return f"the last {spec.n} records{kept}: {results_text(spec.aggregates)}"
        case temporal.RunningSpec():
            return f"running{kept_text(spec.ttl_us)}: {results_text(spec.aggregates)}"
        case temporal.JoinSpec():
            ttl = f", records kept for {length(spec.ttl_us)}" if spec.ttl_us else ""
            return f"{spec.how}{within_text(spec.within)}{ttl}"
        case temporal.SpanSpec():
            ends = f"right records from {spec.start} to {spec.end} of the left"
            return f"{ends}: {results_text(spec.aggregates)}"
        case temporal.ProcessSpec():
            two = " of two streams" if spec.sides else ""
            return f"{type(spec.process).__name__}{two}{kept_text(spec.ttl_us)}"
        case temporal.OperatorSpec():
            inputs = ", ".join(port.name for port in spec.inputs)
            outputs = ", ".join(port.name for port in spec.outputs)
            return f"{inputs} -> {outputs}, {bound_text(spec.bound)}"
        case _:
            assert_never(spec)


def bound_text(bound: int | None) -> str:
    return (
        "any number of records may wait" if bound is None else f"at most {bound:,} wait at a port"
    )


def window_text(window: temporal.Window) -> str:
    match window:
        case temporal.Grid():
            kind = "tumbling" if window.every_us == window.size_us else "sliding"
            every = f" every {length(window.every_us)}" if kind == "sliding" else ""
            offset = f" from {length(window.offset_us)}" if window.offset_us else ""
            return f"{kind} {length(window.size_us)}{every}{offset}"
        case temporal.SessionWindow():
            return f"session with gap {length(window.gap_us)}"
        case temporal.RowWindow():
            return f"{window.size} records every {window.every}"
        case temporal.CarriedWindow():
            return "the window of the records"
        case _:
            assert_never(window)


def within_text(within: temporal.Grid | temporal.Between | temporal.AsOf | None) -> str:
    match within:
        case None:
            return ", all that came before"
        case temporal.Grid():
            return f", in {window_text(within)}"
        case temporal.Between():
            return f", right less left from {length(within.low_us)} to {length(within.high_us)}"
        case temporal.AsOf():
            old = f", at most {length(within.tolerance_us)} old" if within.tolerance_us else ""
            return f", the last one as of the left{old}"
        case _:
            assert_never(within)


def arrival_text(spec: temporal.WindowSpec | temporal.TopSpec) -> str:
    return " by arrival" if spec.by_arrival else ""


def late_text(lateness_us: int) -> str:
    return f", {length(lateness_us)} of lateness" if lateness_us else ""


def kept_text(ttl_us: int) -> str:
    return f", keys kept for {length(ttl_us)}" if ttl_us else ""


def results_text(aggregates: tuple[tuple[str, Aggregate], ...]) -> str:
    """Aggregates and their names."""
    return ", ".join(
        f"{name}={a.kind}({'' if a.over is None else text(a.over)})" for name, a in aggregates
    )


def length(us: int) -> str:
    """A length of time in the largest unit that fits: "90s", "2h"."""
    for word, unit in (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000)):
        if us and us % unit == 0:
            return f"{us // unit}{word}"
    seconds = datetime.timedelta(microseconds=us) / datetime.timedelta(seconds=1)
    return f"{seconds:g}s"


def kept_lines(spec: temporal.TimedSpec) -> Iterator[str]:
    """What the operator keeps, a line for each side, and what waits for it."""
    if isinstance(spec, temporal.JoinSpec | temporal.SpanSpec):
        for kept in join_kept(spec):
            yield f"keeps: {kept}"
    if held := hold_us(spec):
        yield (
            f"time after it: {length(held)} behind, as its results may be so much older than the"
            " watermark"
        )


def join_kept(spec: temporal.JoinSpec | temporal.SpanSpec) -> Iterator[str]:
    """Which records a join keeps, and until when."""
    if isinstance(spec, temporal.SpanSpec):
        yield "left records until the watermark is above the end of their span"
        yield f"right records until the watermark is {above(spec.wait_us)} their time"
        return
    if spec.how == "late":
        return
    within = spec.within
    match within:
        case None if spec.ttl_us:
            yield f"records of both sides until the watermark is {above(spec.ttl_us)} their time"
        case None:
            yield "all records of both sides to the end; ttl=, window= or between= drops them"
        case temporal.Grid():
            last = "" if within.every_us >= within.size_us else "last "
            yield f"records of both sides until the watermark reaches the end of their {last}window"
        case temporal.Between():
            yield f"left records until the watermark is {above(within.high_us)} their time"
            yield f"right records until the watermark is {above(-within.low_us)} their time"
        case temporal.AsOf():
            yield "left records until the watermark is above their time"
            old = (
                f", dropped when the watermark is {above(within.tolerance_us)} its time"
                if within.tolerance_us
                else ""
            )
            yield (
                "of each key the last right record at or before the watermark"
                f"{old}, and all right records after it"
            )
        case _:
            assert_never(within)


def above(us: int) -> str:
    """Where the watermark is when a record is dropped, by its time and this length."""
    if us < 0:
        return f"less than {length(-us)} below"
    return f"more than {length(us)} above" if us else "above"
