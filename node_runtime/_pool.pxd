from libcpp.memory cimport shared_ptr

from plait.node_runtime.native_pool cimport PoolLanes, PoolOutside


cdef class NativeWay:
    cdef shared_ptr[PoolOutside] outside


cdef class NativeLanes:
    cdef shared_ptr[PoolLanes] lanes
