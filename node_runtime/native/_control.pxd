# Control items, as the engine's binding uses them: see _control.pyx.
from libc.stdint cimport uint32_t, uint64_t
from libcpp.memory cimport shared_ptr

from plait.node_runtime.native.declarations.control cimport Control


cdef class ControlItem:
    cdef shared_ptr[Control] control


cdef ControlItem control_item(
    kind, uint32_t op, bins, put, uint64_t number=*, uint64_t since=*
)
cdef int keep_thresholds(ControlItem item, thresholds) except -1
cdef void control_outside(void* context, Control& control) noexcept with gil
cdef void hand_over_outside(void* context, Control& control) noexcept with gil
