"""What `plait dlq` refuses before it asks a broker."""

from __future__ import annotations

import time

import pytest

from plait.cli.commands import main
from plait.cli.dlq_commands import since


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["ls", "t", "--to", "u"], "plait dlq ls takes no --to"),
        (["show", "t", "--dry-run"], "plait dlq show takes no --dry-run"),
        (["replay", "t", "--limit", "3"], "plait dlq replay takes no --limit"),
        (["ls", "t", "--since", "soon"], 'write how long ago, as "2h"'),
        (["ls", "t", "--set", "x"], "expected NAME=VALUE"),
    ],
)
def test_wrong_options(arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dlq", *arguments]) == 1
    assert why in capsys.readouterr().err


def test_since_is_a_time_or_how_long_ago() -> None:
    assert since("2026-03-01T12:00") == 1_772_366_400_000
    assert since("2026-03-01T13:00+01:00") == 1_772_366_400_000
    now_ms = time.time() * 1000
    assert now_ms - 7_300_000 < since("2h") <= now_ms - 7_199_000
