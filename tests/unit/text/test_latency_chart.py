"""The chart of latencies, to the character."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plait.text.latency_chart import interval, latency_chart

CALM = [(second / 2, 0.5, 5.0) for second in range(41)]
MOVING = [(at, half, 300.0 if 8.0 <= at <= 9.0 else most) for at, half, most in CALM]

CHART = """\
     1 s ┤
         │                ▪▪▪
  100 ms ┤
         │
   10 ms ┤
         │▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪   ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪
    1 ms ┤
         │········································
  100 us ┤
         └────────────────────────────────────────
                          ├─rescale─┤
          0 s     ▪ longest  · half below     20 s"""


def test_a_chart_with_a_marked_interval() -> None:
    assert latency_chart(MOVING, 50, 12, marked=(8.0, 13.0)) == CHART


def test_nothing_measured() -> None:
    assert latency_chart([]) == "no latency measured yet"
    assert latency_chart([(1.0, 0.0, 0.0)]) == "no latency measured yet"


def test_one_sample() -> None:
    text = latency_chart([(3.0, 1.0, 1.0)], 40, 6)
    assert text.splitlines()[0] == "   10 ms ┤"
    assert text.splitlines()[3] == "    1 ms ┤▪"


def test_the_longest_of_a_column_is_drawn_and_the_median_of_the_medians() -> None:
    samples = [(0.0, 1.0, 10.0), (0.0, 1.0, 1000.0), (0.0, 100.0, 10.0), (1.0, 1.0, 1.0)]
    lines = latency_chart(samples, 40, 6).splitlines()
    assert [line[10:11] for line in lines[:4]] == ["▪", "", "", "·"]


def test_a_short_interval_has_its_label_beside_it() -> None:
    assert interval(2, 12, "rescale", 20) == "  ├─rescale─┤"
    assert interval(2, 4, "rescale", 20) == "  ├─┤ rescale"
    assert interval(2, 2, "rescale", 20) == "  │ rescale"
    assert interval(17, 18, "rescale", 20) == "         rescale ├┤"


@given(
    samples=st.lists(
        st.tuples(st.floats(0, 1e4), st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1
    ),
    width=st.integers(30, 120),
    height=st.integers(6, 40),
    marked=st.none() | st.tuples(st.floats(0, 5e3), st.floats(5e3, 1e4)),
)
def test_it_fits(
    samples: list[tuple[float, float, float]],
    width: int,
    height: int,
    marked: tuple[float, float] | None,
) -> None:
    lines = latency_chart(samples, width, height, marked=marked).splitlines()
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
