from plait.node_runtime.native.declarations.batch cimport Batch


cdef class NativeBatch:
    cdef Batch batch
