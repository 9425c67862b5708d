"""JSON objects to and from Arrow columns, for connectors: bytes of values on one side, a
RecordBatch on the other.

The values are read where they lie, without the GIL: nothing joins or copies them before. This
module stands below the others of this folder: connectors import it, and it knows only the schema.
"""

from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.stdint cimport int64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_unique, unique_ptr
from libcpp.string cimport string
from libcpp.utility cimport move
from libcpp.vector cimport vector

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native.declarations.batch cimport Batch, Type


cdef extern from "plait/text/json_columns.hpp" namespace "plait" nogil:
    cdef cppclass JsonField:
        string name
        Type type
        cbool nullable

    cdef struct JsonValue:
        const char* data
        int64_t size

    cdef struct BadJson:
        int64_t index
        cbool unsettled
        string reason

    cdef struct JsonLine:
        int64_t begin
        int64_t end
        int64_t number

    cdef cppclass JsonColumns:
        JsonColumns(vector[JsonField] fields, cbool only_known) except +
        Batch read(const JsonValue* values, int64_t count) except +
        Batch read_lines(const char* text, int64_t size, int64_t first) except +
        const vector[BadJson]& bad() noexcept
        const vector[JsonLine]& lines() noexcept
        int64_t line_ends() noexcept

cdef extern from "<string_view>" namespace "std" nogil:
    cdef cppclass string_view:
        const char* data() noexcept
        size_t size() noexcept


cdef extern from "plait/text/json_writer.hpp" namespace "plait" nogil:
    cdef cppclass JsonLines "plait::JsonWriter":
        JsonLines(const vector[string]& names) except +
        cbool write(const Batch& batch, cbool lines) except +
        string_view lines() noexcept
        string_view row(int64_t i) noexcept


cdef class JsonReader:
    """Reads values of one schema. It expects the fields in the order of the value before."""

    cdef unique_ptr[JsonColumns] columns
    cdef object schema
    cdef bint busy

    def __cinit__(self, schema, only_known=False):
        cdef vector[JsonField] fields
        cdef JsonField made
        for field in schema:
            made.name = field.name.encode()
            made.type = <Type><int>field.type.code
            made.nullable = field.nullable
            if field.declared is not None:
                raise ValueError(f'column "{field.name}" is declared, and only Python checks that')
            fields.push_back(made)
        self.columns = make_unique[JsonColumns](move(fields), <cbool>only_known)
        self.schema = schema
        self.busy = False

    def read(self, values):
        """The rows of the values that fit; what is wrong with others, by number; and the numbers of
        those that only Python judges. None is a record without a value."""
        if self.busy:
            raise RuntimeError("two threads read with the same JsonReader; make one for each")
        cdef tuple kept = tuple(values)  # nobody can let go of one while it is read
        cdef vector[JsonValue] found
        cdef JsonValue value
        found.reserve(len(kept))
        for one in kept:
            if one is None:
                value.data = NULL
                value.size = 0
            elif PyBytes_CheckExact(one):
                value.data = PyBytes_AS_STRING(one)
                value.size = PyBytes_GET_SIZE(one)
            else:
                raise TypeError(f"expected bytes or None, got {type(one).__name__}")
            found.push_back(value)
        cdef NativeBatch rows = NativeBatch()
        self.busy = True
        try:
            with nogil:
                rows.batch = self.columns.get().read(found.data(), <int64_t>found.size())
        finally:
            self.busy = False
        reasons, unsettled = {}, []
        cdef size_t i
        for i in range(self.columns.get().bad().size()):
            self.tell(self.columns.get().bad()[i], reasons, unsettled)
        return rows.to_arrow(self.schema), reasons, unsettled

    def read_lines(self, bytes text, int64_t first):
        """The rows of the lines that are not blank, from one of these on, which fit; of others the
        row, from `first` on, the number of the line and the line; how many lines are not blank; and
        how many end."""
        if self.busy:
            raise RuntimeError("two threads read with the same JsonReader; make one for each")
        cdef NativeBatch rows = NativeBatch()
        cdef const char* data = PyBytes_AS_STRING(text)
        cdef int64_t size = PyBytes_GET_SIZE(text)
        self.busy = True
        try:
            with nogil:
                rows.batch = self.columns.get().read_lines(data, size, first)
        finally:
            self.busy = False
        others = []
        cdef size_t i
        cdef int64_t row
        cdef JsonLine line
        for i in range(self.columns.get().bad().size()):
            row = self.columns.get().bad()[i].index
            line = self.columns.get().lines()[first + row]
            others.append((row, line.number, text[line.begin:line.end]))
        found = self.columns.get().lines().size()
        return rows.to_arrow(self.schema), others, found, self.columns.get().line_ends()

    cdef int tell(self, const BadJson& bad, dict reasons, list unsettled) except -1:
        if bad.unsettled:
            unsettled.append(bad.index)
        else:  # a name may have half of a surrogate pair
            reasons[bad.index] = (<bytes>bad.reason).decode("utf-8", "backslashreplace")
        return 0


cdef class JsonWriter:
    """Writes batches of one schema."""

    cdef unique_ptr[JsonLines] lines
    cdef object schema
    cdef bint busy

    def __cinit__(self, schema):
        cdef vector[string] names
        for field in schema:
            if <Type><int>field.type.code == Type.Object:
                raise ValueError(f'column "{field.name}" holds objects, which only Python writes')
            names.push_back(field.name.encode())
        self.lines = make_unique[JsonLines](names)
        self.schema = schema
        self.busy = False

    def write(self, arrow):
        """The object of each row of a RecordBatch whose types are those of the schema; None if a
        time is outside the years of a datetime."""
        cdef int64_t count = self.take(arrow, False)
        if count < 0:
            return None
        cdef int64_t i
        cdef string_view row
        values = []
        for i in range(count):
            row = self.lines.get().row(i)
            values.append(PyBytes_FromStringAndSize(row.data(), <Py_ssize_t>row.size()))
        return values

    def write_lines(self, arrow):
        """The same, as one text with a newline behind each object."""
        if self.take(arrow, True) < 0:
            return None
        cdef string_view text = self.lines.get().lines()
        return PyBytes_FromStringAndSize(text.data(), <Py_ssize_t>text.size())

    cdef int64_t take(self, arrow, cbool lines) except -2:
        """How many rows were written; -1 if they could not be."""
        if self.busy:
            raise RuntimeError("two threads write with the same JsonWriter; make one for each")
        cdef NativeBatch batch = NativeBatch.from_arrow(arrow, self.schema)
        cdef cbool all_written
        self.busy = True
        try:
            with nogil:
                all_written = self.lines.get().write(batch.batch, lines)
        finally:
            self.busy = False
        return batch.batch.length if all_written else -1
