"""A thread for one end of a job: it opens the reader or writer, calls it, and closes it.

Any worker may run a source or a sink, but what they hold may belong to the thread that made it (a
connection of sqlite3). So the calls of a user's reader or writer are passed to one thread, and the
worker waits for the answer: about 30 us a batch. A worker that is interrupted meanwhile passes that
on. Ends of plait's own are called by the workers themselves.
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from plait.connectors.base import Reader, Writer
from plait.node_runtime.native._outside import interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.checkpoints.choices import ChoiceLog
    from plait.graph.operators import SourceOp

TICK_S = 0.1
LEAVE_S = 2.0
"""How long the thread may take to close, or to come back from a call that was interrupted; then it
is left behind."""


class Request:
    """A call on its way to the thread and back."""

    def __init__(self, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self.function = function
        self.given = given
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class EndThread:
    """The thread of an end, started at once; `end` leaves none behind."""

    def __init__(self, label: str) -> None:
        self.requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.used_s = 0.0
        """Processor time, as it was last seen."""
        # A daemon: a run that nobody waits for must not keep the process alive.
        self.thread = threading.Thread(target=self.serve, name=f"plait-end-{label}", daemon=True)
        self.thread.start()

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        """What the function gives in the thread; raises what it raised."""
        request = Request(function, given)
        self.requests.put(request)
        try:
            while not request.done.wait(TICK_S):
                pass
        except BaseException:  # somebody ends the run
            self.interrupt(request)
            raise
        if request.error is not None:
            raise request.error
        return request.result

    def cpu_s(self) -> float:
        """Processor time of the thread so far."""
        tid = self.thread.native_id
        if tid is not None:
            # Linux's number of the clock of a thread by its id: an error once the thread is gone.
            with suppress(OSError):
                self.used_s = max(self.used_s, time.clock_gettime((~tid << 3) | 6))
        return self.used_s

    def interrupt(self, request: Request) -> None:
        for _ in range(int(LEAVE_S / TICK_S)):
            if request.done.is_set() or self.thread.ident is None:
                return
            interrupt(self.thread.ident)
            request.done.wait(TICK_S)

    def end(self, function: Callable[[], Any] | None = None) -> Any:
        """Calls the last function and ends the thread. One that does not come back is left."""
        request = Request(function or (lambda: None), ())
        self.requests.put(request)
        self.requests.put(None)
        if not request.done.wait(LEAVE_S) and function is not None:
            self.interrupt(request)
        self.thread.join(LEAVE_S)
        if request.error is not None:
            raise request.error
        return request.result

    def serve(self) -> None:
        """The thread."""
        while True:
            request: Request | None = None
            try:
                request = self.requests.get()
                if request is None:
                    self.used_s = time.thread_time()
                    return
                request.result = request.function(*request.given)
            except BaseException as error:
                if request is not None:
                    request.error = error
            finally:
                if request is not None:
                    request.done.set()


class ThreadReader(Reader):
    """A reader that only its thread calls."""

    def __init__(self, op: SourceOp, thread: EndThread, reader: Reader) -> None:
        self.op = op
        self.thread = thread
        self.reader = reader

    def poll(self, max_rows: int) -> Any:
        return self.thread.call(self.reader.poll, max_rows)

    def position(self) -> Any:
        return self.thread.call(self.reader.position)

    def log_choices(self, again: Sequence[bytes]) -> ChoiceLog | None:
        if not hasattr(self.reader, "log_choices"):  # one that is no plait.Reader need not have it
            return None
        log: ChoiceLog | None = self.thread.call(self.reader.log_choices, again)
        return log

    def close(self) -> None:
        self.thread.end(self.reader.close)


class ThreadWriter(Writer):
    """A writer that only its thread calls."""

    def __init__(self, thread: EndThread, writer: Writer) -> None:
        self.thread = thread
        self.writer = writer

    def write(self, batch: Any) -> None:
        self.thread.call(self.writer.write, batch)

    def mark(self, boundary: int) -> None:
        if hasattr(self.writer, "mark"):  # one that is no plait.Writer need not have it
            self.thread.call(self.writer.mark, boundary)

    def prepare(self, boundary: int) -> Any:
        if not hasattr(self.writer, "prepare"):
            return None
        return self.thread.call(self.writer.prepare, boundary)

    def commit(self, boundary: int, notes: bytes = b"") -> None:
        if hasattr(self.writer, "commit"):
            self.thread.call(self.writer.commit, boundary, notes)

    def close(self) -> Any:
        return self.thread.end(self.writer.close)

    def abort(self) -> Any:
        return self.thread.end(self.writer.abort)


T = TypeVar("T", Reader, Writer)


def open_end(
    label: str,
    described: Any,
    open_it: Callable[[], T],
    threaded: Callable[[EndThread, T], T],
) -> T:
    """Opens the reader or writer of a source or sink; a user's is `threaded`: called by the thread
    that opened it."""
    if is_ours(described):
        return open_it()
    thread = EndThread(label)
    try:
        return threaded(thread, thread.call(open_it))
    except BaseException:
        thread.end()
        raise


def is_ours(described: Any) -> bool:
    """Whether it is of plait's own, which any thread may call. A replay calls what it replays."""
    return type(getattr(described, "replayed", described)).__module__.startswith("plait.")
