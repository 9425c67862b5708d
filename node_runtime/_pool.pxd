from libcpp.memory cimport shared_ptr

from plait.node_runtime.native_pool cimport PoolOutside


cdef class NativeWay:
    cdef shared_ptr[PoolOutside] outside
