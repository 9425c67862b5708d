"""Payloads beside the journal: written part by part, mapped, and removed when nobody needs them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from plait.coordinator.shell.payloads import PayloadFiles
from plait.errors import StateError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_parts_come_back(tmp_path: Path) -> None:
    files = PayloadFiles(tmp_path / "payloads")
    parts = [b"main", b"", bytes(range(256)) * 1000]
    files.write("key", parts)
    assert [bytes(part) for part in files.read("key")] == parts
    assert bytes(PayloadFiles(tmp_path / "payloads").read("key")[0]) == b"main"
    assert (tmp_path / "payloads" / "key").stat().st_mode & 0o777 == 0o600


def test_what_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    files = PayloadFiles(tmp_path)
    with pytest.raises(StateError, match="the payload of the job is gone"):
        files.read("key")
    for key in ("", "../key", "a/b"):
        with pytest.raises(StateError, match="is not the key of a payload"):
            files.path(key)


def test_a_payload_goes_when_its_job_is_over_and_not_before_it_is_submitted(tmp_path: Path) -> None:
    files = PayloadFiles(tmp_path)
    for key in ("ended", "running", "fresh", "abandoned"):
        files.write(key, [b"x"])
    os.utime(tmp_path / "abandoned", (1, 1))
    files.retain(frozenset({"ended", "running"}))
    assert sorted(os.listdir(tmp_path)) == ["ended", "fresh", "running"]
    files.retain(frozenset({"running", "elsewhere"}))
    assert sorted(os.listdir(tmp_path)) == ["fresh", "running"]
