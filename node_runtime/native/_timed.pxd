from libcpp.memory cimport shared_ptr

from plait.node_runtime.native.declarations.timed cimport TimedPlan


cdef class NativeTimedPlan:
    cdef shared_ptr[TimedPlan] plan
