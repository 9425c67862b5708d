"""Random schemas, rows and expressions for property tests with Hypothesis.

The values are the awkward ones: nulls, empty and huge strings, characters beyond the first plane,
NaN, infinities, -0.0, the ends of int64, times from year 1 to 9999; and few different keys, so that
keys meet. Hypothesis is imported only inside, since users of `plait.testing` may not have it.

    @given(data=st.data())
    def test_something(data):
        schema = data.draw(schemas())
        table = data.draw(rows(schema))
        expr = data.draw(expressions(schema, Type.INT64))
"""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any

from plait.model.schema import INT64_MAX, INT64_MIN, Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy

    from plait.expr.tree import Expr
    from plait.graph.operators import Graph

TYPES = (Type.INT64, Type.FLOAT64, Type.BOOL, Type.STRING, Type.BYTES, Type.TIMESTAMP)
INTS = (0, 1, -1, 2, 7, 63, 64, 255, 2**31, 2**53 + 1, INT64_MAX, INT64_MIN, INT64_MIN + 1)
FLOATS = (0.0, -0.0, 1.0, -1.5, math.nan, math.inf, -math.inf, 5e-324, 1.7e308, 2.0**63, 1e16, 0.1)
STRINGS = (
    "",
    "a",
    "A",
    "ab",
    " \t x \n",
    "12",
    "-7",
    "1.5",
    "1e5",
    "nan",
    "true",
    "é",
    "e\u0301",
    "ß",
    "İ",
    "ΑΣ",
    "\uffff",
    "\U0001f600",
    "\U00010400",
    "\x00",
    "\xa0",
)
UTC = datetime.UTC
TIMES = (
    datetime.datetime(1970, 1, 1, tzinfo=UTC),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime.datetime(2024, 2, 29, 12, 30, 15, 1, tzinfo=UTC),
    datetime.datetime(1900, 3, 1, tzinfo=UTC),
)
FAR_TIMES = (
    datetime.datetime.min.replace(tzinfo=UTC),
    datetime.datetime.max.replace(tzinfo=UTC),
)
HUGE = 100_000


def schemas(
    *, min_columns: int = 1, max_columns: int = 5, types: Sequence[Type] = TYPES
) -> SearchStrategy[Schema]:
    """Schemas with columns c0, c1, ... of any types."""
    from hypothesis import strategies as st

    column = st.tuples(st.sampled_from(types), st.booleans())
    columns = st.lists(column, min_size=min_columns, max_size=max_columns)
    return columns.map(
        lambda found: Schema(
            tuple(Field(f"c{i}", kind, nullable) for i, (kind, nullable) in enumerate(found))
        )
    )


def values(kind: Type, *, far_times: bool = True, huge: bool = True) -> SearchStrategy[Any]:
    """Values of one type, never None.

    Args:
        far_times: whether times reach from year 1 to 9999; else from 1700 to 2300.
        huge: whether a string may have 100,000 characters.
    """
    from hypothesis import strategies as st

    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    match kind:
        case Type.INT64:
            near = st.integers(-4, 4)
            return near | st.sampled_from(INTS) | st.integers(INT64_MIN, INT64_MAX)
        case Type.FLOAT64:
            return st.sampled_from(FLOATS) | st.integers(-3, 3).map(float) | st.floats()
        case Type.BOOL:
            return st.booleans()
        case Type.STRING:
            pool = (*STRINGS, "é" * HUGE) if huge else STRINGS
            return st.sampled_from(pool) | text
        case Type.BYTES:
            return st.sampled_from((b"", b"a", b"\x00", b"\xff", "é".encode())) | st.binary(
                max_size=9
            )
        case Type.TIMESTAMP:
            return times(far_times)
        case Type.OBJECT:
            leaf = st.none() | st.integers() | text
            return st.lists(leaf, max_size=3) | st.dictionaries(text, leaf, max_size=2)


def times(far: bool) -> SearchStrategy[datetime.datetime]:
    from hypothesis import strategies as st

    zone = st.just(UTC)
    near = st.datetimes(
        datetime.datetime(1700, 1, 1),  # noqa: DTZ001
        datetime.datetime(2300, 1, 1),  # noqa: DTZ001
        timezones=zone,
    )
    drawn = st.datetimes(timezones=zone) if far else near
    return st.sampled_from(TIMES + FAR_TIMES if far else TIMES) | drawn


def rows(
    schema: Schema, *, min_size: int = 0, max_size: int = 50, far_times: bool = True
) -> SearchStrategy[list[tuple[Any, ...]]]:
    """Rows of a schema. In most tables a column has few different values, so that keys meet."""
    from hypothesis import strategies as st

    @st.composite
    def draw_rows(draw: Any) -> list[tuple[Any, ...]]:
        columns: list[SearchStrategy[Any]] = []
        for field in schema.fields:
            one = values(field.type, far_times=far_times)
            if draw(st.integers(0, 3)):
                one = st.sampled_from(draw(st.lists(one, min_size=1, max_size=4)))
            columns.append(st.none() | one if field.nullable else one)
        least = draw(st.sampled_from((min_size, (min_size + max_size) // 2, max_size)))
        found: list[tuple[Any, ...]] = draw(
            st.lists(st.tuples(*columns), min_size=least, max_size=max_size)
        )
        return found

    return draw_rows()


def expressions(
    schema: Schema, kind: Type, *, depth: int = 3, far_times: bool = True
) -> SearchStrategy[Expr]:
    """Expressions of a type over a schema, not yet bound, of all operations but call."""
    from hypothesis import strategies as st

    from plait.testing.random_jobs.expression_trees import Drawer

    @st.composite
    def draw_expression(draw: Any) -> Expr:
        return Drawer(draw, schema, far_times).expr(
            kind, draw(st.sampled_from([depth, depth - 1, 1, 0]))
        )

    return draw_expression()


def graphs(*, max_rows: int = 60, max_steps: int = 6) -> SearchStrategy[Graph]:
    """Whole jobs: one or two sources and sinks, and a few operators of all kinds between them."""
    from hypothesis import strategies as st

    from plait.testing.random_jobs.job_graphs import JobDrawer

    @st.composite
    def draw_graph(draw: Any) -> Graph:
        return JobDrawer(draw, max_rows).graph(draw(st.integers(1, max_steps)))

    return draw_graph()


def timed_graphs(
    *,
    max_rows: int = 40,
    max_steps: int = 4,
    sources: Sequence[int] = (1, 1, 2, 2, 3),
    processes: bool = True,
) -> SearchStrategy[Graph]:
    """Whole jobs whose sources have event times, with windows, joins and processes."""
    from hypothesis import strategies as st

    from plait.testing.random_jobs.temporal import TimedDrawer

    @st.composite
    def draw_graph(draw: Any) -> Graph:
        drawer = TimedDrawer(draw, max_rows, sources, processes)
        return drawer.graph(draw(st.integers(1, max_steps)))

    return draw_graph()
