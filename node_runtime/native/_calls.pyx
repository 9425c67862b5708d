"""The loops that call a user's Python function for every row of a batch.

A row whose function raises, or returns what does not fit, is a failure of that row: (row, error)
in the order of the rows, and the others go on unless `stop_at_first`. KeyboardInterrupt and
SystemExit are no failures of a row and go through. Nothing here is shared between calls, so
threads may run the same operator side by side. What the function itself raised may be tried again
with a new record: `again(n)` pauses, and says whether there is a try number n + 1.
"""

cimport cython
from cpython.array cimport array
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp.vector cimport vector

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native.declarations.batch cimport Batch
from plait.node_runtime.native._records cimport (
    ColumnWriter, RowWriter, Shape, place, rows_array, value_at,
)

from plait.model.records import Misfit, TooMuchText

cdef extern from "plait/columns/select.hpp" namespace "plait" nogil:
    void take_rows(Batch& batch, const uint32_t* rows, int64_t n) except +

cdef extern from "Python.h":
    int PyCoro_CheckExact(object value)
    object PyObject_Vectorcall(object called, PyObject** arguments, size_t count, PyObject* names)
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET

# Where a worker process shows the engine that it gets on: a number that rises with every record,
# and the row of the function that it is at. Rows that killed others before it are left out.
cdef uint64_t[2] nobody_looks
cdef volatile uint64_t* shown = nobody_looks
cdef uint64_t step_bits = 0
cdef dict poisoned = None

WHOLE_BATCH = 0xFFFFFFFF

ADVICE = (
    "the function's result must fit the output schema: annotate its return type or give schema= "
    "if it has other columns"
)


def beat_at(size_t address):
    """Shows the count of records done, and the place, at this address for the life of the
    process."""
    global shown
    shown = <volatile uint64_t*>address


def at_step(uint64_t number, dict poison):
    """The function of this number comes next; `poison`: why not, for each row to be left out."""
    global step_bits, poisoned
    step_bits = number << 32
    poisoned = poison or None


cpdef int reached(int64_t row) except -1:
    """This row is next; raises if others died on it. A function of batches is at WHOLE_BATCH."""
    shown[0] = shown[0] + 1
    shown[1] = step_bits | <uint64_t>row
    if poisoned is not None and row in poisoned:
        raise Misfit(poisoned[row])
    return 0


def beat():
    """Shows that this process gets on, though it is still at the same row."""
    shown[0] = shown[0] + 1


def map_rows(function, NativeBatch batch, Shape given, Shape out, bint stop_at_first, again=None):
    """function(record) -> record for every row: (batch, kept rows or None for all, failures)."""
    given.check(batch)
    cdef int64_t i = 0, rows = batch.batch.length
    cdef RowWriter writer = RowWriter(out, rows)
    cdef PyObject* arguments[2]
    cdef bint calling, adding
    cdef int tried = 0
    cdef list failures = []
    record = None
    while i < rows:
        calling = adding = False
        try:
            reached(i)
            record = given.next(record, batch, i)
            arguments[1] = <PyObject*>record
            calling = True
            result = PyObject_Vectorcall(
                function, &arguments[1], 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL
            )
            adding = True
            writer.add(i, result)
            result = None
        except (KeyboardInterrupt, SystemExit, TooMuchText):
            raise
        except BaseException as error:
            if calling and not adding and once_more(again, tried, error):
                tried += 1
                record = None
                continue
            fail(failures, i, not_awaited(result) or error if adding else error, adding)
            if stop_at_first:
                break
        tried = 0
        i += 1
    return writer.finish(batch), writer.kept() if failures else None, failures


def flat_map_rows(function, NativeBatch batch, Shape given, Shape out, bint stop_at_first,
                  again=None):
    """function(record) -> iterable of records: a record that fails half-way leaves nothing."""
    given.check(batch)
    cdef int64_t i = 0, before, rows = batch.batch.length
    cdef RowWriter writer = RowWriter(out, rows)
    cdef bint calling, adding
    cdef int tried = 0
    cdef list failures = []
    record = None
    while i < rows:
        before = writer.count
        calling = adding = False
        try:
            reached(i)
            record = given.next(record, batch, i)
            calling = True
            for result in function(record):
                adding = True
                writer.add(i, result)
                adding = False
            result = None
        except (KeyboardInterrupt, SystemExit, TooMuchText):
            raise
        except BaseException as error:
            writer.back(before)
            if calling and not adding and once_more(again, tried, error):
                tried += 1
                record = None
                continue
            fail(failures, i, error, adding)
            if stop_at_first:
                break
        tried = 0
        i += 1
    return writer.finish(batch), writer.kept(), failures


def filter_rows(function, NativeBatch batch, Shape given, bint stop_at_first, again=None):
    """function(record) -> truth: (the rows that are kept, failures)."""
    given.check(batch)
    cdef int64_t i = 0, rows = batch.batch.length
    cdef vector[uint32_t] kept
    cdef PyObject* arguments[2]
    cdef bint calling
    cdef int tried = 0
    cdef list failures = []
    record = None
    while i < rows:
        calling = False
        try:
            reached(i)
            record = given.next(record, batch, i)
            arguments[1] = <PyObject*>record
            calling = True
            result = PyObject_Vectorcall(
                function, &arguments[1], 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL
            )
            if PyCoro_CheckExact(result):  # it is always true
                raise not_awaited(result)
            if result:
                kept.push_back(<uint32_t>i)
            result = None
        except (KeyboardInterrupt, SystemExit, TooMuchText):
            raise
        except BaseException as error:
            if calling and once_more(again, tried, error):
                tried += 1
                record = None
                continue
            fail(failures, i, error, False)
            if stop_at_first:
                break
        tried = 0
        i += 1
    return rows_array(kept), failures


def misfit_of(error):
    """The error of a result that does not fit, with a note that says what to do."""
    made = Misfit(str(error))
    made.__cause__ = error
    made.add_note(ADVICE)
    return made


cdef bint once_more(object again, int tried, object error) except -1:
    """After a pause: whether the function is called again for this row."""
    return again is not None and not isinstance(error, Misfit) and again(tried)


cdef object not_awaited(object result):
    """The error of a function that returned a coroutine, or None; it will not be awaited."""
    if not PyCoro_CheckExact(result):
        return None
    result.close()
    return Misfit("the function returned a coroutine; what is to be awaited goes with map_async")


cdef int fail(list failures, int64_t row, object error, bint misfit) except -1:
    if misfit and isinstance(error, ValueError) and not isinstance(error, Misfit):
        error = misfit_of(error)
    failures.append((row, error))
    return 0


@cython.final
cdef class ColumnCall:
    """A function of columns: the columns its arguments come from, the last ones given by name."""

    cdef object function
    cdef readonly object field
    cdef vector[Py_ssize_t] columns
    cdef size_t positional
    cdef object names

    def __cinit__(self, function, field, columns, names=()):
        self.function = function
        self.field = field
        for column in columns:
            self.columns.push_back(column)
        self.positional = len(columns) - len(names)
        self.names = tuple(names) or None

    cdef object call(self, NativeBatch batch, int64_t i, PyObject** arguments):
        cdef size_t k, made = 0
        cdef PyObject* names = NULL
        if self.names is not None:
            names = <PyObject*>self.names
        try:
            for k in range(self.columns.size()):
                value = value_at(&batch.batch.columns[self.columns[k]], i)
                Py_INCREF(value)
                arguments[k + 1] = <PyObject*>value
                made += 1
            value = None
            return PyObject_Vectorcall(
                self.function, arguments + 1, self.positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                names,
            )
        finally:
            for k in range(made):
                Py_DECREF(<object>arguments[k + 1])


def call_columns(list calls, order, NativeBatch batch, bint stop_at_first, again=None):
    """Every function for every row, row by row: (a batch of their columns, kept or None, failures).
    All are called, and tried again, before their results are checked in `order`; a row that fails
    is in no column."""
    cdef int64_t i = 0, count = 0, rows = batch.batch.length
    cdef int tried = 0
    cdef Py_ssize_t k, width = len(calls)
    cdef list writers = [ColumnWriter((<ColumnCall>call).field, rows) for call in calls]
    cdef vector[PyObject*] arguments
    cdef vector[uint32_t] kept
    cdef list failures = []
    cdef list results = [None] * width
    cdef vector[Py_ssize_t] checks = order
    cdef NativeBatch made = NativeBatch.__new__(NativeBatch)
    cdef array found
    cdef bint adding
    arguments.resize(batch.batch.columns.size() + 1)
    for call in calls:
        for k in (<ColumnCall>call).columns:
            if not 0 <= k < <Py_ssize_t>batch.batch.columns.size():
                raise IndexError(f"column {k} of a batch of {batch.batch.columns.size()}")
    while i < rows:
        adding = False
        try:
            reached(i)
            for k in range(width):
                results[k] = (<ColumnCall>calls[k]).call(batch, i, arguments.data())
            adding = True
            for k in checks:
                (<ColumnWriter>writers[k]).put(count, results[k])
            count += 1
            if failures:
                kept.push_back(<uint32_t>i)
        except (KeyboardInterrupt, SystemExit, TooMuchText):
            raise
        except BaseException as error:
            if not adding and once_more(again, tried, error):
                tried += 1
                continue
            if not failures:
                for k in range(i):
                    kept.push_back(<uint32_t>k)
            fail(failures, i, error, adding)
            if stop_at_first:
                break
        tried = 0
        i += 1
    for writer in writers:
        made.batch.columns.push_back((<ColumnWriter>writer).column(count))
    made.batch.length = count
    if not failures:
        place(made, batch, None)
        return made, None, failures
    found = rows_array(kept)
    place(made, batch, found)
    return made, found, failures


def select_rows(NativeBatch batch, array rows):
    """Some rows of a batch, in their order, with their places. The rows must be there."""
    cdef NativeBatch made = NativeBatch.__new__(NativeBatch)
    made.batch.columns = batch.batch.columns
    made.batch.length = batch.batch.length
    place(made, batch, None)
    take_rows(made.batch, rows.data.as_uints, len(rows))
    return made


def assemble(sources, NativeBatch base, NativeBatch fresh):
    """A batch of columns of two batches of the same rows: source k >= 0 is column k of `base`,
    source k < 0 is column -k - 1 of `fresh`. Nothing is copied; its place is that of `fresh`."""
    if base.batch.length != fresh.batch.length:
        raise ValueError(f"{base.batch.length} rows and {fresh.batch.length} rows do not fit")
    cdef NativeBatch made = NativeBatch.__new__(NativeBatch)
    cdef Py_ssize_t k
    for k in sources:
        if k >= 0:
            made.batch.columns.push_back(base.batch.columns[k])
        else:
            made.batch.columns.push_back(fresh.batch.columns[-k - 1])
    made.batch.length = fresh.batch.length
    place(made, fresh, None)
    return made


@cython.final
cdef class Records:
    """Records that are written from Python one by one, each with the row it came from."""

    cdef RowWriter writer

    def __cinit__(self, Shape shape, int64_t room):
        self.writer = RowWriter(shape, room)

    def add(self, int64_t row, record):
        """Adds a record; a ValueError says what does not fit, and nothing is added."""
        self.writer.add(row, record)

    def finish(self, NativeBatch given):
        """(the batch, the row each record came from), placed as the batch it was made from."""
        writer, self.writer = self.writer, None
        return (<RowWriter>writer).finish(given), (<RowWriter>writer).kept()
