"""Files as a sink: round trips, names, and what is kept when a run fails."""

from __future__ import annotations

import datetime
import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plait.connectors.columns import to_batch
from plait.connectors.files import Files
from plait.errors import SinkError
from plait.model.records import records_of
from plait.model.schema import Schema

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = Schema.of(
    {
        "i": int,
        "f": float | None,
        "ok": bool | None,
        "s": str | None,
        "b": bytes | None,
        "t": datetime.datetime | None,
    }
)
TIMES = st.datetimes(
    datetime.datetime(1700, 1, 1),  # noqa: DTZ001
    datetime.datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.just(datetime.UTC),
)
ROW = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(),
    st.none() | st.booleans(),
    st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.none() | st.binary(),
    st.none() | TIMES,
)


def read(path: Path, schema: Schema | None = None) -> list[dict[str, Any]]:
    source = Files(path, schema=schema)
    reader = source.open()
    found: list[dict[str, Any]] = []
    while (batch := reader.poll(1000)) is not None:
        found += [
            dict(zip(source.schema.names, values(record, source.schema), strict=True))
            for record in records_of(batch, source.schema)
        ]
    reader.close()
    return found


def values(record: Any, schema: Schema) -> list[Any]:
    """With NaN as a text, so that it is equal to itself."""
    found = [getattr(record, name) for name in schema.names]
    return ["nan" if isinstance(v, float) and math.isnan(v) else v for v in found]


def write(path: Path, schema: Schema, *batches: list[Any], **options: Any) -> str:
    writer = Files(path, **options).open(schema)
    for batch in batches:
        writer.write(to_batch(batch, schema))
    name: str = writer.close()
    return name


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "csv.gz", "jsonl.gz"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(batches=st.lists(st.lists(ROW, min_size=1, max_size=4), max_size=3))
def test_what_is_written_reads_back(suffix: str, batches: list[list[Any]], tmp_path: Path) -> None:
    path = tmp_path / f"out.{suffix}"
    write(path, SCHEMA, *batches, overwrite=True)
    expected = [
        dict(zip(SCHEMA.names, values(record, SCHEMA), strict=True))
        for batch in batches
        for record in records_of(to_batch(batch, SCHEMA), SCHEMA)
    ]
    assert read(path, SCHEMA) == expected
    assert [other.name for other in tmp_path.iterdir()] == [path.name]


def test_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    moment = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    write(
        path,
        SCHEMA,
        [(1, math.nan, True, "ü", b"\0", moment)],
        [(2, -math.inf, None, "", None, None)],
    )
    first, second = path.read_text().splitlines()
    assert first == ('{"i":1,"f":"NaN","ok":true,"s":"ü","b":"AA==","t":"2024-05-01T12:00:00Z"}')
    assert json.loads(second)["f"] == "-Infinity"


def test_objects_are_lines_of_json(tmp_path: Path) -> None:
    schema = Schema.of({"o": object})
    write(tmp_path / "a.jsonl", schema, [({"x": [1, None]},), ([1],)])
    assert [row["o"] for row in read(tmp_path / "a.jsonl", schema)] == [{"x": [1, None]}, [1]]


def test_rows_before_one_without_json_are_kept(tmp_path: Path) -> None:
    schema = Schema.of({"o": object})
    writer = Files(tmp_path / "a.jsonl").open(schema)
    writer.write(to_batch([(1,)], schema))
    with pytest.raises(SinkError, match="has no JSON"):
        writer.write(to_batch([({1, 2},)], schema))
    writer.abort()
    assert read(tmp_path / "a.jsonl", schema) == [{"o": 1}]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_objects_have_no_place_elsewhere(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match='column "o" is object'):
        Files(tmp_path / f"a.{suffix}").open(Schema.of({"o": object}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_the_name_is_given_at_the_end(suffix: str, tmp_path: Path) -> None:
    schema = Schema.of({"n": int})
    path = tmp_path / "new" / f"a.{suffix}"
    writer = Files(path).open(schema)
    writer.write(to_batch([(1,)], schema))
    assert not path.exists()
    assert writer.abort() == str(path)
    assert read(path) == [{"n": 1}]
    assert writer.close() == str(path)


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
def test_a_folder_gets_a_part(format: Any, tmp_path: Path) -> None:
    name = write(tmp_path / "out", Schema.of({"n": int}), [(1,)], format=format)
    assert name == str(tmp_path / "out" / f"part-00000.{format}")
    assert read(tmp_path / "out") == [{"n": 1}]


def test_small_batches_make_few_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, Schema.of({"n": int}), *[[(n,)] for n in range(10)], batch_rows=4)
    metadata = pa.parquet.read_metadata(path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [4, 4, 2]


def test_an_existing_file_is_refused(tmp_path: Path) -> None:
    schema = Schema.of({"n": int})
    path = tmp_path / "a.csv"
    write(path, schema, [(1,)])
    with pytest.raises(SinkError, match="exists already; remove it or give overwrite=True"):
        Files(path).open(schema)
    write(path, schema, [(2,)], overwrite=True)
    assert read(path) == [{"n": 2}]


def test_a_file_that_comes_meanwhile_is_not_lost(tmp_path: Path) -> None:
    schema = Schema.of({"n": int})
    writer = Files(tmp_path / "a.csv").open(schema)
    (tmp_path / "a.csv").write_text("precious")
    with pytest.raises(SinkError, match="came during the run"):
        writer.close()
    assert (tmp_path / "a.csv").read_text() == "precious"


def test_what_cannot_be_written(tmp_path: Path) -> None:
    schema = Schema.of({"n": int})
    with pytest.raises(SinkError, match="say which format="):
        Files(tmp_path / "out").open(schema)
    with pytest.raises(SinkError, match="one path"):
        Files([tmp_path / "a.csv", tmp_path / "b.csv"]).open(schema)
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="cannot be written"):
        Files(tmp_path / "file" / "a.csv").open(schema)
