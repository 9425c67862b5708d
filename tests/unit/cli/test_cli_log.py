"""`plait log`: what it shows of a batch log, and what it changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import plait
from plait.cli.commands import main
from plait.connectors.batch_log.retire import tell_read

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def log(tmp_path: Path) -> plait.BatchLog:
    made = plait.BatchLog(tmp_path / "log")
    for number in range(3):
        made.append(number, pa.table({"n": [number]}), writer="one")
    return made


def test_a_log_is_shown(log: plait.BatchLog, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(log.folder)
    assert main(["log", "show", path]) == 0
    told = capsys.readouterr().out
    assert f"{path}: n: int64" in told
    assert "written by writer one" in told
    assert "batches 0 to 2" in told
    assert "unread: 3 batches, 3 rows" in told
    assert "no readers" in told
    tell_read(log.folder, "carts.clicks", read=2, needed=1)
    log.end()
    assert main(["log", "show", path, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["batches"] == [1, 2]
    assert facts["ended"] == 2
    assert facts["readers"][0]["name"] == "carts.clicks"
    assert main(["log", "show", path]) == 0
    told = capsys.readouterr().out
    assert "reader carts.clicks: has read 2 and may go back to 1" in told
    assert "ended with batch 2" in told


def test_a_new_query_goes_on_from_its_own_numbers(
    log: plait.BatchLog, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(log.folder)
    assert main(["log", "adopt", path, "--query", "two"]) == 0
    assert "batch 0 of two is batch 3 of the log" in capsys.readouterr().out
    with pytest.raises(plait.SinkError, match="belongs to writer two"):
        log.append(3, pa.table({"n": [9]}), writer="one")
    assert log.append(0, pa.table({"n": [3]}), writer="two")
    assert not log.append(0, pa.table({"n": [3]}), writer="two")
    assert log.append(1, pa.table({"n": [4]}), writer="two")
    log.end()
    assert [row.n for row in plait.stream(log).collect()] == [0, 1, 2, 3, 4]


def test_a_reader_is_forgotten(log: plait.BatchLog) -> None:
    path = str(log.folder)
    tell_read(log.folder, "gone", read=0, needed=0)
    tell_read(log.folder, "there", read=2, needed=2)
    assert main(["log", "forget", path, "gone"]) == 0
    assert log.folder.range() == (2, 2)


def test_what_is_missing_is_said(
    log: plait.BatchLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(log.folder)
    for words, told in (
        (["show", str(tmp_path)], "is not a batch log"),
        (["adopt", path], "which query"),
        (["forget", path], "which reader?"),
        (["forget", path, "x"], "has no reader 'x'"),
    ):
        assert main(["log", *words]) == 1
        assert told in capsys.readouterr().err
