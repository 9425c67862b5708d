"""Control items as Python objects, and how one meets state that Python code holds.

A control item rides between two epochs; the caller holds it while it is on its way, and reads it
when it has arrived.
"""

from libc.stdint cimport uint32_t
from libcpp.memory cimport make_shared

from plait.node_runtime.native._callbacks cimport Callback
from plait.node_runtime.native._outside cimport text_of
from plait.node_runtime.native.declarations.control cimport Bin, Control, ControlKind


cdef class ControlItem:
    """A control item on its way through a running engine."""

    @property
    def epoch(self):
        return self.control.get().epoch

    def bins(self):
        """(operator, bin, bytes) of every bin that was collected."""
        cdef size_t i
        cdef Control* c = self.control.get()
        return [(c.collected[i].op, c.collected[i].bin, <bytes>c.collected[i].bytes)
                for i in range(c.collected.size())]

    def errors(self):
        cdef size_t i
        cdef Control* c = self.control.get()
        return [c.errors[i].decode() for i in range(c.errors.size())]

    def positions(self):
        """(rows emitted, number of the reader's own position or -1) of every source."""
        return list(zip(self.control.get().positions, self.control.get().handles, strict=True))


cdef ControlItem control_item(kind, uint32_t op, bins, put):
    """A new one: a "snapshot", a "take" of `bins` of an operator, or a "put" of (operator, bin,
    bytes)."""
    cdef ControlItem item = ControlItem()
    cdef Bin one
    item.control = make_shared[Control]()
    item.control.get().kind = <ControlKind><int>{"snapshot": 0, "take": 1, "put": 2}[kind]
    item.control.get().op = op
    for bin in bins:
        item.control.get().bins.push_back(bin)
    for number, bin, data in put:
        one.op = number
        one.bin = bin
        one.bytes = data
        item.control.get().put.push_back(one)
    return item


cdef void control_outside(void* context, Control& control) noexcept with gil:
    """Runs a control item on `other`, an object with bins(), copy_bin, take_bin and put_bin."""
    cdef Callback callback = <Callback>context
    cdef uint32_t op = callback.other.number
    cdef size_t i
    cdef Bin bin
    try:
        if control.kind == ControlKind.Put:
            for i in range(control.put.size()):
                if control.put[i].op == op:
                    callback.other.put_bin(<bytes>control.put[i].bytes)
            return
        if control.kind == ControlKind.Take:
            if control.op != op:
                return
            wanted = [(b, callback.other.take_bin(b)) for b in control.bins]
        else:
            wanted = [(b, callback.other.copy_bin(b)) for b in callback.other.bins()]
        for number, data in wanted:
            bin.op = op
            bin.bin = number
            bin.bytes = data
            control.collect(bin)
    except BaseException as error:
        control.refuse(text_of(error).encode("utf-8", "replace"))


cdef void hand_over_outside(void* context, Control& control) noexcept with gil:
    """Takes all bins out of `other`, or refuses and leaves them there."""
    cdef Callback callback = <Callback>context
    cdef Bin bin
    try:
        states = callback.other
        wanted = [(b, states.copy_bin(b)) for b in states.bins()]
        for number, data in wanted:
            bin.op = states.number
            bin.bin = number
            bin.bytes = data
            control.collect(bin)
        for number, _ in wanted:
            states.discard_bin(number)
    except BaseException as error:
        control.refuse(text_of(error).encode("utf-8", "replace"))
