from libcpp.memory cimport shared_ptr

from plait.node_runtime.native.declarations.pool cimport PoolLanes, PoolOutside, PoolUser


cdef class NativeUser:
    cdef shared_ptr[PoolUser] user


cdef class NativeWay(NativeUser):
    cdef shared_ptr[PoolOutside] outside


cdef class NativeLanes(NativeUser):
    cdef shared_ptr[PoolLanes] lanes
