"""Which header may include which. A header's layer is its folder; nothing here lists headers.

The order of the layers is the table in `node_runtime/include/plait/README.md`: a header includes
from its own folder and from the folders before it. `scheduler_abi.h` is public and stands beside.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

HEADERS = Path(__file__).resolve().parents[2] / "node_runtime" / "include" / "plait"
PUBLIC = "scheduler_abi.h"
README_LINES = 40
INCLUDE = re.compile(r'^#include "plait/(\S+)"', re.MULTILINE)
CLASS = re.compile(
    r"^ *(?:template <.*> )?(?:class|struct) (?:alignas\(\w+\) )?(\w+)(?: final)?(?: : [^;{]*)? \{",
    re.MULTILINE,
)
LAYERS = tuple(
    re.findall(r"^\| \[`(\w+)`\]", (HEADERS / "README.md").read_text("utf-8"), re.MULTILINE)
)


def texts() -> dict[str, str]:
    """Every header by its path below `plait/`."""
    found = sorted(HEADERS.rglob("*.hpp"))
    return {path.relative_to(HEADERS).as_posix(): path.read_text("utf-8") for path in found}


def violations(header: str, text: str) -> list[str]:
    """What is wrong with the includes of one header, in words."""
    layer = header.split("/")[0]
    wrong: list[str] = []
    for name in INCLUDE.findall(text):
        below = name.split("/")[0]
        if name == PUBLIC:
            continue
        if below not in LAYERS or LAYERS.index(below) > LAYERS.index(layer):
            wrong.append(f"{header} ({layer}) includes {name} ({below})")
    return wrong


def cycle(includes: dict[str, list[str]]) -> list[str]:
    """Headers that include each other in a ring, or nothing."""
    done: set[str] = set()

    def walk(header: str, path: list[str]) -> list[str]:
        if header in path:
            return [*path[path.index(header) :], header]
        if header in done:
            return []
        for name in includes.get(header, []):
            if ring := walk(name, [*path, header]):
                return ring
        done.add(header)
        return []

    return next((ring for header in includes if (ring := walk(header, []))), [])


def test_every_folder_has_a_layer() -> None:
    assert {header.split("/")[0] for header in texts()} == set(LAYERS)


def test_includes_go_down() -> None:
    wrong = [line for header, text in texts().items() for line in violations(header, text)]
    assert not wrong, "\n".join(wrong)


def test_no_headers_include_each_other() -> None:
    assert cycle({header: INCLUDE.findall(text) for header, text in texts().items()}) == []


def test_what_is_included_is_there() -> None:
    known = {*texts(), PUBLIC}
    for header, text in texts().items():
        assert set(INCLUDE.findall(text)) <= known, header


def test_no_two_classes_share_a_name() -> None:
    names = Counter(name for text in texts().values() for name in CLASS.findall(text))
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("layer", LAYERS)
def test_a_readme_lists_the_headers_of_its_folder(layer: str) -> None:
    page = (HEADERS / layer / "README.md").read_text("utf-8")
    assert len(page.splitlines()) <= README_LINES
    listed = re.findall(r"^\| `(\w+)\.hpp`", page, re.MULTILINE)
    assert listed == sorted(path.stem for path in (HEADERS / layer).glob("*.hpp"))


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("core/atomics.hpp", '#include "plait/columns/batch.hpp"\n'),
        ("stages/stage.hpp", '#include "plait/sources/epochs.hpp"\n'),
        ("links/frame.hpp", '#include "plait/unheard/of.hpp"\n'),
    ],
)
def test_a_wrong_include_is_found(header: str, text: str) -> None:
    assert len(violations(header, text)) == 1


def test_a_right_include_is_let_through() -> None:
    text = (
        '#include "plait/core/atomics.hpp"\n#include "plait/scheduler_abi.h"\n#include <vector>\n'
    )
    assert violations("scheduling/crew.hpp", text) == []


def test_a_ring_is_found() -> None:
    assert cycle({"a": ["b"], "b": ["c"], "c": ["a"]}) == ["a", "b", "c", "a"]
    assert cycle({"a": ["b", "c"], "b": ["c"], "c": []}) == []
