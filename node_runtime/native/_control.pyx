"""Control items as Python objects, and how one meets state that Python code holds.

A control item rides between two epochs; the caller holds it while it is on its way, and reads it
when it has arrived.
"""

from libc.stdint cimport UINT32_MAX, int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.vector cimport vector

from plait.node_runtime.native._callbacks cimport Callback
from plait.node_runtime.native._outside cimport text_of
from plait.node_runtime.native.declarations.batch cimport BufferRef
from plait.node_runtime.native.declarations.control cimport Bin, Control, ControlKind, Thresholds

SAVE_S = 0.0005
"""Of a turn in which bins are written behind a mark: it may be over by one bin."""


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

    def take_late(self):
        """(operator, bin, bytes) of a bin that was written behind a mark, each once; empty bytes:
        it has no state any more. None: there is none now."""
        cdef uint32_t op = 0, bin = 0
        cdef BufferRef data
        cdef int64_t size = 0
        cdef cbool found
        with nogil:
            found = self.control.get().take_late(op, bin, data, size)
        return (op, bin, (<char*>data.data())[:size] if size else b"") if found else None

    def partial(self):
        """The operators of which only the changes since the checkpoint `since` were given."""
        return set(self.control.get().partial)

    @property
    def since(self):
        return self.control.get().since

    @property
    def hold_ns(self):
        """The longest time for which the mark kept one holder of state from its work at a time."""
        return self.control.get().hold_ns()

    def errors(self):
        cdef size_t i
        cdef Control* c = self.control.get()
        return [c.errors[i].decode() for i in range(c.errors.size())]

    def positions(self):
        """(rows emitted, number of the reader's own position or -1, rows behind that position that
        were emitted) of every source."""
        cdef Control* c = self.control.get()
        return list(zip(c.positions, c.handles, c.skips, strict=True))

    def slices(self):
        """How far the order of time was; empty in any other order."""
        return list(self.control.get().slices)


cdef ControlItem control_item(
    kind, uint32_t op, bins, put, uint64_t number=0, uint64_t since=0
):
    """A new one: a "snapshot", a "mark" (a snapshot for the checkpoint `number`, whose bins may be
    those of the checkpoint `since` where they have not changed), a "take" of `bins` of an operator,
    a "put" of (operator, bin, bytes), or a "keep"."""
    cdef ControlItem item = ControlItem()
    cdef Bin one
    item.control = make_shared[Control]()
    item.control.get().kind = <ControlKind><int>{
        "snapshot": 0, "mark": 0, "take": 1, "keep": 1, "put": 2}[kind]
    if kind == "keep":  # it takes nothing from anyone
        op = UINT32_MAX
    item.control.get().mark = kind == "mark"
    item.control.get().op = op
    item.control.get().number = number
    item.control.get().since = since
    for bin in bins:
        item.control.get().bins.push_back(bin)
    for number, bin, data in put:
        one.op = number
        one.bin = bin
        one.bytes = data
        item.control.get().put.push_back(one)
    return item


cdef int keep_thresholds(ControlItem item, thresholds) except -1:
    """From this item on so much of each query is kept."""
    cdef vector[uint64_t] numbers = thresholds
    item.control.get().keep = <shared_ptr[const Thresholds]>make_shared[Thresholds](numbers)
    return 0


cdef void control_outside(void* context, Control& control) noexcept with gil:
    """Runs a control item on `other`, an object with bins(), copy_bin, take_bin and put_bin; and
    with begin_save and save, if its bins can be written behind a mark."""
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
        if control.kind == ControlKind.Save and control.mark:
            control.last = not hasattr(callback.other, "begin_save")
            if not control.last and callback.other.begin_save(control.number, control.since):
                control.give_changes(op)
            return
        if control.kind == ControlKind.Take:
            if control.op != op:
                return
            wanted = [(b, callback.other.take_bin(b)) for b in control.bins]
        elif control.kind == ControlKind.Save:
            wanted, control.last = callback.other.save(SAVE_S)
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
