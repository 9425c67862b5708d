"""`plait dlq`: dead letters in a Kafka topic, and their records back to where they came from."""

from __future__ import annotations

import datetime
import json
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.model.durations import to_seconds
from plait.text.tables import small_table

if TYPE_CHECKING:
    import argparse

    from plait.connectors.kafka.letters import Letter
    from plait.connectors.kafka.replay import Choice, LetterTopic

OK, FAILED = 0, 1
COMMANDS = ("dlq",)
SHOWN = 60
"""How many characters of a reason a table shows."""
EXAMPLE = """\
examples:
  plait dlq ls letters                            what there is, by operator and reason
  plait dlq show letters --operator map --limit 3
  plait dlq replay letters --error KeyError --dry-run
  plait dlq replay letters --since 2h --to clicks-again
"""


def add_commands(commands: Any) -> None:
    import argparse

    dlq = commands.add_parser(
        "dlq",
        help="show the dead letters in a Kafka topic, or send their records back",
        description="The letters whose records were not sent back yet.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    dlq.add_argument("action", choices=("ls", "show", "replay"))
    dlq.add_argument("topic", metavar="TOPIC", help="the topic with the dead letters")
    dlq.add_argument("--servers", default="127.0.0.1:9092", metavar="HOST:PORT", help="the brokers")
    dlq.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the client, as of plait.Kafka(settings=); repeatable",
    )
    dlq.add_argument("--operator", default="", metavar="NAME", help="only those of this operator")
    dlq.add_argument(
        "--error", default="", metavar="TEXT", help="only those with this in the reason"
    )
    dlq.add_argument(
        "--since", metavar="TIME", help="only those of the last 2h, or since 2026-03-01T12:00"
    )
    dlq.add_argument("--limit", type=int, metavar="N", help="show: at most so many (default: 10)")
    dlq.add_argument("--json", action="store_true", help="ls, show: as JSON")
    dlq.add_argument("--to", default="", metavar="TOPIC", help="replay: another topic")
    dlq.add_argument("--dry-run", action="store_true", help="replay: say what would be done")


def run(given: argparse.Namespace) -> int:
    refuse_options(given)
    from plait.connectors.kafka.replay import LetterTopic
    from plait.connectors.kafka.settings import Connection, choose_client

    choose_client("confluent-kafka")
    connection = Connection(
        servers=given.servers, client="confluent-kafka", settings=settings_of(given.set)
    )
    topic, choice = LetterTopic(connection, given.topic), choice_of(given)
    if given.action == "replay":
        return replay(topic, choice, given.to, given.dry_run)
    letters = topic.letters(choice)
    return show(letters, given) if given.action == "show" else show_groups(letters, given)


def refuse_options(given: argparse.Namespace) -> None:
    """Raises if an option is of another action."""
    others = {"ls": ("limit", "to", "dry_run"), "show": ("to", "dry_run")}
    others["replay"] = ("limit", "json")
    for name in others[given.action]:
        if getattr(given, name):
            raise JobError(f"plait dlq {given.action} takes no --{name.replace('_', '-')}")


def settings_of(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise JobError(f"--set {name}: expected NAME=VALUE")
        settings[name] = value
    return settings


def choice_of(given: argparse.Namespace) -> Choice:
    from plait.connectors.kafka.replay import Choice

    since_ms = 0 if given.since is None else since(given.since)
    return Choice(operator=given.operator, error=given.error, since_ms=since_ms)


def since(text: str) -> int:
    """A time as milliseconds since 1970: "2h" ago, or a date and time (UTC without a zone)."""
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        try:
            return int((time.time() - to_seconds(text)) * 1000)
        except JobError:
            raise JobError(
                f'--since {text}: write how long ago, as "2h", or a time, as "2026-03-01T12:00"'
            ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=datetime.UTC)).timestamp() * 1000)


def show_groups(letters: list[Letter], given: argparse.Namespace) -> int:
    """How many there are, by operator and reason."""
    groups: dict[tuple[str, str], list[Letter]] = defaultdict(list)
    for letter in letters:
        groups[letter.told.get("operator", ""), first_line(letter)].append(letter)
    rows: list[dict[str, Any]] = [
        {
            "operator": operator,
            "error": error,
            "letters": len(some),
            "first": time_text(min(letter.at_ms for letter in some)),
            "last": time_text(max(letter.at_ms for letter in some)),
        }
        for (operator, error), some in sorted(groups.items(), key=lambda each: -len(each[1]))
    ]
    if given.json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("no letters")
    else:
        shown = [[str(value) for value in row.values()] for row in rows]
        print(small_table(list(rows[0]), shown, [False, False, True, False, False]))
    return OK


def first_line(letter: Letter) -> str:
    """The reason, without what differs from record to record as far as that is known."""
    lines = letter.told.get("error", "").splitlines() or [""]
    place = f"{letter.told.get('topic')}, partition {letter.told.get('partition')}, offset "
    line = lines[0]
    if line.startswith(place):
        line = line.removeprefix(place).partition(": ")[2]
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."


def time_text(at_ms: int) -> str:
    at = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S")


def show(letters: list[Letter], given: argparse.Namespace) -> int:
    """Letters in full, the first of them."""
    most = 10 if given.limit is None else given.limit
    some = letters[:most]
    if given.json:
        print(json.dumps([facts_of(letter) for letter in some], indent=2))
        return OK
    for letter in some:
        facts = facts_of(letter)
        print(f"{given.topic}, partition {letter.partition}, offset {letter.offset:,}")
        for name, value in (*letter.told.items(), *facts.items()):
            if name not in ("letter", "told", "headers") and value is not None:
                print(f"  {name + ':':<10} {value}")
        for name, value in facts["headers"].items():
            print(f"  header {name}: {value}")
    if len(letters) > most:
        print(f"... {len(letters) - most:,} more")
    elif not letters:
        print("no letters")
    return OK


def facts_of(letter: Letter) -> dict[str, Any]:
    return {
        "written": time_text(letter.at_ms),
        "letter": {"partition": letter.partition, "offset": letter.offset},
        "told": dict(letter.told),
        "key": text_of(letter.key),
        "value": text_of(letter.value),
        "headers": {name: text_of(value) for name, value in letter.headers},
    }


def text_of(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def replay(topic: LetterTopic, choice: Choice, to: str, dry_run: bool) -> int:
    made = topic.replay(choice, to, dry_run=dry_run)
    would = "would go" if dry_run else "went"
    for name, count in sorted(made.topics.items()):
        print(f"{count:,} {'record' if count == 1 else 'records'} {would} to {name}")
    for reason, count in sorted(made.left.items()):
        print(f"{count:,} {'letter stays' if count == 1 else 'letters stay'}: {reason}")
    if not made.records and not made.left:
        print("no letters")
    return OK
