"""Jobs and their nodes as a screen of text, for `plait top`.

Pure: rows of facts in, text out; nothing is measured here. Columns are aligned, and
the least important ones are left out until a line fits. The rule: no line is wider than the width
given, and there are never more lines than the height.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from plait.text.tables import shorten, width
from plait.text.units import bytes_text, count_text, countdown_text, millis_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GAP = "  "
BLOCKS = "▁▂▃▄▅▆▇█"
FULL, EMPTY = "█", "░"
BAR = 20
NAME = 24
"""The widest a name may be."""
SHOWN_LINKS = 3
STYLES = {"head": "1", "good": "32", "busy": "33", "bad": "31"}
BAD_STATES = ("failed", "lost", "cancelled")
QUIET_STATES = ("running", "member", "ended", "left")


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRow:
    """A migration that is under way."""

    strategy: str
    phase: str = "running"
    bins: int = 0
    bins_moved: int = 0
    size_bytes: int = 0
    moved_bytes: int = 0
    eta_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node of a job."""

    name: str
    host: str = ""
    state: str = ""
    bins: int = 0
    epoch: int = 0
    in_per_s: float = 0.0
    out_per_s: float = 0.0
    p99_ms: float = 0.0
    cpu_cores: float = 0.0
    cpu_ratio: float = 0.0
    rss_bytes: int = 0
    links_down: tuple[str, ...] = ()
    """Names of nodes to which there is no connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """A source that records come in at by themselves."""

    name: str
    per_s: float = 0.0
    lag: float | None = None
    lag_s: float | None = None
    trusted: bool = True
    worst: tuple[str, float] | None = None
    """Of several partitions the one that is furthest behind, and by how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """A sub-pipeline, on all nodes together."""

    name: str
    queries: tuple[str, ...] = ()
    cpu_cores: float = 0.0
    ns_per_record: float = 0.0
    taken: int = 0
    waiting: int = 0
    blocked_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job, with what its nodes do taken together."""

    name: str
    state: str
    nodes: tuple[NodeRow, ...] = ()
    epoch: int = 0
    in_per_s: float = 0.0
    out_per_s: float = 0.0
    delivered: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    state_bytes: int = 0
    bins: int = 0
    rates: tuple[float, ...] = ()
    """Records in a second, over the last looks; the newest last."""
    sources: tuple[SourceRow, ...] = ()
    parts: tuple[PartRow, ...] = ()
    cpu_cores: float = 0.0
    migration: MigrationRow | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that one screen shows."""

    jobs: tuple[JobRow, ...]


Row = TypeVar("Row", JobRow, NodeRow, PartRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row]):
    """A column of a table: what it shows, and how soon it goes if there is no room."""

    title: str
    text: Callable[[Row], str]
    keep: int
    """The column with the lowest number is left out first."""
    right: bool = True


JOB_COLUMNS: tuple[Column[JobRow], ...] = (
    Column(title="job", text=lambda job: name_text(job.name), keep=99, right=False),
    Column(title="state", text=lambda job: clean(job.state), keep=98, right=False),
    Column(title="nodes", text=lambda job: str(len(job.nodes)), keep=7),
    Column(title="epoch", text=lambda job: count_text(job.epoch), keep=3),
    Column(title="in/s", text=lambda job: count_text(job.in_per_s), keep=10),
    Column(title="out/s", text=lambda job: count_text(job.out_per_s), keep=8),
    Column(title="delivered", text=lambda job: count_text(job.delivered), keep=6),
    Column(title="cores", text=lambda job: f"{job.cpu_cores:.2f}", keep=6),
    Column(title="p50 ms", text=lambda job: millis_text(job.p50_ms), keep=4),
    Column(title="p99 ms", text=lambda job: millis_text(job.p99_ms), keep=9),
    Column(title="max ms", text=lambda job: millis_text(job.max_ms), keep=5),
    Column(title="state size", text=lambda job: bytes_text(job.state_bytes), keep=2),
    Column(title="bins", text=lambda job: count_text(job.bins), keep=1),
)
NODE_COLUMNS: tuple[Column[NodeRow], ...] = (
    Column(title="node", text=lambda node: name_text(node.name), keep=99, right=False),
    Column(title="host", text=lambda node: name_text(node.host), keep=4, right=False),
    Column(title="state", text=lambda node: clean(node.state), keep=98, right=False),
    Column(title="bins", text=lambda node: count_text(node.bins), keep=7),
    Column(title="epoch", text=lambda node: count_text(node.epoch), keep=1),
    Column(title="in/s", text=lambda node: count_text(node.in_per_s), keep=9),
    Column(title="out/s", text=lambda node: count_text(node.out_per_s), keep=6),
    Column(title="p99 ms", text=lambda node: millis_text(node.p99_ms), keep=3),
    Column(title="cores", text=lambda node: f"{node.cpu_cores:.2f}", keep=8),
    Column(title="host cpu", text=lambda node: f"{100 * node.cpu_ratio:.0f}%", keep=7),
    Column(title="memory", text=lambda node: bytes_text(node.rss_bytes), keep=5),
    Column(title="links", text=lambda node: links_text(node.links_down), keep=10, right=False),
)

PART_COLUMNS: tuple[Column[PartRow], ...] = (
    Column(title="sub-pipeline", text=lambda part: name_text(part.name), keep=99, right=False),
    Column(title="for", text=lambda part: name_text(", ".join(part.queries)), keep=3, right=False),
    Column(title="cores", text=lambda part: f"{part.cpu_cores:.2f}", keep=98),
    Column(title="ns/record", text=lambda part: count_text(part.ns_per_record), keep=7),
    Column(title="taken", text=lambda part: count_text(part.taken), keep=6),
    Column(title="waiting", text=lambda part: count_text(part.waiting), keep=8),
    Column(title="blocked s", text=lambda part: f"{part.blocked_s:.1f}", keep=5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the screen and its style, "" for none."""

    text: str
    style: str = ""


def render(view: View, width: int = 100, height: int = 40, *, color: bool = False) -> str:
    """The screen: jobs in one table; under each its rate, its migration and its nodes."""
    if not view.jobs:
        return cut([Line(text="no jobs")], width, height, color)
    table = fit(JOB_COLUMNS, view.jobs, width)
    lines = [Line(text=table[0], style="head")]
    for job, text in zip(view.jobs, table[1:], strict=True):
        lines.append(Line(text=text, style=style_of(job.state)))
        lines += details(job, width)
    return cut(lines, width, height, color)


def details(job: JobRow, width: int) -> list[Line]:
    lines: list[Line] = []
    if job.error:
        lines.append(Line(text=f"{GAP}error: {clean(job.error)}", style="bad"))
    if len(job.rates) > 1:
        peak = f"{GAP}in/s, at most {count_text(max(job.rates))}"
        room = max(width - len(GAP) - len(peak), 1)
        lines.append(Line(text=f"{GAP}{sparkline(job.rates, room)}{peak}"))
    lines += [Line(text=f"{GAP}{source_text(one)}") for one in job.sources]
    if job.migration is not None:
        style = "bad" if job.migration.phase == "failed" else "busy"
        lines.append(Line(text=f"{GAP}{migration_text(job.migration)}", style=style))
    if job.parts:
        table = fit(PART_COLUMNS, job.parts, width - len(GAP))
        lines += [
            Line(text=f"{GAP}{text}", style="" if number else "head")
            for number, text in enumerate(table)
        ]
    if job.nodes:
        cut_off = any(node.links_down for node in job.nodes)
        columns = [one for one in NODE_COLUMNS if cut_off or one.title != "links"]
        table = fit(columns, job.nodes, width - len(GAP))
        styles = ["head", *map(node_style, job.nodes)]
        lines += [
            Line(text=f"{GAP}{text}", style=style)
            for text, style in zip(table, styles, strict=True)
        ]
    return lines


def fit(columns: Sequence[Column[Row]], rows: Sequence[Row], most: int) -> list[str]:
    """A table with its head, without the columns there is no room for."""
    cells: dict[str, list[str]] = {}
    for column in columns:
        cells[column.title] = [column.title] + [column.text(row) for row in rows]
    widths = {title: max(map(width, texts)) for title, texts in cells.items()}
    kept = list(columns)
    while len(kept) > 2 and len(GAP) * (len(kept) - 1) + sum(widths[c.title] for c in kept) > most:
        kept.remove(min(kept, key=lambda column: column.keep))
    return [
        GAP.join(
            pad(cells[one.title][i], widths[one.title], right=one.right) for one in kept
        ).rstrip()
        for i in range(len(rows) + 1)
    ]


def pad(text: str, wide: int, *, right: bool) -> str:
    space = " " * (wide - width(text))
    return space + text if right else text + space


def cut(lines: Sequence[Line], width: int, height: int, color: bool) -> str:
    """Makes lines fit, and says how many there was no room for."""
    shown = list(lines)
    if len(lines) > max(height, 1):
        shown = list(lines[: max(height - 1, 0)])
        shown.append(Line(text=f"... {len(lines) - len(shown):,} more lines"))
    texts = [(shorten(line.text, width), line.style) for line in shown]
    return "\n".join(add_style(text, style) if color else text for text, style in texts)


def add_style(text: str, style: str) -> str:
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style else text


def style_of(state: str) -> str:
    if state in BAD_STATES:
        return "bad"
    return "good" if state in QUIET_STATES else "busy"


def node_style(node: NodeRow) -> str:
    if node.links_down or node.state in BAD_STATES:
        return "bad"
    return "" if node.state in QUIET_STATES else "busy"


def source_text(one: SourceRow) -> str:
    doubt = "" if one.trusted else " (not trusted)"
    text = f"{name_text(one.name)}: {count_text(one.per_s)}/s come in{doubt}"
    if one.lag is not None:
        text += f", {count_text(one.lag)} behind"
        text += "" if one.lag_s is None else f" ({one.lag_s:.1f} s)"
    if one.worst is not None and one.worst[1] > 0.0:
        text += f", most of it in {clean(one.worst[0])}: {count_text(one.worst[1])}"
    return text


def migration_text(one: MigrationRow) -> str:
    ratio = one.bins_moved / one.bins if one.bins else 0.0
    parts = [
        f"{one.strategy} {one.phase}",
        f"{bar(ratio, BAR)} {100 * ratio:.0f}%",
        f"{one.bins_moved:,} of {one.bins:,} bins",
        f"{bytes_text(one.moved_bytes)} of {bytes_text(one.size_bytes)}",
    ]
    if one.eta_s is not None:
        parts.append(f"{countdown_text(one.eta_s)} to go")
    return GAP.join(parts)


def bar(ratio: float, wide: int) -> str:
    full = round(min(max(ratio, 0.0), 1.0) * wide)
    return FULL * full + EMPTY * (wide - full)


def sparkline(values: Sequence[float], most: int) -> str:
    """The newest values as blocks, from nothing to the greatest of them."""
    shown = values[-most:]
    top = max(shown, default=0.0)
    if top <= 0:
        return BLOCKS[0] * len(shown)
    last = len(BLOCKS) - 1
    return "".join(BLOCKS[min(round(max(one, 0.0) / top * last), last)] for one in shown)


def name_text(text: str) -> str:
    return shorten(clean(text), NAME)


def clean(text: str) -> str:
    """One line without anything that could move the cursor."""
    first = next(iter(text.splitlines()), "")
    return "".join(one if one.isprintable() else "?" for one in first)


def links_text(down: Sequence[str]) -> str:
    if not down:
        return "ok"
    more = f" and {len(down) - SHOWN_LINKS} more" if len(down) > SHOWN_LINKS else ""
    return f"no link to {', '.join(map(clean, down[:SHOWN_LINKS]))}{more}"
