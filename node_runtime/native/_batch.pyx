"""The native batch as a Python object, and the Arrow PyCapsule protocol at its two ends."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdlib cimport free, malloc
from libcpp.vector cimport vector

from plait.node_runtime.native.declarations.batch cimport (
    ArrowArray, Type, export_batch, import_batch,
)


cdef void free_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef class NativeBatch:
    """Columns of one batch in native memory. Nothing is copied on the way in or out."""

    @staticmethod
    def from_arrow(arrow, schema):
        """Takes a pyarrow RecordBatch whose types are those of `schema.to_arrow()`."""
        cdef vector[Type] types
        for field in schema:
            types.push_back(<Type><int>field.type.code)
        if arrow.num_columns != len(schema):
            raise ValueError(f"{arrow.num_columns} columns came for a schema of {len(schema)}")
        _, capsule = arrow.__arrow_c_array__()
        cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
        cdef NativeBatch made = NativeBatch()
        made.batch.length = array.length
        made.batch.columns = import_batch(array, types)
        return made

    def to_arrow(self, schema):
        """A pyarrow RecordBatch that shares this batch's memory."""
        import pyarrow as pa

        cdef ArrowArray* array = <ArrowArray*>malloc(sizeof(ArrowArray))
        export_batch(self.batch, array)
        capsule = PyCapsule_New(array, "arrow_array", free_array)
        arrow = schema.to_arrow()
        return pa.RecordBatch._import_from_c_capsule(arrow.__arrow_c_schema__(), capsule)

    def __len__(self):
        return self.batch.length

    @property
    def epoch(self):
        return self.batch.epoch

    @property
    def source(self):
        return self.batch.source

    def row_numbers(self):
        """The row number within its source of each row."""
        cdef Py_ssize_t i
        return [self.batch.row_number(i) for i in range(self.batch.length)]
