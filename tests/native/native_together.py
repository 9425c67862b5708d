"""Several test programs as one: the text of a program that is each of them, by the name it is
called by. What they include is compiled once; the rest of each is in a namespace of its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FIRST = re.compile(r"#(include|pragma GCC) ")
FAULT = "namespace plait {\ninline int seeded_fault = 0;\n}"
FAULTS = re.compile(r"^namespace plait \{\ninline int seeded_fault = 0;.*\n\}.*\n", re.MULTILINE)
CHOICE = """int main(int argc, char** argv) {
  const std::string_view path = argv[0];
  const std::string_view name = path.substr(path.rfind('/') + 1);
"""


def together(cases: Sequence[Path], root: Path) -> str:
    """The text of one program; messages name the lines of the `cases`."""
    first = ["#include <string_view>"]
    texts = [case.read_text() for case in cases]
    if any(map(FAULTS.search, texts)):
        first.insert(0, FAULT)
    bodies: list[str] = []
    choice = [CHOICE]
    for case, text in zip(cases, texts, strict=True):
        lines = FAULTS.sub(lambda found: "\n" * found.group().count("\n"), text).splitlines()
        first += [line for line in lines if FIRST.match(line)]
        body = "\n".join("" if FIRST.match(line) else line for line in lines)
        file = case.relative_to(root)
        bodies.append(f'namespace {case.stem} {{\n#line 1 "{file}"\n{body}\n}}\n')
        choice.append(
            f'  if (name.starts_with("{case.stem}-")) return {case.stem}::main(argc, argv);\n'
        )
    return "\n".join((*first, *bodies, "".join(choice), "  return 2;\n}\n"))
