"""Relative paths are those of the folder where a job is submitted: nodes have folders of their own,
so each description is used here from another one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait.cluster.whole_paths import with_whole_paths
from plait.connectors.history import Replay
from plait.connectors.kafka.settings import whole_settings
from plait.execution.local_run import graph_of
from plait.graph.operators import CallOp, SinkOp, SourceOp


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where jobs are submitted; its name means something in a glob."""
    folder = tmp_path / "jobs[1]"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def sent(stream: plait.Stream, sink: plait.Sink | None = None) -> list[Any]:
    """The operators as the nodes get them."""
    job = stream.sink(sink or plait.Discard()).job
    return list(pickle.loads(pickle.dumps(with_whole_paths(graph_of(job)).operators)))


def only(operators: list[Any], kind: type[Any]) -> Any:
    (found,) = (op for op in operators if isinstance(op, kind))
    return found


def rows_of(source: plait.Source) -> list[Any]:
    reader, rows = source.open(), []
    while isinstance(batch := reader.poll(1000), pa.RecordBatch):
        rows += batch.to_pylist()
    reader.close()
    return rows


def test_a_batch_log(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = plait.BatchLog("bids")
    log.append(0, pa.table({"n": [1, 2]}), writer="me")
    log.end()
    operators = sent(plait.stream(plait.BatchLog("bids")), plait.BatchLog("out/there"))
    monkeypatch.chdir(tmp_path)
    assert rows_of(only(operators, SourceOp).source) == [{"n": 1}, {"n": 2}]
    assert str(only(operators, SinkOp).sink.folder) == str(here / "out/there")


@pytest.mark.parametrize("given", ["a.csv", "*.csv", "./a.csv", ["a.csv"]])
def test_files(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any) -> None:
    Path("a.csv").write_text("n\n1\n")
    operators = sent(plait.stream(plait.Files(given)), plait.Files("out*.csv"))
    monkeypatch.chdir(tmp_path)
    assert rows_of(only(operators, SourceOp).source) == [{"n": 1}]
    sink = only(operators, SinkOp).sink
    assert (Path(sink.given[0]).name, Path(sink.given[0]).is_absolute()) == ("out*.csv", True)


@pytest.mark.parametrize("given", ["logs", "logs/*.txt", "./logs/a.txt", "../jobs[1]/logs/a.txt"])
def test_the_names_of_files_in_records_stay_as_written(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    Path("logs").mkdir()
    Path("logs/a.txt").write_text("one\n")
    source = plait.Files(given, "text", file_and_line=True)
    wanted = rows_of(source)
    operators = sent(plait.stream(source))
    monkeypatch.chdir(tmp_path)
    assert rows_of(only(operators, SourceOp).source) == wanted
    assert wanted[0]["file"].startswith(given.removesuffix("/*.txt"))


def test_a_table_in_files(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("names.csv").write_text("id,name\n1,ada\n")
    source = plait.Items([{"id": 1}])
    operators = sent(plait.stream(source).enrich(plait.Files("names.csv"), on="id"))
    monkeypatch.chdir(tmp_path)
    batch = pa.RecordBatch.from_pydict({"id": [1]})
    found = only([op for op in operators if isinstance(op, CallOp)], CallOp).function(batch)
    assert found.column("name").to_pylist() == ["ada"]


def test_a_source_with_a_history_in_its_place(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("old.csv").write_text("n\n1\n")
    live, old = plait.BatchLog("bids", {"n": int}), plait.Files("old.csv")
    source = Replay(
        live,
        old,
        schema=old.schema,
        label="bids",
        until=0,
        column="",
        pace=None,  # type: ignore[arg-type]
    )
    found = only(sent(plait.stream(source)), SourceOp).source
    monkeypatch.chdir(tmp_path)
    assert rows_of(found.replayed) == [{"n": 1}]
    assert str(found.live.folder) == str(here / "bids")


def test_settings_of_kafka(here: Path) -> None:
    settings = {
        "sasl.password": "file:secrets/password",
        "ssl.ca.location": "ca.pem",
        "ssl.key.location": "/etc/key.pem",
        "ssl_cafile": "ca.pem",
        "sasl.username": "ada",
        "client.id": "env:NAME",
        "retries": 3,
    }
    assert whole_settings(settings) == {
        **settings,
        "sasl.password": f"file:{here}/secrets/password",
        "ssl.ca.location": f"{here}/ca.pem",
        "ssl_cafile": f"{here}/ca.pem",
    }
    assert whole_settings({"ssl.ca.location": "probe"}) == {"ssl.ca.location": "probe"}
    topic = plait.Kafka("bids", {"n": int}, settings=settings)
    found = only(sent(plait.stream(topic)), SourceOp).source
    assert found.connection.settings["ssl_cafile"] == f"{here}/ca.pem"
    assert topic.connection.settings == settings
