"""Classes of the main program: their objects go to worker processes and come back."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal

import plait


class Size(enum.Enum):
    SMALL = "small"


@dataclass
class Item:
    price: Decimal
    size: Size


@dataclass
class Order:
    n: int
    items: list[Item]


def dearer(order: Order) -> Order:
    assert all(type(item) is Item and item.size is Size.SMALL for item in order.items)
    return Order(order.n, [Item(item.price + 1, item.size) for item in order.items])


if __name__ == "__main__":
    rows = [{"n": n, "items": [{"price": f"{n}.50", "size": "small"}]} for n in range(600)]
    orders = plait.stream(plait.Items(rows, schema=Order)).map(dearer, route="pool")
    made = orders.collect(workers=2, pool=2)
    assert made == [Order(n, [Item(Decimal(f"{n + 1}.50"), Size.SMALL)]) for n in range(600)]
    print("right")
"""


def test_a_class_of_the_main_program(tmp_path: Path) -> None:
    path = tmp_path / "orders.py"
    path.write_text(PROGRAM)
    run = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (run.stdout, run.returncode) == ("right\n", 0), run.stderr
