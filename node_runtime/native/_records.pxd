# What other Cython modules use of the records: see _records.pyx.
cimport cython
from cpython.array cimport array
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t
from libcpp.vector cimport vector

from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.native.declarations.batch cimport BufferRef, Column, Type


cdef object value_at(Column* column, int64_t i)
cdef array rows_array(vector[uint32_t]& rows)
cpdef place(NativeBatch made, NativeBatch given, rows)


@cython.final
cdef class ColumnWriter:
    cdef object field
    cdef object declared  # the type of an object column that values are checked for, or None
    cdef Type kind
    cdef bint nullable, has_null
    cdef BufferRef data, offsets, validity
    cdef int64_t room, byte_room

    cdef int grow(self, int64_t room) except -1
    cdef int grow_bytes(self, int64_t used, int64_t room) except -1
    cdef int put(self, int64_t at, object value) except -1
    cdef int put_null(self, int64_t at) except -1
    cdef int put_bytes(self, int64_t at, const char* data, int64_t size) except -1
    cdef Column column(self, int64_t rows)


@cython.final
cdef class Shape:
    cdef readonly object schema
    cdef readonly object cls
    cdef object make
    cdef tuple fields, names
    cdef tuple members  # of a class made by plait: its slots in the order of the columns, or None
    cdef Py_ssize_t width
    cdef vector[Py_ssize_t] offsets
    cdef readonly bint plain  # making a record does no more than set its fields
    cdef readonly bint slotted  # the fields are in slots, at known offsets
    cdef readonly bint reusable  # a record that only we hold can be filled again unnoticed
    cdef bint bare  # the one column is "value"

    cdef PyObject** slot(self, object record, Py_ssize_t k) noexcept
    cdef object record(self, NativeBatch batch, int64_t i)
    cdef object next(self, object last, NativeBatch batch, int64_t i)
    cdef int fill(self, object record, NativeBatch batch, int64_t i) except -1
    cdef int check(self, NativeBatch batch) except -1


@cython.final
cdef class RowWriter:
    cdef Shape shape
    cdef list writers
    cdef int64_t room
    cdef readonly int64_t count
    cdef vector[uint32_t] rows

    cdef int add(self, int64_t row, object record) except -1
    cdef int put(self, object record) except -1
    cdef int back(self, int64_t count) except -1
    cdef NativeBatch finish(self, NativeBatch given)
    cdef array kept(self)
