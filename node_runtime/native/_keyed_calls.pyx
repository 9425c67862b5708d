"""The loops that call a user's step for every row of a batch, with the state of the row's key.

`home` maps a key to the part of the states that it is in; `add_key` gives a new key its part and
`first` its state. The state changes only when the step returned and its result fits. A row that
fails is (row, error); what is no Exception ends the loop as the last failure, as every failure does
with `stop_at_first`. `before`: called with each key whose state is handed out, if anyone wants to
know; `beat`: called before each row, if anyone looks whether it gets on.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint32_t
from libcpp.vector cimport vector

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native._records cimport (
    ColumnWriter, RowWriter, Shape, rows_array, value_at,
)

from plait.model.records import Misfit
from plait.node_runtime.native._calls import misfit_of

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object mapping, object key) except? NULL
    object PyObject_Vectorcall(object called, PyObject** arguments, size_t count, PyObject* names)
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET


@cython.final
cdef class KeyedCall:
    """A step, and the states it works on."""

    cdef object step, first, add_key, canonical
    cdef dict home
    cdef Shape given
    cdef vector[Py_ssize_t] places
    cdef bint stop_at_first
    # Of the batch at hand.
    cdef NativeBatch batch
    cdef object record
    cdef object key
    cdef dict part
    cdef bint subset
    cdef vector[uint32_t] kept
    cdef list failures

    def __init__(self, step, first, add_key, canonical, dict home, Shape given, places,
                 bint stop_at_first):
        self.step = step
        self.first = first
        self.add_key = add_key
        self.canonical = canonical
        self.home = home
        self.given = given
        self.places = places
        self.stop_at_first = stop_at_first

    def fold(self, NativeBatch batch, rows, field, before, beat):
        """state = step(state, record): (a batch of the states, kept rows or None, failures)."""
        cdef ColumnWriter writer = ColumnWriter(field, batch.batch.length)
        cdef NativeBatch made = NativeBatch.__new__(NativeBatch)
        cdef int64_t at, i, count = 0, rounds = self.begin(batch, rows)
        cdef bint adding
        cdef vector[uint32_t] chosen = chosen_of(rows)
        for at in range(rounds):
            i = chosen[at] if self.subset else at
            adding = False
            try:
                state = self.call(i, before, beat)
                adding = True
                writer.put(count, state)
                self.keep(state)
                count += 1
                if self.subset or self.failures:
                    self.kept.push_back(<uint32_t>i)
            except BaseException as error:
                self.list_kept(i)
                if self.fail(i, error, adding):
                    break
        made.batch.columns.push_back(writer.column(count))
        made.batch.length = count
        return made, self.end(), self.failures

    def run(self, NativeBatch batch, rows, Shape out, before, beat):
        """state, record = step(state, record): (a batch, the row of each record, failures)."""
        cdef RowWriter writer = RowWriter(out, batch.batch.length)
        cdef int64_t at, i, rounds = self.begin(batch, rows)
        cdef bint adding
        cdef vector[uint32_t] chosen = chosen_of(rows)
        for at in range(rounds):
            i = chosen[at] if self.subset else at
            adding = False
            try:
                result = self.call(i, before, beat)
                if not isinstance(result, tuple) or len(<tuple>result) != 2:
                    raise Misfit(f"the step must return (state, record or None), not {result!r}")
                state, out_record = <tuple>result
                result = None
                if out_record is not None:
                    adding = True
                    writer.add(i, out_record)
                    adding = False
                    out_record = None
                self.keep(state)
            except BaseException as error:
                if self.fail(i, error, adding):
                    break
        self.end()
        return writer.finish(batch), writer.kept(), self.failures

    cdef int64_t begin(self, NativeBatch batch, rows) except -1:
        self.given.check(batch)
        self.batch = batch
        self.record = None
        self.failures = []
        self.kept.clear()
        self.subset = rows is not None
        return batch.batch.length if rows is None else len(rows)

    cdef object end(self):
        """The rows that are kept, or None for all."""
        self.batch = None
        self.record = self.key = self.part = None
        return rows_array(self.kept) if self.subset or self.failures else None

    cdef object call(self, int64_t i, before, beat):
        """What the step gives for a row."""
        cdef PyObject* arguments[3]
        cdef PyObject* part
        if beat is not None:
            beat()
        self.record = self.given.next(self.record, self.batch, i)
        self.key = self.key_of(i)
        if before is not None:
            before(self.key)
        part = PyDict_GetItemWithError(self.home, self.key)
        if part is NULL:
            self.part = None
            state = self.first()
        else:
            self.part = <dict>part
            state = self.part[self.key]
        arguments[1] = <PyObject*>state
        arguments[2] = <PyObject*>self.record
        return PyObject_Vectorcall(
            self.step, &arguments[1], 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL
        )

    cdef object key_of(self, int64_t i):
        cdef Py_ssize_t k, width = self.places.size()
        cdef tuple key = PyTuple_New(width)
        for k in range(width):
            value = value_at(&self.batch.batch.columns[self.places[k]], i)
            Py_INCREF(value)
            PyTuple_SET_ITEM(key, k, value)
        return key if self.canonical is None else self.canonical(key)

    cdef int keep(self, state) except -1:
        if self.part is None:
            self.part = self.add_key(self.key)
        self.part[self.key] = state
        return 0

    cdef int list_kept(self, int64_t i) except -1:
        """From the first failure on the rows that are kept are listed."""
        if not self.subset and not self.failures:
            self.kept.reserve(self.batch.batch.length)
            for k in range(i):
                self.kept.push_back(<uint32_t>k)
        return 0

    cdef bint fail(self, int64_t i, error, bint adding) except -1:
        """Whether the loop is over."""
        if adding and isinstance(error, ValueError):
            error = misfit_of(error)
        self.failures.append((i, error))
        self.record = None
        return self.stop_at_first or not isinstance(error, Exception)


cdef vector[uint32_t] chosen_of(rows) except *:
    cdef vector[uint32_t] chosen
    if rows is not None:
        chosen = rows
    return chosen
