from plait.node_runtime.native cimport Batch


cdef class NativeBatch:
    cdef Batch batch
