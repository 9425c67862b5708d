"""`to_timestamp` natively against plain Python: texts that are right, nearly right, and wrong."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from plait.expr.time_reading import TimeReading
from plait.expr.tree import Expr, col
from plait.model.schema import Schema
from plait.node_runtime.lowering.expressions import lower
from plait.node_runtime.native._kernels import evaluate
from plait.testing.oracle.times import time_of
from plait.testing.oracle.values import Fault

ZONES = ("UTC", "+05:30", "-23:59", "Europe/Berlin", "America/New_York", "Africa/Casablanca")
ODD_ZONES = ("Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Monrovia")
FORMATS = (
    "%d.%m.%Y %H:%M",
    "%d/%b/%Y:%H:%M:%S %z",
    "%B %d, %Y %I:%M %p",
    "%y%m%d",
    "%m%d%Y",
    "%Y-%m-%dT%H:%M:%S.%f",
    "100%% %Y/%m/%d é",
)
LOCAL = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59))  # noqa: DTZ001
NEAR = st.datetimes(datetime.datetime(1890, 1, 1), datetime.datetime(2110, 1, 1))  # noqa: DTZ001
READINGS = st.one_of(
    st.builds(
        TimeReading,
        tz=st.sampled_from([None, *ZONES, *ODD_ZONES]),
        rounding=st.sampled_from(["error", "down"]),
    ),
    st.builds(
        TimeReading,
        format=st.sampled_from(FORMATS),
        tz=st.sampled_from([*ZONES, *ODD_ZONES]),
        rounding=st.sampled_from(["error", "down"]),
    ),
)


def outcome(value: Any, reading: TimeReading) -> int | str:
    try:
        return time_of(value, reading)
    except Fault as fault:
        return str(fault)


def compare(values: list[Any], kind: type, reading: TimeReading) -> None:
    schema = Schema.of({"x": kind})
    program = lower(Expr("to_timestamp", (col("x"),), reading), schema)
    batch = pa.RecordBatch.from_pydict({"x": values}, schema=schema.to_arrow())
    array, failed = evaluate(program, batch)
    got: list[int | str] = array.cast(pa.int64()).to_pylist()
    for row, message in failed:
        got[row] = message
    assert got == [outcome(value, reading) for value in values]


@st.composite
def texts(draw: st.DrawFn, reading: TimeReading) -> str:
    at = draw(NEAR | LOCAL)
    if reading.format is None:
        parts = ["", " ", "T", "x", "  "]
        clock = at.strftime(draw(st.sampled_from(["%H:%M", "%H:%M:%S", "%H"])))
        fraction = draw(st.sampled_from(["", "", ".5", ",123456", ".1234567", ".120000000", "."]))
        zone = draw(st.sampled_from(["", "", "Z", "+01", "-0330", "+14:00", "+24:00", "+1", " Z"]))
        text = f"{at.year:04d}-{at.month:02d}-{at.day:02d}"
        if draw(st.booleans()):
            text += draw(st.sampled_from(["T", " "] * 3 + parts)) + clock + fraction + zone
    else:
        zoned = at.replace(tzinfo=datetime.timezone(datetime.timedelta(minutes=-90)))
        text = zoned.strftime(reading.format)
        if draw(st.booleans()):
            text = text.replace("0", "", 1)
    if draw(st.integers(0, 5)) == 0:
        where = draw(st.integers(0, len(text)))
        text = text[:where] + draw(st.sampled_from("0129-:. TZé%")) + text[where + 1 :]
    return text


@given(data=st.data(), reading=READINGS)
def test_texts_are_read_as_plain_python_reads_them(
    data: st.DataObject, reading: TimeReading
) -> None:
    compare(data.draw(st.lists(texts(reading), min_size=1, max_size=30)), str, reading)


@given(reading=READINGS, values=st.lists(st.text(max_size=30), max_size=10))
def test_any_text_gives_the_same_answer(reading: TimeReading, values: list[str]) -> None:
    compare(values, str, reading)


@given(tz=st.sampled_from(ZONES + ODD_ZONES), start=NEAR)
def test_clocks_that_are_changed(tz: str, start: datetime.datetime) -> None:
    """Every half hour of some days, the changes of the year among them."""
    from zoneinfo import ZoneInfo

    day = datetime.timedelta(days=1)
    near = [start + n * day for n in range(370)]
    if len(tz) > 6:
        zone = ZoneInfo(tz)
        offsets = [at.replace(tzinfo=zone).utcoffset() for at in near]
        near = [at for at, a, b in zip(near, offsets, offsets[1:], strict=False) if a != b]
    half_hours = [datetime.timedelta(minutes=30 * n + 7) for n in range(-48, 96)]
    times = [at.replace(second=0, microsecond=0) + step for at in near[:4] for step in half_hours]
    compare([f"{at:%Y-%m-%d %H:%M}" for at in times], str, TimeReading(tz=tz))


@given(
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
    rounding=st.sampled_from(["error", "down"]),
    values=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**12), 10**12)),
)
@example(unit="us", rounding="error", values=[253402300799999999, 253402300800000000])
@example(unit="us", rounding="error", values=[-62135596800000000, -62135596800000001])
def test_ints_since_1970(unit: str, rounding: str, values: list[int]) -> None:
    compare(values, int, TimeReading(unit=unit, rounding=rounding))  # type: ignore[arg-type]


@given(unit=st.sampled_from(["s", "ms", "us", "ns"]), values=st.lists(st.floats(width=64)))
@example(unit="us", values=[253402300799999968.0, 253402300800000000.0, 0.5, 1.5, -0.5])
@example(unit="s", values=[1.1, 1700000000.123457, -62135596800.0, -62135596800.1])
def test_floats_since_1970(unit: str, values: list[float]) -> None:
    compare(values, float, TimeReading(unit=unit))  # type: ignore[arg-type]
