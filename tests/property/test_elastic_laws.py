"""Laws of the elastic level and of the degrees of stages, on curves and machines of any shape."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plait.node_runtime.elastic.level_records import above
from plait.node_runtime.elastic.stage_degree import (
    DegreeMemory,
    DegreePolicy,
    DegreesView,
    StageView,
)
from plait.node_runtime.elastic.stage_degree import decide as decide_degrees
from plait.node_runtime.elastic.worker_level import (
    LevelPolicy,
    LevelView,
    TrendPolicy,
    UtilisationPolicy,
    begin,
    cpu_allows,
    decide,
)

ratios = st.floats(0, 1)


@st.composite
def policies(draw: st.DrawFn) -> LevelPolicy:
    least = draw(st.integers(1, 8))
    most = draw(st.integers(least, 40))
    start = draw(st.none() | st.integers(1, 50))
    if draw(st.booleans()):
        return UtilisationPolicy(max_level=most, min_level=least, start_level=start)
    return TrendPolicy(
        max_level=most,
        min_level=least,
        start_level=start,
        samples=draw(st.integers(1, 3)),
        recheck_after=draw(st.integers(1, 50)),
    )


@given(
    policies(),
    st.lists(
        st.tuples(st.floats(0, 1e9), ratios, st.none() | ratios, ratios, st.booleans()),
        max_size=80,
    ),
)
def test_the_level_keeps_its_bounds_and_heeds_the_guard(
    policy: LevelPolicy, story: list[tuple[float, float, float | None, float, bool]]
) -> None:
    memory = begin(policy)
    for throughput, cpu_ratio, others, busy, odd in story:
        before = memory.level
        view = LevelView(
            throughput=throughput,
            active=before + odd,
            cpu_ratio=cpu_ratio,
            others_cpu_ratio=others,
            busy_ratio=busy,
        )
        decision, memory = decide(view, policy, memory)
        assert decision.level == memory.level
        assert policy.min_level <= decision.level <= policy.max_level
        assert decision.reason
        if not cpu_allows(view, policy):
            assert decision.level <= before
        if odd:
            assert decision.level == before


@given(
    st.lists(st.floats(1, 1e9), min_size=1, max_size=40),
    st.integers(1, 3),
    st.none() | st.integers(1, 40),
)
def test_a_steady_curve_of_any_shape_is_settled_on(
    rates: list[float], samples: int, start: int | None
) -> None:
    """Not moved from again, but for looks at the level above, each of which may find a better one
    and the search begin anew; levels above double."""
    policy = TrendPolicy(max_level=len(rates), samples=samples, start_level=start)
    memory = begin(policy)
    levels = []
    searched = len(rates).bit_length() * (4 * len(rates) + policy.recheck_after)
    for _ in range(samples * (searched + 3 * policy.recheck_after)):
        view = LevelView(throughput=rates[memory.level - 1], active=memory.level)
        _, memory = decide(view, policy, memory)
        levels.append(memory.level)
    rest = levels[samples * searched :]
    home = max(set(rest), key=rest.count)
    if max(rates) <= min(rates) * 1.02:
        assert home == 1
    assert rest.count(home) >= 0.95 * len(rest)


@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=32),
    st.none() | st.integers(1, 32),
)
def test_a_concave_curve_is_settled_on_near_its_best(gains: list[float], start: int | None) -> None:
    """Gains that only become smaller, and may turn into losses behind the best level."""
    steps = sorted(gains, reverse=True)
    rates = [1.0]
    for gain in steps:
        rates.append(rates[-1] + gain - 0.3)
    rates = [max(rate, 0.01) for rate in rates]
    policy = TrendPolicy(max_level=len(rates), start_level=start)
    memory = begin(policy)
    levels = []
    for _ in range(300):
        view = LevelView(throughput=rates[memory.level - 1], active=memory.level)
        _, memory = decide(view, policy, memory)
        levels.append(memory.level)
    home = max(set(levels[100:]), key=levels[100:].count)
    # Levels are compared with their neighbours: one may be as good as the next, and that one as a
    # third.
    assert rates[home - 1] * (1 + policy.sensitivity_ratio) ** 2 >= max(rates)
    assert set(levels[150:]) <= {home, above(home, range(1, len(rates) + 1), len(rates))} | {
        level for level in levels[150:] if home < level < 3 * home
    }


@given(st.data())
def test_degrees_keep_their_bounds(data: st.DataObject) -> None:
    most = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    degrees = [1] * len(most)
    memory, policy = DegreeMemory(), DegreePolicy()
    for _ in range(data.draw(st.integers(1, 40))):
        stages = tuple(
            StageView(
                stage=i,
                degree=degrees[i],
                most=most[i],
                blocked_ratio=data.draw(ratios),
                after=(i + 1,) if i + 1 < len(most) else (),
            )
            for i in range(len(most))
        )
        view = DegreesView(stages=stages, throughput=data.draw(st.floats(0, 1e9)))
        decision, memory = decide_degrees(view, policy, memory)
        for stage, degree in decision.changes:
            assert abs(degree - degrees[stage]) == 1
            degrees[stage] = degree
        assert all(1 <= degree <= top for degree, top in zip(degrees, most, strict=True))
