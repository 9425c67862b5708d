"""The port of sinks: what a connector implements, in plain Python.
 A `Sink` is a description; `open` makes a `Writer`, which gets the output's batches in order, one
call at a time (calls may come from different threads, never two at once), and is closed exactly
once: `close` after the last batch, or `abort` when the run failed or was stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.model import Schema


class Writer:
    """An open sink."""

    def write(self, batch: Any) -> None:
        """Takes the next rows: a pyarrow RecordBatch of the sink's schema, never empty."""
        raise TypeError(f"{type(self).__name__} has no method write(batch)")

    def close(self) -> Any:
        """Finishes; what it returns is the sink's entry in `Result.outputs`."""
        return None

    def abort(self) -> Any:
        """The run did not end well: keep what was delivered, give back what is held. Same return
        as `close`."""
        return self.close()


class Sink:
    """A description of where records go."""

    label: str = ""

    def open(self, schema: Schema) -> Writer:
        raise TypeError(f"{type(self).__name__} has no method open(schema)")
