"""Asks the brokers now and then what partitions a topic has, and where they begin and end.

By a thread and a connection of its own: a question on the connection that reads waits there until
the brokers have records, up to half a second (measured). Brokers that do not answer are asked again
the next time; the reader's own connection says when they are away for too long.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from plait.connectors.kafka.client import connect
from plait.connectors.kafka.watch import watching
from plait.errors import EnvironmentFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.connectors.kafka.client import Bounds, Consumer
    from plait.connectors.kafka.settings import Connection

ASK_S = 1.0
"""How long the brokers may take to answer; closing waits for it."""


class Lookout:
    """A thread that looks at a topic; its last look is taken by the reader."""

    def __init__(self, connection: Connection, topic: str, every_s: float | None = None) -> None:
        self.connection = connection
        self.topic = topic
        self.every_s = watching.LOOK_S if every_s is None else every_s
        self.seen: Mapping[int, Bounds] | None = None
        self.failed: BaseException | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, name="plait-kafka-look", daemon=True)
        self.thread.start()

    def take(self) -> Mapping[int, Bounds] | None:
        """What the last look gave, once; None: there was none since."""
        if self.failed is not None:
            raise self.failed
        seen, self.seen = self.seen, None
        return seen

    def run(self) -> None:
        consumer: Consumer | None = None
        try:
            while not self.ended.wait(self.every_s):
                try:
                    consumer = consumer or connect(self.connection).consumer(self.topic)
                except EnvironmentFailure:
                    continue
                if (seen := look_at(consumer)) is not None:
                    self.seen = seen
        except BaseException as error:
            self.failed = error
        finally:
            if consumer is not None:
                consumer.close()

    def close(self) -> None:
        self.ended.set()
        self.thread.join()


def look_at(consumer: Consumer) -> dict[int, Bounds] | None:
    """The partitions of a topic and their bounds, none if the topic is gone; None: no answer."""
    try:
        there = consumer.partitions_now(ASK_S)
        return consumer.bounds(there, ASK_S) if there else {}
    except EnvironmentFailure:
        return None
