"""How to reach a Kafka cluster, and what of it may be shown.

Settings go to the client as they are, under the names of that client. A value `env:NAME` or
`file:PATH` is looked up where the client runs, so that a password is in no job, journal or
checkpoint. Values are never shown: not by `repr`, and not in an error that a client raises.

    >>> Connection(servers="127.0.0.1:9092", settings={"sasl.password": "canary"})
    Connection('127.0.0.1:9092', settings: sasl.password)
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from plait.errors import EnvironmentFailure, JobError

ClientName = Literal["confluent-kafka", "kafka-python"]
MODULES: dict[ClientName, str] = {"confluent-kafka": "confluent_kafka", "kafka-python": "kafka"}
PLAIN_WORDS = 4
"""Values this short, such as "true", are left in the text of errors."""
HIDDEN = "***"
FILES_OF_PYTHON = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
"""Settings of kafka-python that are paths; those of librdkafka end in .location."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Connection:
    """Where the brokers are, which client is used, and its settings."""

    servers: str
    client: ClientName | None = None
    """None: confluent-kafka where it is installed, else kafka-python."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    patience_s: float = 60.0
    """How long brokers may be away before that is an error."""

    def __repr__(self) -> str:
        named = ", ".join(self.settings)
        return f"Connection({self.servers!r}{f', settings: {named}' if named else ''})"

    def redact(self, text: object) -> str:
        """A text of a client without the values of settings.

        >>> Connection(servers="a:1", settings={"password": "canary"}).redact("no such: canary")
        'no such: ***'
        """
        shown = str(text)
        values = [str(value) for value in {**self.settings, **self.resolved()}.values()]
        for value in sorted(values, key=len, reverse=True):
            if len(value) > PLAIN_WORDS:
                shown = shown.replace(value, HIDDEN)
        return shown

    def resolved(self) -> dict[str, Any]:
        """The settings with values from the environment and from files; those that are not there
        are left as they are."""
        found = {}
        for name, value in self.settings.items():
            try:
                found[name] = look_up(name, value)
            except EnvironmentFailure:
                found[name] = value
        return found

    def for_client(self) -> dict[str, Any]:
        """The settings as the client is given them; an error names what is missing."""
        return {name: look_up(name, value) for name, value in self.settings.items()}


def look_up(name: str, value: Any) -> Any:
    """The value that `env:NAME` or `file:PATH` stands for."""
    if not isinstance(value, str):
        return value
    if value.startswith("env:"):
        variable = value.removeprefix("env:")
        if variable not in os.environ:
            raise EnvironmentFailure(
                f'the setting "{name}" is in the environment variable {variable}, which is not set'
            )
        return os.environ[variable]
    if value.startswith("file:"):
        path = Path(value.removeprefix("file:"))
        try:
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise EnvironmentFailure(
                f'the setting "{name}" is in the file {path}: {error.strerror}'
            ) from None
    return value


def whole_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings, files of this machine named from the root."""
    return {name: whole_setting(name, value) for name, value in settings.items()}


def whole_setting(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.startswith("file:"):
        return f"file:{os.path.abspath(value.removeprefix('file:'))}"
    # "probe" has librdkafka look for certificates in the usual places.
    is_path = name.endswith((".location", ".keytab")) or name in FILES_OF_PYTHON
    return os.path.abspath(value) if is_path and value != "probe" else value


def check_settings(settings: Any) -> dict[str, Any]:
    if settings is None:
        return {}
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise JobError('Kafka: settings= takes a dict such as {"security.protocol": "SASL_SSL"}')
    return dict(settings)


def check_client(client: Any) -> ClientName | None:
    if client is not None and client not in get_args(ClientName):
        raise JobError(f'Kafka: client is {client!r}; write "confluent-kafka" or "kafka-python"')
    checked: ClientName | None = client
    return checked


def choose_client(wanted: ClientName | None) -> ClientName:
    """The client to use, which is installed."""
    for name in (wanted,) if wanted else get_args(ClientName):
        if importlib.util.find_spec(MODULES[name]) is not None:
            chosen: ClientName = name
            return chosen
    raise EnvironmentFailure(
        f"{wanted or 'a Kafka client'} is not installed; write: pip install 'plait[kafka]'"
    )
