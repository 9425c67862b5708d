"""What a function raised in a worker process, as bytes and back.

The exception itself comes back where it can, with the traceback of the worker process as a note;
where it cannot (its class does not load again), one that says the same words.
"""

from __future__ import annotations

import pickle
import traceback

from plait.model.records import error_text


class WorkerError(Exception):
    """Stands for an exception that could not be brought back from a worker process."""


def text_of(error: BaseException) -> str:
    """How an error reads; one that cannot say it is named by its type."""
    try:
        return error_text(error)
    except Exception:
        return type(error).__name__


def pack(error: BaseException) -> bytes:
    """An exception as bytes that `unpack` can load in any case."""
    import cloudpickle

    told = "".join(traceback.format_exception(error))
    data = None
    try:
        data = cloudpickle.dumps(error)
        pickle.loads(data)  # a class with an __init__ of its own may pickle and not load
    except Exception:
        data = None
    return pickle.dumps((data, text_of(error), told))


def unpack(packed: bytes) -> BaseException:
    """The exception, with a note that says where in the worker process it was raised."""
    data, text, told = pickle.loads(packed)
    error: BaseException | None = None
    if data is not None:
        try:
            error = pickle.loads(data)
        except Exception:  # it loads there and not here
            error = None
    if not isinstance(error, BaseException):
        error = WorkerError(text)
    error.add_note(f"raised in a worker process:\n{told}")
    return error
