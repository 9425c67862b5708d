"""Where in the user's code an operator is made, and that place in front of what goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from plait.errors import JobError, SinkError, SourceError
from plait.locate import here

if TYPE_CHECKING:
    from types import TracebackType


class Place:
    """The verb the user wrote and the line of it. An error that leaves the block names both."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.at = here()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, JobError | SourceError | SinkError):
            raise type(error)(f"{self.name} at {self.at}: {error}") from error.__cause__
