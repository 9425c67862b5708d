"""What comes back from functions outside the engine, and batches that wait to be taken there.

A NativeTray is the Python side of a stage whose batches are worked on elsewhere (async_tray.hpp):
one thread waits for its descriptor, takes batches, and brings each back once.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libcpp.memory cimport make_shared
from libcpp.string cimport string
from libcpp.utility cimport move

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native.declarations.calls cimport CallOutcome, AsyncTray, RowFailure

from plait.model.records import error_text as failure_text


cdef extern from "Python.h":
    int PyThreadState_SetAsyncExc(unsigned long thread, PyObject* error) noexcept


cdef object text_of(object error):
    """How an error reads; one that cannot say it is named by its type."""
    try:
        return failure_text(error)
    except Exception:
        return type(error).__name__


cdef int fill(CallOutcome* outcome, object made, object origin, object failures, bint whole,
              list raised, bint stops) except -1:
    """From (batch, input rows or None, [(row, exception)]); `stops`: a failed row ends the run."""
    cdef NativeBatch out = made
    cdef RowFailure failure
    cdef unsigned int[::1] rows
    cdef Py_ssize_t i
    outcome.whole = whole
    outcome.out.columns = out.batch.columns
    outcome.out.length = out.batch.length
    if origin is None:
        outcome.one_to_one = True
    elif not whole:
        rows = origin
        outcome.origin.resize(len(origin))
        for i in range(len(origin)):
            outcome.origin[i] = rows[i]
    for row, error in failures:
        failure.row = row
        failure.message = text_of(error).encode("utf-8", "replace")
        failure.handle = -1
        if stops:  # only a failure that ends the run is raised again; the others leave their words
            raised.append(error)
            failure.handle = len(raised) - 1
        outcome.failures.push_back(failure)
    outcome.batch_failed = whole and len(failures) > 0
    return 0


cdef int fill_fatal(CallOutcome* outcome, object error, list raised) except -1:
    """The run ends with this error, whatever the policy."""
    cdef RowFailure failure
    raised.append(error)
    failure.row = 0
    failure.message = text_of(error).encode("utf-8", "replace")
    failure.handle = len(raised) - 1
    outcome.failures.clear()
    outcome.failures.push_back(failure)
    outcome.fatal = True
    return 0


def interrupt(unsigned long thread):
    """Raises KeyboardInterrupt in a Python thread, when it next runs Python code."""
    PyThreadState_SetAsyncExc(thread, <PyObject*>KeyboardInterrupt)


cdef class NativeTray:
    """Batches on their way outside. Belongs to one stage, and outlives it if need be."""

    def __cinit__(self):
        self.tray = make_shared[AsyncTray]()
        self.raised = []

    def fileno(self):
        """Readable when there may be something to take, or to forget."""
        return self.tray.get().bell()

    def hush(self):
        """Before looking what there is: what comes from here on rings again."""
        self.tray.get().hush()

    def take(self):
        """(serial, batch) of the next batch, or None."""
        cdef NativeBatch batch = NativeBatch.__new__(NativeBatch)
        cdef uint64_t serial = 0
        if not self.tray.get().take(serial, batch.batch):
            return None
        return serial, batch

    def last_needed(self):
        """Batches behind this serial need not be brought back."""
        return self.tray.get().last_needed()

    def over(self):
        """Whether the stage is gone."""
        return self.tray.get().over()

    def complete(self, uint64_t serial, made, origin, failures):
        """Brings a batch back, as an operator of `python_ops` gives it."""
        cdef CallOutcome outcome
        fill(&outcome, made, origin, failures, False, self.raised, self.stops)
        self.give(serial, outcome)

    def stop(self, uint64_t serial, error):
        """Brings a batch back with an error that ends the run."""
        cdef CallOutcome outcome
        fill_fatal(&outcome, error, self.raised)
        self.give(serial, outcome)

    def broke(self, str why):
        """Nothing will be brought back any more; if the run needs it, it fails."""
        cdef string text = why.encode("utf-8", "replace")
        if self.tray.get().returns() != NULL:
            with nogil:
                self.tray.get().returns().broke(text)

    def spent_cpu(self, int64_t ns):
        """So much processor time was used for its batches."""
        if self.tray.get().returns() != NULL:
            self.tray.get().returns().spent_cpu(ns)

    cdef give(self, uint64_t serial, CallOutcome& outcome):
        if self.tray.get().returns() == NULL:
            raise RuntimeError("the tray belongs to no stage")
        with nogil:
            self.tray.get().returns().complete(serial, move(outcome))
