"""Laws of estimated rates, on drawn schedules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.protocol.rates import Sample
from plait.shedding.rates import Estimator

STEPS = st.lists(st.floats(0.001, 2.0), min_size=3, max_size=80)


@given(
    steps=STEPS, per_s=st.floats(1e-3, 1e7), began=st.floats(0.0, 1e6), level=st.integers(0, 10**9)
)
def test_an_exact_line_gives_the_exact_rate(
    steps: list[float], per_s: float, began: float, level: int
) -> None:
    """Whatever the times of the looks are."""
    found = Estimator()
    after = 0.0
    for step in steps:
        after += step
        found.add(Sample(at=began + after, position=0.0, end=level + per_s * after))
    # The level itself is known to 16 digits only.
    least = 1e-6 * per_s + (level + per_s * after) * 1e-12 / min(after, 1.0) + 1e-9
    spread = (began + after) * 1e-14 * per_s / min(steps)
    assert found.rate(began + after).per_s == pytest.approx(
        per_s, abs=least + spread + 1e-4 * per_s
    )


@given(
    looks=st.lists(
        st.tuples(
            st.floats(-1.0, 5.0),
            st.integers(0, 10**6),
            st.one_of(st.none(), st.integers(0, 10**6)),
        ),
        max_size=40,
    ),
    later=st.floats(0.0, 100.0),
)
def test_no_rate_and_no_lag_is_ever_negative(
    looks: list[tuple[float, int, int | None]], later: float
) -> None:
    """Also after clocks, ends and positions that go back or stand still."""
    found = Estimator()
    at = 0.0
    for step, position, end in looks:
        at += step
        found.add(Sample(at=at, position=position, end=end))
        known = found.rate(at + later)
        assert known.per_s >= 0.0
        assert known.lag is None or known.lag >= 0.0
        assert known.lag_s is None or known.lag_s >= 0.0
        assert 0.0 <= known.trust <= 1.0
