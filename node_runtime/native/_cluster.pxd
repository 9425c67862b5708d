from libcpp.memory cimport unique_ptr

from plait.node_runtime.native.declarations.cluster cimport Cluster, Heart


cdef class NativeCluster:
    cdef unique_ptr[Cluster] cluster
    cdef object engine  # keeps what the links hand frames to


cdef class NativeHeart:
    cdef Heart heart
