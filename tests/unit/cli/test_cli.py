"""The command line: jobs are found in files, run, and told about; errors have no traceback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plait.cli.commands import main, settings_of, timeout_of
from plait.cli.load import load_job, split_name
from plait.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator

JOB = """
import plait
from plait import col

job = plait.Job("evens")
numbers = job.source(plait.Items([{"n": n} for n in range(100)]), name="numbers")
numbers.filter(col("n") % 2 == 0).sink(plait.Collect(), name="evens")

if __name__ == "__main__":
    raise SystemExit("a guarded line ran")
"""
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file with a job; what loading it leaves in the interpreter is taken back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "evens.py"
    path.write_text(JOB)
    yield path
    for name in ("evens", "plait_job"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("workers", ["2", "elastic"])
def test_run_prints_the_account_and_the_output(path: Path, capsys: Captured, workers: str) -> None:
    assert main(["run", str(path), "--workers", workers]) == 0
    out, err = capsys.readouterr()
    assert 'job "evens": 100 read, 50 delivered, 50 filtered' in out
    assert "filter" in out
    assert "... 30 more rows" in out
    assert err == ""


def test_run_as_json(path: Path, capsys: Captured) -> None:
    arguments = ["run", f"{path}:job", "--json", "--limit", "10", "--set", "epoch_records=3"]
    assert main([*arguments, "--scheduler", "et", "--timeout", "60"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["job"] == "evens"
    assert facts["account"]["read"] == 10
    assert facts["account"]["difference"] == 0
    assert facts["outputs"] == {"evens": {"rows": 5}}
    assert [one["records_out"] for one in facts["operators"] if one["name"] == "filter"] == [5]


def test_run_writes_dead_letters(path: Path, capsys: Captured) -> None:
    path.write_text(
        "import plait\n"
        "ratios = plait.stream([4, 0, 2]).select(\n"
        "    ratio=8 // plait.col('value'), on_error='dead_letter')\n"
    )
    letters = path.with_name("bad.jsonl")
    assert main(["run", str(path), "--dead-letters", str(letters)]) == 0
    (letter,) = map(json.loads, letters.read_text().splitlines())
    assert (letter["operator"], letter["row"], letter["json"]) == ("select", 2, '{"value": 0}')
    path.write_text("import plait\nplait.stream([7]).show()\n")
    assert main(["run", str(path), "--dead-letters", str(letters)]) == 1
    assert "without --dead-letters" in capsys.readouterr().err


def test_a_stream_without_a_sink_is_printed(path: Path, capsys: Captured) -> None:
    path.write_text("import plait\nnumbers = plait.stream([1, 2, 3])\n")
    assert main(["run", str(path), "--workers", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == ["value", "int64", "-----", "    1", "    2", "    3"]


def test_what_the_job_prints_stays_out_of_the_json(path: Path, capsys: Captured) -> None:
    path.write_text("import plait\nprint('hello')\nnumbers = plait.stream([1, 2])\n")
    assert main(["run", str(path), "--workers", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["outputs"] == {"printed": 2}
    assert err.startswith("hello\nvalue\n")


def test_explain_prints_the_stages(path: Path, capsys: Captured) -> None:
    assert main(["explain", str(path)]) == 0
    assert "filter" in capsys.readouterr().out


def test_python_dash_m(path: Path) -> None:
    command = [sys.executable, "-m", "plait", "run", str(path), "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "100 read" in done.stdout


def test_version_and_help(capsys: Captured) -> None:
    for option, said in (("--version", "plait "), ("--help", "plait run carts.py")):
        with pytest.raises(SystemExit) as caught:
            main([option])
        assert caught.value.code == 0
        assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("x = 1\n", "", "has no plait.Job and no stream"),
        ("import plait\na = plait.Job('a')\nb = plait.Job('b')\n", "", "has 2 jobs; name one"),
        (JOB, ":jab", 'did you mean "job"?'),
        (JOB, ":col", "is function, not a job or a stream; it has: job, numbers"),
        ("import plait\nkeyed = plait.stream([1]).key_by('value')\n", ":keyed", "a keyed stream"),
        ("import plait\njob = plait.Job('a')\n", "", 'the job "a" has no sink'),
    ],
)
def test_what_is_no_job(text: str, name: str, said: str, path: Path, capsys: Captured) -> None:
    path.write_text(text)
    assert main(["run", f"{path}{name}"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("plait: JobError: ")
    assert said in err
    assert "Traceback" not in err


def test_no_such_file(tmp_path: Path, capsys: Captured) -> None:
    assert main(["run", str(tmp_path / "gone.py")]) == 1
    assert "no such file" in capsys.readouterr().err


def test_an_exception_in_the_file_shows_the_users_lines(path: Path, capsys: Captured) -> None:
    path.write_text("def inner():\n    return 1 / 0\n\ninner()\n")
    assert main(["run", str(path)]) == 1
    err = capsys.readouterr().err
    assert "could not be loaded" in err
    assert 'evens.py", line 4' in err
    assert 'evens.py", line 2, in inner' in err
    assert err.rstrip().endswith("ZeroDivisionError: division by zero")
    assert "cli.py" not in err
    assert "load.py" not in err


def test_a_syntax_error_in_the_file(path: Path, capsys: Captured) -> None:
    path.write_text("x = (\n")
    assert main(["run", str(path)]) == 1
    err = capsys.readouterr().err
    assert "SyntaxError" in err
    assert "importlib" not in err


def test_a_wrong_job_in_the_file_is_a_message(path: Path, capsys: Captured) -> None:
    path.write_text("import plait\nplait.stream([{'price': 1}]).filter(plait.col('prise') > 1)\n")
    assert main(["run", str(path)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("plait: JobError: filter at evens.py:2")
    assert "Traceback" not in err


def test_a_record_that_fails_is_a_message(path: Path, capsys: Captured) -> None:
    path.write_text(
        "import plait\n"
        "def bad(record):\n"
        "    raise ValueError('no')\n"
        "out = plait.stream([1, 2]).map(bad).sink(plait.Collect())\n"
    )
    assert main(["run", str(path)]) == 1
    err = capsys.readouterr().err
    assert "plait: RecordError: " in err
    assert "ValueError: no" in err
    assert "Traceback" not in err
    frames = [line for line in err.splitlines() if line.startswith("  File ")]
    assert frames == [f'  File "{path}", line 3, in bad']


SHOWS = """
import plait
from plait import col

bids = [{"auction": 1, "price": 30}, {"auction": 2, "price": 12}]
plait.stream(bids).filter(col("price") > 20).show()
"""


def test_a_script_that_shows_a_stream_is_run(path: Path, capsys: Captured) -> None:
    path.write_text(SHOWS)
    assert main(["run", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].split() == ["1", "30"]
    assert err == ""


def first_snippet() -> str:
    readme = Path(__file__).resolve().parents[3] / "README.md"
    return readme.read_text("utf-8").split("```python\n", 1)[1].split("```", 1)[0]


def test_the_first_snippet_of_the_readme(path: Path, capsys: Captured) -> None:
    path.write_text(first_snippet())
    assert main(["run", str(path)]) == 0
    out, _ = capsys.readouterr()
    shown = [line.split() for line in out.splitlines()]
    assert shown[-3:] == [["1", "1", "30"], ["1", "2", "45"], ["2", "1", "28"]]


def test_a_function_in_the_first_snippet_that_raises(path: Path, capsys: Captured) -> None:
    """The traceback is the user's: the function and the line that it was at, nothing else."""
    broken = first_snippet().replace(
        '.filter(col("price") > 20)', ".filter(lambda bid: bid.price / (bid.auction - 2) < 0)"
    )
    assert broken != first_snippet()
    path.write_text(broken)
    assert main(["run", str(path)]) == 1
    err = capsys.readouterr().err
    assert "plait: RecordError: filter at" in err
    assert "ZeroDivisionError: " in err
    line = next(n for n, text in enumerate(broken.splitlines(), 1) if "lambda bid" in text)
    frames = [frame for frame in err.splitlines() if frame.startswith("  File ")]
    assert frames == [f'  File "{path}", line {line}, in <lambda>']


def test_a_stream_that_its_file_shows_is_not_printed_again(path: Path, capsys: Captured) -> None:
    path.write_text("import plait\nnumbers = plait.stream([7])\nnumbers.show()\n")
    assert main(["run", str(path)]) == 0
    assert capsys.readouterr().out.count("7") == 1


def test_a_job_that_its_file_runs_is_not_run_again(path: Path, capsys: Captured) -> None:
    path.write_text(
        "import plait\njob = plait.Job('once')\njob.source([7]).sink(plait.Print())\njob.run()\n"
    )
    assert main(["run", str(path)]) == 0
    assert capsys.readouterr().out.count("7") == 1


def test_a_job_is_run_when_its_file_only_looked_at_a_stream(path: Path, capsys: Captured) -> None:
    path.write_text(JOB.replace("if __name__", "numbers.show(1)\n\nif __name__"))
    assert main(["run", str(path)]) == 0
    assert 'job "evens": 100 read, 50 delivered, 50 filtered' in capsys.readouterr().out


def test_options_for_a_script_that_runs_itself_are_refused(path: Path, capsys: Captured) -> None:
    path.write_text(SHOWS)
    assert main(["run", str(path), "--workers", "1", "--json"]) == 1
    err = capsys.readouterr().err
    assert "ran its job itself, without --workers, --json; leave out show()" in err


def test_ctrl_c_tells_what_was_done(path: Path) -> None:
    path.write_text(
        "import plait\n"
        "def tell(record):\n"
        "    print('got', record.seq, flush=True)\n"
        "endless = plait.stream(plait.Rate(1000)).sink(plait.Call(tell))\n"
    )
    command = [sys.executable, "-m", "plait", "run", str(path), "--workers", "1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "got 0\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130, err
    assert " read, " in out
    assert "Traceback" not in err


def test_settings_are_read_from_texts() -> None:
    given = settings_of(["epoch_records=1024", "order=none", "lanes=none", "fuse=False"])
    assert given == {"epoch_records": 1024, "order": "none", "lanes": None, "fuse": False}
    for wrong, said in (
        ("epoch_records", "expected NAME=VALUE"),
        ("epoch_record=1", "did you mean epoch_records"),
        ("zzz=1", "settings are: threading, scheduler"),
        ("timeout_s=1", "use --timeout"),
    ):
        with pytest.raises(JobError, match=said):
            settings_of([wrong])


def test_a_wrong_value_of_a_setting(path: Path, capsys: Captured) -> None:
    assert main(["run", str(path), "--set", "epoch_records=many"]) == 1
    assert "epoch_records is 'many'" in capsys.readouterr().err
    assert main(["run", str(path), "--workers", "0"]) == 1
    assert "workers is 0" in capsys.readouterr().err


def test_a_bare_timeout_is_seconds() -> None:
    assert [timeout_of(text) for text in ("30", "0.5", "2m", None)] == [30, 0.5, 120, None]


def test_a_path_may_have_a_colon(tmp_path: Path) -> None:
    path = tmp_path / "a:b.py"
    path.write_text("")
    assert split_name(str(path)) == (path, "")
    assert split_name(f"{path}:job") == (path, "job")


def test_classes_of_the_file_can_be_found_by_name(path: Path) -> None:
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "import plait\n"
        "@dataclass\n"
        "class Bid:\n"
        "    price: int\n"
        "bids = plait.stream([Bid(1)])\n"
    )
    job = load_job(str(path))
    assert job.graph().operators[0].schema.names == ("price",)
