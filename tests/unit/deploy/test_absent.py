"""Machines that did not come: their names, and what the head's log says of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from plait.deploy.absent import Absent, absent_machines, lines_about
from plait.deploy.machines import FILE
from plait.deploy.preflight import Needs, check

if TYPE_CHECKING:
    from pathlib import Path

TIMED_OUT = "ssh: connect to host 10.0.0.3 port 22: Connection timed out"


def leave_file(home: Path) -> None:
    provider = {"head_ip": "10.0.0.1", "worker_ips": ["10.0.0.2", "10.0.0.3"]}
    whole = {"provider": provider, "worker_start_ray_commands": []}
    (home / FILE).write_text(json.dumps(whole), encoding="utf-8")


def test_a_machine_that_is_not_there_and_its_last_words(tmp_path: Path) -> None:
    leave_file(tmp_path)
    (tmp_path / "monitor.err").write_text(
        f"\x1b[31mfirst\x1b[0m\n{TIMED_OUT}\r\n", encoding="utf-8"
    )
    (tmp_path / "monitor.out").write_text("10.0.0.3: a later file\n", encoding="utf-8")
    found = absent_machines({"10.0.0.1", "10.0.0.2"}, tmp_path, tmp_path)
    assert found.said == {"10.0.0.3": (TIMED_OUT,)}
    (all_of_them, this_one) = check([], Needs(nodes=3), absent=found)[:2]
    assert all_of_them.what == "0 of 3 nodes are there"
    assert f"{tmp_path}/monitor.out on the head" in all_of_them.advice
    assert this_one.host == "10.0.0.3"
    assert this_one.what == "this machine of the cluster file has not joined"
    assert this_one.advice == f"the head's log says: {TIMED_OUT}"


def test_nothing_is_known_elsewhere_than_on_the_head(tmp_path: Path) -> None:
    found = absent_machines(set(), tmp_path, tmp_path / "logs")
    assert found == Absent(logs=f"{tmp_path}/logs")
    assert len(check([], Needs(nodes=3), absent=found)) == 1


def test_another_address_that_begins_the_same_is_another_machine() -> None:
    text = "10.0.0.31 failed\n10.0.0.3 failed\n110.0.0.3 failed\nto 10.0.0.3.\n10.0.0.3 failed\n"
    assert lines_about(text, "10.0.0.3") == ["to 10.0.0.3.", "10.0.0.3 failed"]
