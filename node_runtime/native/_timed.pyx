"""The plan of an event-time operator, made from plain numbers (lowering/temporal.py)."""

from libcpp.memory cimport make_shared, shared_ptr
from libcpp.vector cimport vector

from plait.node_runtime.native.declarations.batch cimport Type
from plait.node_runtime.native.declarations.keyed cimport aggregates_into, keys_into
from plait.node_runtime.native.declarations.timed cimport (
    How, SideSpec, TimedKind, TimedOrigin, TimedPlan, TimedSpec, Within,
)

KINDS = {"Window": 0, "Top": 1, "Late": 2, "Last": 3, "Join": 4, "Span": 5, "Running": 6}
WITHIN = {"Nothing": 0, "Grid": 1, "Session": 2, "Rows": 3, "Given": 4, "Between": 5, "AsOf": 6}
HOW = {"Inner": 0, "Left": 1, "Semi": 2, "Anti": 3, "Late": 4}


cdef void fill_side(SideSpec& side, columns, int time):
    for column in columns:
        side.columns.push_back(column)
    side.time = time


cdef class NativeTimedPlan:
    """`types` and `out_types`: of the columns; `keys`: (column, Type); `aggregates`: (kind, column
    or -1, Type, nullable); `origins`: for each source of the job, and each operator that names an
    event time or has windows by arrival, (reaches, timed, out_of_order_us, max_jump_us, sources of
    the operator, idle_us, whether its time is the wall clock);
    `numbers`: by name, the fields of TimedSpec; `sub_bits`: see TimedPlan."""

    def __cinit__(self, *, list types, list out_types, list keys, list aggregates, list origins,
                  dict numbers, unsigned bin_bits, unsigned lane_bits, int sub_bits):
        cdef shared_ptr[TimedPlan] made = make_shared[TimedPlan]()
        cdef TimedSpec* spec = &made.get().spec
        cdef vector[Type] key_types
        cdef TimedOrigin origin
        cdef vector[TimedOrigin] all_origins
        for kind in types:
            spec.types.push_back(<Type><int>kind.code)
        for kind in out_types:
            spec.out_types.push_back(<Type><int>kind.code)
        keys_into(keys, spec.key_columns, key_types)
        aggregates_into(aggregates, spec.aggregates)
        for reaches, timed, out_of_order, max_jump, sources, idle, arrival in origins:
            origin.reaches = reaches
            origin.timed = timed
            origin.out_of_order = out_of_order
            origin.max_jump = max_jump
            origin.of = sources
            origin.idle = idle
            origin.arrival = arrival
            all_origins.push_back(origin)
        spec.kind = <TimedKind><int>KINDS[numbers["kind"]]
        spec.within = <Within><int>WITHIN[numbers.get("within", "Nothing")]
        spec.how = <How><int>HOW[numbers.get("how", "Inner")]
        spec.time = numbers.get("time", -1)
        spec.arrival = numbers.get("arrival", False)
        spec.window_start = numbers.get("window_start", -1)
        spec.window_end = numbers.get("window_end", -1)
        spec.size = numbers.get("size", 0)
        spec.every = numbers.get("every", 0)
        spec.offset = numbers.get("offset", 0)
        spec.gap = numbers.get("gap", 0)
        spec.low = numbers.get("low", 0)
        spec.high = numbers.get("high", 0)
        spec.tolerance = numbers.get("tolerance", 0)
        spec.lateness = numbers.get("lateness", 0)
        spec.early = numbers.get("early", 0)
        spec.ttl = numbers.get("ttl", 0)
        spec.wait = numbers.get("wait", 0)
        spec.k = numbers.get("k", 0)
        spec.by = numbers.get("by", -1)
        spec.greatest = numbers.get("greatest", True)
        spec.ties = numbers.get("ties", False)
        spec.complete = numbers.get("complete", False)
        spec.empty = numbers.get("empty", False)
        spec.side = numbers.get("side", -1)
        spec.span_start = numbers.get("span_start", -1)
        spec.span_end = numbers.get("span_end", -1)
        fill_side(spec.left, numbers.get("left", ()), numbers.get("left_time", -1))
        fill_side(spec.right, numbers.get("right", ()), numbers.get("right_time", -1))
        spec.bin_bits = bin_bits
        spec.lane_bits = lane_bits
        made.get().origins = make_shared[vector[TimedOrigin]](all_origins)
        made.get().sub_bits = sub_bits
        made.get().hash_by(key_types)
        self.plan = made
