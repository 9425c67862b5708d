"""Records to and from native columns: the fast form of the rules in plait/model/records.py.

A `Shape` knows a schema's columns, its record class and where that class keeps its fields. Loops
that call a user's function make one record, read its result and write typed columns without a
Python object in between; a record that nobody kept is filled again for the next row. Whatever is
not the common case (subclasses, numpy values, other zones) goes through plait.model.records, which
also makes every message, so both forms agree. All of it runs with the GIL held.
"""

from cpython.array cimport array, clone
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.datetime cimport (
    PyDateTime_CheckExact, datetime_day, datetime_hour, datetime_microsecond, datetime_minute,
    datetime_month, datetime_new, datetime_second, datetime_tzinfo, datetime_year, get_utc,
    import_datetime,
)
from cpython.dict cimport PyDict_CheckExact, PyDict_GetItemWithError, PyDict_Size
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact, PyFloat_FromDouble
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact, PyLong_FromLongLong
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_REFCNT, Py_XDECREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

import dataclasses
import inspect
import sys
from types import MemberDescriptorType

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native.declarations.batch cimport BufferRef, Column, Type

from plait.model.record_class import SLOTS, record_class
from plait.model.records import (
    Misfit, TooMuchText, maker, pack_object, raw_values, unpack_object, value_of,
)

import_datetime()

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
        int type

    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member

    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)
    int PyObject_GenericSetAttr(object owner, object name, object value) except -1
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef extern from *:
    """
    static inline bool plait_has_weakrefs(PyObject* cls) {
        return ((PyTypeObject*)cls)->tp_weaklistoffset != 0;
    }
    static inline PyObject* plait_new(PyObject* cls, PyObject* nothing) {
        return ((PyTypeObject*)cls)->tp_new((PyTypeObject*)cls, nothing, NULL);
    }
    """
    cbool plait_has_weakrefs(object cls) noexcept
    object plait_new(object cls, object nothing)

cdef extern from "plait/columns/batch.hpp" namespace "plait" nogil:
    void set_bit(uint8_t* bits, int64_t i) noexcept
    void clear_bit(uint8_t* bits, int64_t i) noexcept
    int64_t bit_bytes(int64_t n) noexcept
    cbool is_varlen(Type kind) noexcept

cdef int OBJECT_SLOT = 16  # Py_T_OBJECT_EX: what __slots__ makes
cdef int64_t DAY_US = 86_400_000_000
cdef int64_t FIRST_US = -62_135_596_800_000_000  # 0001-01-01
cdef int64_t LAST_US = 253_402_300_799_999_999  # 9999-12-31 23:59:59.999999
cdef int64_t most_bytes = 2**31 - 1
cdef object UTC = get_utc()
cdef tuple NOTHING = ()
cdef array ROWS = array("I")


def limit_text(int64_t most=2**31 - 1):
    """Sets how many bytes of text a column of a batch may hold, for tests; without an argument as
    many as it can."""
    global most_bytes
    most_bytes = most


cdef inline int64_t days_of(int64_t year, int64_t month, int64_t day) noexcept:
    """Days since 1970 of a date of the years 1 to 9999, counting years from March."""
    if month <= 2:
        year -= 1
    cdef int64_t months = month - 3 if month > 2 else month + 9
    return (
        365 * year + year // 4 - year // 100 + year // 400 + (153 * months + 2) // 5 + day - 719_469
    )


cdef object datetime_at(int64_t us):
    if us < FIRST_US or us > LAST_US:
        raise Misfit(f"timestamp {us} us is outside the years of a datetime")
    # From day one of the year 1 all numbers are positive, so C division rounds as wanted.
    cdef int64_t since = us - FIRST_US
    cdef int64_t day = since // DAY_US + 306  # since 1 March of the year 0
    cdef int64_t rest = since % DAY_US
    cdef int64_t era = day // 146_097
    cdef int64_t in_era = day % 146_097
    cdef int64_t in_era_year = (
        in_era - in_era // 1_460 + in_era // 36_524 - in_era // 146_096
    ) // 365
    cdef int64_t in_year = in_era - (365 * in_era_year + in_era_year // 4 - in_era_year // 100)
    cdef int64_t months = (5 * in_year + 2) // 153
    cdef int month = <int>(months + 3 if months < 10 else months - 9)
    cdef int year = <int>(era * 400 + in_era_year + (1 if month <= 2 else 0))
    cdef int64_t seconds = rest // 1_000_000
    return datetime_new(
        year, month, <int>(in_year - (153 * months + 2) // 5 + 1), <int>(seconds // 3600),
        <int>(seconds // 60 % 60), <int>(seconds % 60), <int>(rest % 1_000_000), UTC,
    )


cdef inline int64_t microseconds_at(object moment) noexcept:
    """Microseconds since 1970 of a datetime in UTC."""
    return (
        days_of(datetime_year(moment), datetime_month(moment), datetime_day(moment)) * DAY_US
        + (
            datetime_hour(moment) * 3600 + datetime_minute(moment) * 60 + datetime_second(moment)
        ) * <int64_t>1_000_000
        + datetime_microsecond(moment)
    )


cdef object value_at(Column* column, int64_t i):
    """One value of a column as a Python object."""
    if column.validity != NULL and not column.valid(i):
        return None
    cdef Type kind = column.type
    if kind == Type.Int64:
        return PyLong_FromLongLong((<const int64_t*>column.data)[i])
    if kind == Type.Float64:
        return PyFloat_FromDouble((<const double*>column.data)[i])
    if kind == Type.String:
        return PyUnicode_DecodeUTF8(column.bytes(i), column.size(i), NULL)
    if kind == Type.Bool:
        return True if column.boolean(i) else False
    if kind == Type.Timestamp:
        return datetime_at((<const int64_t*>column.data)[i])
    cdef bytes raw = column.bytes(i)[:column.size(i)]
    return raw if kind == Type.Bytes else unpack_object(raw)


cdef class ColumnWriter:
    """Writes one column value by value. Writing row `at` again undoes what was there: a row that
    fails half-way needs no clean-up. `room` rows fit; the caller grows it."""

    def __cinit__(self, field, int64_t room):
        self.field = field
        self.kind = <Type><int>field.type.code
        self.nullable = field.nullable
        self.declared = field.declared
        self.has_null = False
        self.room = 0
        self.byte_room = 0
        self.grow(room if room > 16 else 16)

    cdef int grow(self, int64_t room) except -1:
        cdef int64_t old = self.room
        if self.nullable:
            self.validity = moved(self.validity, bit_bytes(old), bit_bytes(room))
        if is_varlen(self.kind):
            self.offsets = moved(self.offsets, 4 * (old + 1) if old else 0, 4 * (room + 1))
            if old == 0:
                (<int32_t*>self.offsets.data())[0] = 0
                self.grow_bytes(0, 16 * room)
        elif self.kind == Type.Bool:
            self.data = moved(self.data, bit_bytes(old), bit_bytes(room))
        else:
            self.data = moved(self.data, 8 * old, 8 * room)
        self.room = room
        return 0

    cdef int grow_bytes(self, int64_t used, int64_t room) except -1:
        self.data = moved(self.data, used, room)
        self.byte_room = room
        return 0

    cdef int put(self, int64_t at, object value) except -1:
        """Checks and writes the value of row `at`; a ValueError says what does not fit."""
        if value is None:
            return self.put_null(at)
        if self.nullable:
            set_bit(self.validity.data(), at)
        cdef Type kind = self.kind
        cdef int overflow = 0
        cdef int64_t whole
        cdef Py_ssize_t size
        cdef const char* text
        if kind == Type.Int64:
            if PyLong_CheckExact(value):
                whole = PyLong_AsLongLongAndOverflow(value, &overflow)
                if not overflow:
                    (<int64_t*>self.data.data())[at] = whole
                    return 0
            (<int64_t*>self.data.data())[at] = value_of(value, self.field)
        elif kind == Type.Float64:
            if not PyFloat_CheckExact(value):
                value = value_of(value, self.field)
            (<double*>self.data.data())[at] = PyFloat_AS_DOUBLE(value)
        elif kind == Type.Bool:
            if value is not True and value is not False:
                value = value_of(value, self.field)
            if value is True:
                set_bit(self.data.data(), at)
            else:
                clear_bit(self.data.data(), at)
        elif kind == Type.Timestamp:
            if not PyDateTime_CheckExact(value) or datetime_tzinfo(value) is not UTC:
                value = value_of(value, self.field)
            (<int64_t*>self.data.data())[at] = microseconds_at(value)
        elif kind == Type.String:
            if not PyUnicode_CheckExact(value):
                value = value_of(value, self.field)
            try:
                text = PyUnicode_AsUTF8AndSize(value, &size)
            except UnicodeEncodeError:
                value = value_of(value, self.field)  # says what is wrong with it
                raise
            self.put_bytes(at, text, size)
        else:
            if kind == Type.Object:
                value = pack_object(value if self.declared is None else value_of(value, self.field))
            elif not PyBytes_CheckExact(value):
                value = value_of(value, self.field)
            self.put_bytes(at, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        return 0

    cdef int put_null(self, int64_t at) except -1:
        if not self.nullable:
            value_of(None, self.field)  # raises
        clear_bit(self.validity.data(), at)
        self.has_null = True
        cdef int32_t* offsets
        if is_varlen(self.kind):
            offsets = <int32_t*>self.offsets.data()
            offsets[at + 1] = offsets[at]
        elif self.kind == Type.Bool:
            clear_bit(self.data.data(), at)
        else:
            (<int64_t*>self.data.data())[at] = 0
        return 0

    cdef int put_bytes(self, int64_t at, const char* data, int64_t size) except -1:
        cdef int32_t* offsets = <int32_t*>self.offsets.data()
        cdef int64_t start = offsets[at]
        if start + size > most_bytes:
            if size > most_bytes:
                raise ValueError(f'column "{self.field.name}": a value of more than 2 GiB')
            raise TooMuchText(
                f'column "{self.field.name}": more than 2 GiB in one unit; give the source a'
                " smaller epoch_records=, or make fewer or shorter texts of a record"
            )
        if start + size > self.byte_room:
            self.grow_bytes(start, 2 * (start + size))
        memcpy(self.data.data() + start, data, size)
        offsets[at + 1] = <int32_t>(start + size)
        return 0

    cdef Column column(self, int64_t rows):
        """The first `rows` rows. The writer must not be used afterwards."""
        cdef Column made
        made.type = self.kind
        made.length = rows
        if self.has_null:
            made.validity = self.validity.data()
            made.validity_owner = self.validity
        made.data = self.data.data()
        made.data_owner = self.data
        if is_varlen(self.kind):
            made.offsets = <const int32_t*>self.offsets.data()
            made.offsets_owner = self.offsets
        return made


cdef BufferRef moved(BufferRef old, int64_t used, int64_t room) except *:
    """A larger buffer with the first `used` bytes of the old one."""
    cdef BufferRef new = BufferRef.make(room)
    if used:
        memcpy(new.data(), old.data(), used)
    return new


cdef class RowWriter:
    """Writes records as columns, and remembers the input row that each came from."""

    def __cinit__(self, Shape shape, int64_t room):
        self.shape = shape
        self.room = room if room > 16 else 16
        self.count = 0
        self.writers = [ColumnWriter(field, self.room) for field in shape.fields]
        self.rows.reserve(self.room)

    cdef int add(self, int64_t row, object record) except -1:
        """Adds a record that came from input row `row`; nothing is added if it does not fit."""
        if self.count == self.room:
            self.room *= 2
            for writer in self.writers:
                (<ColumnWriter>writer).grow(self.room)
        self.put(record)
        self.rows.push_back(<uint32_t>row)
        self.count += 1
        return 0

    cdef int put(self, object record) except -1:
        cdef Shape shape = self.shape
        cdef Py_ssize_t k, width = shape.width
        cdef PyObject* found
        cdef PyObject** slot
        if shape.bare:
            if type(record) is not shape.cls:
                if not is_plain_scalar(record):
                    record = raw_values(record, shape.schema)[0]
                (<ColumnWriter>self.writers[0]).put(self.count, record)
                return 0
        if type(record) is shape.cls:
            for k in range(width):
                if shape.slotted:
                    slot = shape.slot(record, k)
                    if slot[0] != NULL:
                        (<ColumnWriter>self.writers[k]).put(self.count, <object>slot[0])
                        continue
                (<ColumnWriter>self.writers[k]).put(
                    self.count, shape.members[k].__get__(record) if shape.members is not None
                    else getattr(record, shape.names[k])
                )
            return 0
        if PyTuple_CheckExact(record) and PyTuple_GET_SIZE(record) == width:
            for k in range(width):
                (<ColumnWriter>self.writers[k]).put(
                    self.count, <object>PyTuple_GET_ITEM(record, k)
                )
            return 0
        if PyDict_CheckExact(record) and PyDict_Size(record) == width:
            for k in range(width):
                found = PyDict_GetItemWithError(record, shape.names[k])
                if found == NULL:
                    break
                (<ColumnWriter>self.writers[k]).put(self.count, <object>found)
            else:
                return 0
        values = raw_values(record, shape.schema)
        for k in range(width):
            (<ColumnWriter>self.writers[k]).put(self.count, values[k])
        return 0

    cdef int back(self, int64_t count) except -1:
        """Forgets the rows after the first `count`."""
        self.count = count
        self.rows.resize(count)
        return 0

    cdef NativeBatch finish(self, NativeBatch given):
        """The batch of what was added, placed in the order as the batch it was made from."""
        cdef NativeBatch made = NativeBatch.__new__(NativeBatch)
        for writer in self.writers:
            made.batch.columns.push_back((<ColumnWriter>writer).column(self.count))
        made.batch.length = self.count
        place(made, given, self.kept())
        return made

    cdef array kept(self):
        return rows_array(self.rows)


cdef array rows_array(vector[uint32_t]& rows):
    cdef array made = clone(ROWS, rows.size(), False)
    if rows.size():
        memcpy(made.data.as_voidptr, rows.data(), rows.size() * 4)
    return made


cdef inline bint is_plain_scalar(object value) noexcept:
    return (
        value is None or value is True or value is False or PyLong_CheckExact(value)
        or PyFloat_CheckExact(value) or PyUnicode_CheckExact(value) or PyBytes_CheckExact(value)
        or PyDateTime_CheckExact(value)
    )


cpdef place(NativeBatch made, NativeBatch given, rows):
    """Gives a batch the place in the order of the batch it was made from; `rows` is the input row
    of each of its rows, None for the same rows."""
    cdef const uint32_t[::1] kept
    cdef uint32_t* tags
    cdef Py_ssize_t i
    made.batch.epoch = given.batch.epoch
    made.batch.source = given.batch.source
    made.batch.first_row = given.batch.first_row
    made.batch.ingest_ns = given.batch.ingest_ns
    if rows is None:
        made.batch.tags = given.batch.tags
        made.batch.tags_owner = given.batch.tags_owner
        return
    kept = rows
    made.batch.tags_owner = BufferRef.make(4 * len(kept))
    tags = <uint32_t*>made.batch.tags_owner.data()
    for i in range(len(kept)):
        tags[i] = given.batch.tags[kept[i]] if given.batch.tags != NULL else kept[i]
    made.batch.tags = tags


cdef class Shape:
    """A schema with what is needed to make and read its records quickly."""

    def __cinit__(self, schema):
        self.schema = schema
        self.cls = record_class(schema)
        self.make = maker(self.cls)
        self.fields = schema.fields
        self.names = tuple([sys.intern(name) for name in schema.names])  # quick to look up
        self.width = len(self.fields)
        self.bare = self.width == 1 and self.names[0] == "value"
        self.plain = is_plain(self.cls)
        self.slotted = self.plain
        made = self.cls.__dict__.get(SLOTS)
        self.members = None if made is None else tuple(made.values())
        for k, name in enumerate(self.names):
            found = (
                inspect.getattr_static(self.cls, name, None) if made is None else self.members[k]
            )
            if type(found) is not MemberDescriptorType or not is_object_slot(found):
                self.slotted = False
                break
            self.offsets.push_back((<PyMemberDescrObject*><PyObject*>found).d_member.offset)
        self.reusable = (
            self.slotted and not plait_has_weakrefs(self.cls) and not hasattr(self.cls, "__del__")
            and self.cls.__dictoffset__ == 0
            and (made is not None or all_slots_known(self.cls, self.names))
        )

    cdef PyObject** slot(self, object record, Py_ssize_t k) noexcept:
        return <PyObject**>(<char*><PyObject*>record + self.offsets[k])

    cdef object record(self, NativeBatch batch, int64_t i):
        cdef Py_ssize_t k
        if self.slotted:
            made = PyType_GenericAlloc(<PyTypeObject*>self.cls, 0)
            self.fill(made, batch, i)
            return made
        if self.plain:
            made = plait_new(self.cls, NOTHING)  # also makes room for its attributes
            for k in range(self.width):
                PyObject_GenericSetAttr(
                    made, self.names[k], value_at(&batch.batch.columns[k], i)
                )
            return made
        return self.make([value_at(&batch.batch.columns[k], i) for k in range(self.width)])

    cdef object next(self, object last, NativeBatch batch, int64_t i):
        """The record of row i, in the memory of the last one if nobody else holds that."""
        if self.reusable and last is not None and Py_REFCNT(last) == 1:
            self.fill(last, batch, i)
            return last
        return self.record(batch, i)

    cdef int fill(self, object record, NativeBatch batch, int64_t i) except -1:
        cdef Py_ssize_t k
        cdef PyObject** slot
        cdef PyObject* old
        for k in range(self.width):
            value = value_at(&batch.batch.columns[k], i)
            slot = self.slot(record, k)
            old = slot[0]
            Py_INCREF(value)
            slot[0] = <PyObject*>value
            Py_XDECREF(old)
        return 0

    def row(self, NativeBatch batch, int64_t i):
        """The record of one row."""
        if not 0 <= i < batch.batch.length:
            raise IndexError(f"row {i} of a batch of {batch.batch.length}")
        return self.record(batch, i)

    def rows(self, NativeBatch batch, chosen=None):
        """All records of a batch, or those of the chosen rows."""
        self.check(batch)
        cdef int64_t i, first = 0, end = batch.batch.length
        if chosen is not None and not span_of(batch, chosen, &first, &end):
            return [self.row(batch, i) for i in chosen]
        return [self.record(batch, i) for i in range(first, end)]

    def from_records(self, records, bint stop_at_first=False):
        """Records as a batch: (batch, the indices that fit, [(index, error), ...])."""
        cdef RowWriter out = RowWriter(self, len(records))
        cdef int64_t i = 0
        failures = []
        for record in records:
            try:
                out.add(i, record)
            except Exception as error:
                failures.append((i, error))
                if stop_at_first:
                    break
            i += 1
        cdef NativeBatch made = out.finish(NativeBatch())
        made.batch.tags = NULL
        made.batch.tags_owner.reset()
        return made, out.kept(), failures

    cdef int check(self, NativeBatch batch) except -1:
        if <Py_ssize_t>batch.batch.columns.size() != self.width:
            raise ValueError(
                f"{batch.batch.columns.size()} columns came for a schema of {self.width}"
            )
        return 0


cdef bint is_object_slot(object member) noexcept:
    return (<PyMemberDescrObject*><PyObject*>member).d_member.type == OBJECT_SLOT


def is_generated(function):
    """Whether a method was written by the dataclass decorator."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == "<string>"


def is_plain(cls):
    """Whether making a record of a dataclass does no more than set its fields."""
    if SLOTS in cls.__dict__:
        return True
    parameters = cls.__dict__.get("__dataclass_params__")
    pseudo = dataclasses._FIELD_INITVAR
    return (
        type(cls) is type
        and parameters is not None
        and parameters.init
        and is_generated(cls.__dict__.get("__init__"))
        and cls.__new__ is object.__new__
        and not hasattr(cls, "__post_init__")
        and (cls.__setattr__ is object.__setattr__ or is_generated(cls.__setattr__))
        and all(f.init for f in dataclasses.fields(cls))
        and all(f._field_type is not pseudo for f in cls.__dataclass_fields__.values())
    )


def all_slots_known(cls, names):
    """Whether the fields are all the slots there are."""
    slots = set()
    for base in cls.__mro__:
        own = base.__dict__.get("__slots__", ())
        slots.update((own,) if isinstance(own, str) else own)
    return slots == set(names)


def columns_of(NativeBatch batch, indices, chosen=None):
    """The values of some columns, as one list each: of all rows, or of the chosen ones."""
    cdef int64_t i, first = 0, end = batch.batch.length
    cdef bint together = chosen is None or span_of(batch, chosen, &first, &end)
    cdef Py_ssize_t k
    found = []
    for k in indices:
        if not 0 <= k < <Py_ssize_t>batch.batch.columns.size():
            raise IndexError(f"column {k} of a batch of {batch.batch.columns.size()}")
        if together:
            found.append([value_at(&batch.batch.columns[k], i) for i in range(first, end)])
        else:
            found.append([checked_value_at(batch, k, i) for i in chosen])
    return found


cdef bint span_of(NativeBatch batch, chosen, int64_t* first, int64_t* end) except -1:
    """Whether the chosen rows are a range of the batch's; then it is set."""
    if type(chosen) is not range or chosen.step != 1 or not chosen:
        return False
    if chosen.start < 0 or chosen.stop > batch.batch.length:
        return False
    first[0] = chosen.start
    end[0] = chosen.stop
    return True


cdef object checked_value_at(NativeBatch batch, Py_ssize_t k, int64_t i):
    if not 0 <= i < batch.batch.length:
        raise IndexError(f"row {i} of a batch of {batch.batch.length}")
    return value_at(&batch.batch.columns[k], i)
