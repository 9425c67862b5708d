"""The pages for people hold: code runs, output is right, links and names of files are real.

Each ```python block is a program by itself, run in an empty working directory. A ```text block that
follows it directly (only blank lines between) is its output, compared as doctest does: `...` stands
for anything. A block is left out if the line above it is the comment `<!-- not run -->`. The code
is written to a file at the line it has in the page, so that a failure names the line to look at.

The pages are README.md, CONTRIBUTING.md, everything in docs/, and the README of every folder.
"""

from __future__ import annotations

import doctest
import os
import re
import runpy
from dataclasses import dataclass
from pathlib import Path

import pytest

NOT_RUN = "<!-- not run -->"
ROOT = Path(__file__).resolve().parents[2]
README_LINES, README_COLUMNS = 150, 140
FOLDER_LINES = 60
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"#+ (.*)")
NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/[\w.-]+\.(?:py|pyx|pxd|hpp|h|cpp|md|yaml))`")
LINKED = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def is_skipped(folder: str) -> bool:
    return folder.startswith(".") or folder in ("build", "dist", "__pycache__")


def find_pages(root: Path) -> list[str]:
    """Every page below the root; links such as plait/coordinator are not followed."""
    pages: list[str] = []
    for folder, folders, names in os.walk(root):
        here = Path(folder).relative_to(root)
        folders[:] = sorted(name for name in folders if not is_skipped(name))
        wanted = {"README.md", "CONTRIBUTING.md"}
        if here.parts[:1] == ("docs",):
            wanted = {name for name in names if name.endswith(".md")}
        pages += [str(here / name) for name in sorted(wanted & set(names))]
    return pages


PAGES = find_pages(ROOT)
FOLDER_READMES = [
    page for page in PAGES if page.endswith("/README.md") and not page.startswith("docs/")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: its language, the number of its first line, its text, and what was above."""

    language: str
    line: int
    text: str
    above: str
    follows: bool
    """Only blank lines are between it and the block before it."""


def blocks_of(text: str) -> list[Block]:
    blocks: list[Block] = []
    lines = text.splitlines()
    opened: int | None = None
    language = above = last = ""
    follows = False
    for number, line in enumerate(lines):
        bare = line.strip()
        if opened is None and bare.startswith("```"):
            opened, language, above = number, bare[3:].strip(), last
            follows = bool(blocks) and last == "```"
        elif opened is not None and bare == "```":
            code = "".join(f"{inside}\n" for inside in lines[opened + 1 : number])
            blocks.append(
                Block(language=language, line=opened + 2, text=code, above=above, follows=follows)
            )
            opened = None
        if bare:
            last = bare
    return blocks


def programs(text: str) -> list[tuple[int, str, str | None]]:
    """The Python programs of a page: the number of their first line, the code, its output."""
    blocks = blocks_of(text)
    found: list[tuple[int, str, str | None]] = []
    for number, block in enumerate(blocks):
        after = blocks[number + 1] if number + 1 < len(blocks) else None
        if block.language != "python" or block.above == NOT_RUN:
            continue
        printed = after is not None and after.language == "text" and after.follows
        found.append((block.line, block.text, after.text if after and printed else None))
    return found


def prose(text: str) -> str:
    """The page without its fenced blocks."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.strip().startswith("```"):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def anchors(text: str) -> set[str]:
    """What a code host makes of the headings of a page."""
    found: set[str] = set()
    for line in prose(text).splitlines():
        if match := HEADING.fullmatch(line):
            words = LINKED.sub(r"\1", match[1]).strip().lower()
            found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def stripped(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


@pytest.mark.parametrize("page", PAGES)
def test_code_in_the_page_runs(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for line, code, output in programs((ROOT / page).read_text(encoding="utf-8")):
        folder = tmp_path / f"line_{line}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        script = folder / f"{page.replace('/', '_')}.py"
        script.write_text("\n" * (line - 1) + code, encoding="utf-8")
        capsys.readouterr()
        runpy.run_path(str(script), run_name="readme_block")
        printed = stripped(capsys.readouterr().out)
        if output is not None:
            same = doctest.OutputChecker().check_output(stripped(output), printed, doctest.ELLIPSIS)
            assert same, f"{page}:{line} prints\n{printed}\nand the page says\n{output}"


@pytest.fixture(scope="module")
def files() -> frozenset[str]:
    """Every file of the repository, with a slash before its path."""
    found: set[str] = set()
    for folder, folders, names in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        folders[:] = [name for name in folders if not is_skipped(name)]
        found |= {f"/{here / name}" for name in names}
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str, files: frozenset[str]) -> None:
    """`stages/stage.hpp` may stand for a longer path that ends with it."""
    named = sorted(set(NAMED.findall(prose((ROOT / page).read_text(encoding="utf-8")))))
    real = [name for name in named if "NAME" not in name]
    missing = [name for name in real if not any(file.endswith(f"/{name}") for file in files)]
    assert not missing, f"{page}: {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    broken: list[str] = []
    for target in LINK.findall(prose(text)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        known = not anchor or there.suffix != ".md"
        if not there.exists() or not (known or anchor in anchors(there.read_text("utf-8"))):
            broken.append(target)
    assert not broken, f"{page}: {', '.join(broken)}"


def test_the_front_page_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= README_LINES
    assert max(map(len, lines)) <= README_COLUMNS


@pytest.mark.parametrize("page", FOLDER_READMES)
def test_a_folder_readme_is_short(page: str) -> None:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= FOLDER_LINES, "longer explanations live in docs/"


def test_programs_are_found() -> None:
    page = "a\n```python\nx = 1\n```\n```sh\nls\n```\n```\ny\n```\n\n```python\nz = 2\n\nz\n```\n"
    assert programs(page) == [(3, "x = 1\n", None), (13, "z = 2\n\nz\n", None)]


def test_a_marked_program_is_left_out() -> None:
    page = f"{NOT_RUN}\n\n```python\nbroken(\n```\ntext\n```python\nx = 1\n```\n"
    assert programs(page) == [(8, "x = 1\n", None)]


def test_text_after_a_program_is_its_output() -> None:
    page = (
        "```python\nprint(1)\n```\n\n```text\n1\n```\n```python\nx = 2\n```\nso\n```text\n3\n```\n"
    )
    assert programs(page) == [(2, "print(1)\n", "1\n"), (9, "x = 2\n", None)]


def test_anchors_are_those_of_a_code_host() -> None:
    assert anchors("# Time, `order` & all\n## [A link](x.md) here\n") == {
        "time-order--all",
        "a-link-here",
    }
