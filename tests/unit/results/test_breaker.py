"""A job with too many dead letters ends, and says why."""

from __future__ import annotations

from typing import Any

import pytest

import plait
from plait.model.breaker import BreakerRule, parse_breaker
from plait.results.breaker import MOST_KINDS, Breaker

Letters = list[tuple[str, str, str]]


def letters(count: int, error: str = "ValueError: no", operator: str = "map") -> Letters:
    return [(operator, "a.py:3", error)] * count


class Looked(Breaker):
    """Notes and looks."""

    def look_at(self, now_s: float, read: int, some: Letters) -> str:
        for letter in some:
            self.note(*letter)
        return self.look(now_s, read)


def breaker(text: str = "1% of 10s") -> Looked:
    return Looked(parse_breaker(text), 0.0)


def test_the_rule_is_a_share_of_a_time() -> None:
    assert parse_breaker("0.5% of 2m") == BreakerRule("0.5% of 2m", 0.005, 120.0)
    assert plait.Settings(breaker="5 % of 500ms").breaker == "5 % of 500ms"


@pytest.mark.parametrize("given", ["1%", "0% of 10s", "100% of 10s", "10 of 10s", 1, ""])
def test_what_is_no_rule_is_refused(given: Any) -> None:
    with pytest.raises(plait.JobError, match=r'such as "1% of 10s"'):
        plait.Settings(breaker=given)
    with pytest.raises(plait.JobError, match="is not a duration"):
        plait.Settings(breaker="1% of soon")


def test_a_share_of_few_records_is_not_judged() -> None:
    looked = breaker()
    assert looked.look_at(1.0, 999, letters(999)) == ""
    assert looked.look_at(2.0, 1_000, []) != ""


def test_the_share_itself_is_allowed() -> None:
    looked = breaker()
    assert looked.look_at(1.0, 10_000, letters(100)) == ""
    assert looked.look_at(1.1, 10_000, letters(1)) != ""


def test_what_is_older_does_not_count() -> None:
    looked = breaker()
    assert looked.look_at(1.0, 50_000, letters(500)) == ""
    assert looked.look_at(12.0, 51_000, letters(10)) == ""
    assert "11 of the last 1,000 records" in looked.look_at(12.5, 51_000, letters(1))


def test_it_says_the_commonest_reasons() -> None:
    looked = breaker()
    kinds = [f"KeyError: '{n}'" for n in range(70)]
    some = [letter for kind in kinds for letter in letters(1, kind)]
    some += letters(20, "t, partition 0, offset 7: not JSON\n  bad", "source")
    some += letters(9, "x") + letters(4, "y")
    words = looked.look_at(1.0, 2_000, some).splitlines()
    assert words[0] == (
        '103 of the last 2,000 records became dead letters (5.15%), and breaker="1% of 10s" stops'
        " the job then; the commonest reasons:"
    )
    assert words[1:] == [
        "  70 at map at a.py:3: KeyError: '0'",
        "  20 at source at a.py:3: t, partition 0, offset 7: not JSON",
        "  9 at map at a.py:3: x",
        "  4 with other reasons",
    ]


def test_kinds_without_end_are_not_kept() -> None:
    looked = breaker("50% of 1h")
    for n in range(3 * MOST_KINDS):
        name = "".join(chr(97 + int(digit)) for digit in str(n))
        looked.look_at(float(n), n, letters(1, name))
    assert len(looked.examples) == MOST_KINDS
