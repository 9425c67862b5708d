"""The screen of `plait top`, to the character; and that it fits any screen."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from plait.cli.top_rows import source_row
from plait.cli.top_view import (
    JobRow,
    MigrationRow,
    NodeRow,
    PartRow,
    SourceRow,
    View,
    bar,
    clean,
    links_text,
    render,
    sparkline,
)
from plait.protocol.rates import SourceRate
from plait.text.tables import width as text_width

FIRST = NodeRow(
    name="node-0",
    host="alpha",
    state="member",
    bins=2048,
    epoch=1204,
    in_per_s=1.2e6,
    out_per_s=1.2e6,
    p99_ms=2.1,
    cpu_cores=1.25,
    cpu_ratio=0.93,
    rss_bytes=734_000_000,
)
SECOND = NodeRow(name="node-1", host="beta", state="joining", rss_bytes=90_000_000)
MIGRATION = MigrationRow(
    strategy="fluid",
    bins=4096,
    bins_moved=2376,
    size_bytes=512_000_000,
    moved_bytes=297_000_000,
    eta_s=3.2,
)
PARTS = (
    PartRow(
        name="carts",
        queries=("counts", "late"),
        cpu_cores=0.4,
        ns_per_record=120.0,
        taken=24_123_456,
        waiting=1_024,
    ),
    PartRow(name="counts", queries=("counts",), cpu_cores=0.85, taken=24_000_000, blocked_s=3.21),
)
CARTS = JobRow(
    name="carts",
    state="rescaling",
    nodes=(FIRST, SECOND),
    epoch=1204,
    in_per_s=1_234_567,
    out_per_s=1.2e6,
    delivered=24_123_456,
    p50_ms=0.412,
    p99_ms=2.13,
    max_ms=1234.4,
    state_bytes=512_000_000,
    bins=4096,
    rates=(0.0, 1e6, 2e6, 3.5e6, 1e6),
    migration=MIGRATION,
    cpu_cores=1.25,
    parts=PARTS,
)
NIGHT = JobRow(name="night", state="failed", error="node-3 was lost\nand more of it")
VIEW = View(jobs=(CARTS, NIGHT))

WIDE = """\
job    state      nodes  epoch   in/s  out/s  delivered  cores  p50 ms  p99 ms  max ms  state size
carts  rescaling      2  1,204  1.23M  1.20M      24.1M   1.25    0.41    2.13   1,234      512 MB
  ▁▃▅█▃  in/s, at most 3.50M
  fluid running  ████████████░░░░░░░░ 58%  2,376 of 4,096 bins  297 MB of 512 MB  4 s to go
  sub-pipeline  for           cores  ns/record  taken  waiting  blocked s
  carts         counts, late   0.40        120  24.1M    1,024        0.0
  counts        counts         0.85          0  24.0M        0        3.2
  node    host   state     bins  epoch   in/s  out/s  p99 ms  cores  host cpu   memory
  node-0  alpha  member   2,048  1,204  1.20M  1.20M    2.10   1.25       93%   734 MB
  node-1  beta   joining      0      0      0      0       -   0.00        0%  90.0 MB
night  failed         0      0      0      0          0   0.00       -       -       -         0 B
  error: node-3 was lost"""

NARROW = """\
job    state      nodes   in/s  out/s  p99 ms
carts  rescaling      2  1.23M  1.20M    2.13
  ▁▃▅█▃  in/s, at most 3.50M
  fluid running  ████████████░░░░░░░░ 58%  2,37...
  sub-pipeline  cores  ns/record  taken  waiting
  carts          0.40        120  24.1M    1,024
... 6 more lines"""


def test_a_wide_screen() -> None:
    assert render(VIEW, 100, 40) == WIDE


def test_a_small_screen_leaves_out_columns_and_lines() -> None:
    assert render(VIEW, 50, 7) == NARROW


def test_nothing_to_show() -> None:
    assert render(View(jobs=())) == "no jobs"


def test_a_lost_link_has_a_column_of_its_own() -> None:
    job = replace(CARTS, nodes=(FIRST, replace(SECOND, links_down=("node-0",))))
    lines = render(View(jobs=(job,)), 60, 40).splitlines()
    assert lines[-3].endswith("links")
    assert lines[-2].endswith("ok")
    assert lines[-1].endswith("no link to node-0")


def test_sources_have_a_line_each() -> None:
    sources = (
        SourceRow(name="clicks", per_s=1_234_567.0, lag=7000.0, lag_s=0.31),
        SourceRow(name="spark", per_s=12.0, trusted=False),
        SourceRow(name="idle", lag=0.0, lag_s=0.0, worst=("0", 0.0)),
        SourceRow(name="views", per_s=50.0, lag=9.0, lag_s=0.2, worst=("3", 8.0)),
    )
    lines = render(View(jobs=(replace(CARTS, sources=sources),)), 120, 30).splitlines()
    assert "  clicks: 1.23M/s come in, 7,000 behind (0.3 s)" in lines
    assert "  spark: 12/s come in (not trusted)" in lines
    assert "  idle: 0/s come in, 0 behind (0.0 s)" in lines
    assert "  views: 50/s come in, 9 behind (0.2 s), most of it in 3: 8" in lines


def test_a_row_names_the_partition_that_is_furthest_behind() -> None:
    parts = tuple(
        (name, SourceRate(per_s=1.0, lag=lag, lag_s=0.0, trust=1.0))
        for name, lag in (("0", 2.0), ("1", 7.0))
    )
    rate = SourceRate(per_s=2.0, lag=9.0, lag_s=0.0, trust=0.4, partitions=parts)
    row = source_row("clicks", rate)
    assert row == SourceRow(
        name="clicks", per_s=2.0, lag=9.0, lag_s=0.0, trusted=False, worst=("1", 7.0)
    )
    assert source_row("clicks", replace(rate, partitions=parts[:1])).worst is None


def test_color_changes_nothing_but_the_color() -> None:
    lines = render(VIEW, 100, 40, color=True).splitlines()
    plain = WIDE.splitlines()
    assert lines[0] == f"\x1b[1m{plain[0]}\x1b[0m"
    assert lines[1] == f"\x1b[33m{plain[1]}\x1b[0m"
    assert lines[2] == plain[2]
    assert lines[5] == plain[5]
    assert lines[-1] == f"\x1b[31m{plain[-1]}\x1b[0m"


@given(
    width=st.integers(3, 150),
    height=st.integers(1, 30),
    name=st.text(max_size=40),
    jobs=st.integers(0, 4),
)
def test_it_fits(width: int, height: int, name: str, jobs: int) -> None:
    node = replace(FIRST, name=name, host=name, links_down=(name,) * 5)
    job = replace(CARTS, name=name, state=name, error=name, nodes=(node, SECOND))
    lines = render(View(jobs=(job,) * jobs), width, height).split("\n")
    assert len(lines) <= height
    assert all(text_width(line) <= width for line in lines)
    assert all(line.isprintable() for line in lines)


def test_sparkline() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 20) == "▁▂▃▄▅▆▇█"
    assert sparkline([9, 9, 0, 7], 2) == "▁█"
    assert sparkline([0, 0, 0], 20) == "▁▁▁"
    assert sparkline([], 20) == ""


def test_bar() -> None:
    assert bar(0.5, 4) == "██░░"
    assert bar(1.7, 4) == "████"
    assert bar(-1.0, 4) == "░░░░"


def test_small_texts() -> None:
    assert clean("a\x1b[2Jb\nc") == "a?[2Jb"
    assert links_text(("n1", "n2", "n3", "n4")) == "no link to n1, n2, n3 and 1 more"
