"""A run in text: one line while it goes, a summary when it is over, and the same for scripts.

`format_result` and `result_facts` are pure. `ProgressLine` writes only to a terminal, at most five
times a second, always over its own line, and leaves nothing behind.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TextIO

from plait.results.result import ACCOUNT
from plait.text.tables import format_table, shorten, small_table
from plait.text.units import plural, rate_text, seconds_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.protocol.rates import SourceRate
    from plait.results.result import OperatorCounts, Result

EVERY_S = 0.2
SHOWN_ROWS = 20
SHOWN_DEAD_LETTERS = 3
COUNTS = ("filtered", "skipped", "dead_lettered", "shed", "late", "absorbed", "made", "unfinished")


class ProgressLine:
    """One line on a terminal that tells how far a run is; on anything else it is silent."""

    def __init__(self, file: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.file = file
        self.clock = clock
        self.shows = file.isatty()
        self.next = clock()
        self.width = 0

    def update(self, read: int, delivered: int, seconds: float) -> None:
        if not self.shows or self.clock() < self.next:
            return
        self.next = self.clock() + EVERY_S
        rate = f", {rate_text(read / seconds)}" if seconds > 0 else ""
        line = f"{read:,} read, {delivered:,} delivered, {seconds:.1f} s{rate}"
        self.write(line)

    def write(self, line: str) -> None:
        self.file.write(f"\r{line.ljust(self.width)}")
        self.file.flush()
        self.width = len(line)

    def note(self, text: str) -> None:
        """A line that stays, also where the moving one is not shown."""
        back = "\r" if self.width else ""
        self.file.write(f"{back}{text.ljust(self.width)}\n")
        self.file.flush()
        self.width = 0

    def done(self) -> None:
        """Clears the line. May be called twice."""
        if self.width:
            self.write("")
            self.file.write("\r")
            self.file.flush()
            self.width = 0


def format_result(result: Result) -> str:
    """Where the records went, what each operator saw, how fast it was, and the outputs."""
    parts = [
        f'job "{result.job}": {result.account}',
        f"{seconds_text(result.seconds)}, {rate_text(result.records_per_s)}",
    ]
    if result.account.difference:
        parts.append(f"not accounted for: {result.account.difference:,} records")
    if result.latency.max_ms > 0:
        parts.append(latency_text(result))
    parts += [f"{label}: {rate}" for label, rate in result.rates.items()]
    if result.operators:
        parts += ["", operators_text(result.operators)]
    for label, output in result.outputs.items():
        if output is not None:
            parts += ["", output_text(label, output)]
    if result.dead_letters:
        parts += ["", dead_letters_text(result)]
    return "\n".join(parts)


def latency_text(result: Result) -> str:
    latency = result.latency
    return (
        f"latency: half below {latency.p50_ms:.3g} ms, 99% below {latency.p99_ms:.3g} ms, "
        f"99.9% below {latency.p999_ms:.3g} ms, longest {latency.max_ms:.3g} ms"
    )


def operators_text(operators: tuple[OperatorCounts, ...]) -> str:
    """One line an operator; counts that are zero for all of them are left out."""
    used = [name for name in COUNTS if any(getattr(one, name) for one in operators)]
    head = ["operator", "at", "in", "out", *(name.replace("_", "-") for name in used)]
    rows = [
        [one.name, one.at]
        + [f"{n:,}" for n in (one.records_in, one.records_out, *(getattr(one, u) for u in used))]
        for one in operators
    ]
    return small_table(head, rows, [False, False] + [True] * (len(head) - 2))


def output_text(label: str, output: Any) -> str:
    if is_table(output):
        return f"{label}:\n{format_table(output, SHOWN_ROWS)}"
    return f"{label}: {output}"


def is_table(output: Any) -> bool:
    return hasattr(output, "num_rows") and hasattr(output, "schema")


def dead_letters_text(result: Result) -> str:
    """How many there are and the first of them, also of those that the result does not keep."""
    letters, left_out = result.dead_letters, result.dead_letters_left_out
    lines = [f"{plural(len(letters) + left_out, 'dead letter')}:"]
    for one in letters[:SHOWN_DEAD_LETTERS]:
        what = shorten(repr(one.record), 70)
        lines.append(f"  {one.operator} at {one.at}, record {one.row:,} of {one.source}: {what}")
        lines.append(f"    {shorten(one.error, 90)}")
    if len(letters) + left_out > SHOWN_DEAD_LETTERS:
        lines.append(f"  ... {len(letters) + left_out - SHOWN_DEAD_LETTERS:,} more")
    return "\n".join(lines)


def result_facts(result: Result) -> dict[str, Any]:
    """The result as plain values for JSON; of tables only the number of rows."""
    account = {name: getattr(result.account, name) for name in ACCOUNT}
    return {
        "job": result.job,
        "seconds": result.seconds,
        "records_per_s": result.records_per_s,
        "account": {**account, "difference": result.account.difference},
        "operators": [{name: getattr(one, name) for name in OPERATOR} for one in result.operators],
        "latency_ms": {
            "p50": result.latency.p50_ms,
            "p99": result.latency.p99_ms,
            "p999": result.latency.p999_ms,
            "max": result.latency.max_ms,
        },
        "rates": {label: rate_facts(rate) for label, rate in result.rates.items()},
        "outputs": {label: output_fact(output) for label, output in result.outputs.items()},
        "dead_letters": len(result.dead_letters),
    }


def rate_facts(rate: SourceRate) -> dict[str, float | None]:
    return {name: getattr(rate, name) for name in ("per_s", "lag", "lag_s", "trust")}


OPERATOR = ("number", "name", "at", "records_in", "records_out", *COUNTS)


def output_fact(output: Any) -> Any:
    if is_table(output):
        return {"rows": output.num_rows}
    return output if isinstance(output, int | float | str | None) else repr(output)
