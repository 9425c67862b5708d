"""Native programs of expressions: building them from what `lower` made, and running them.

The engine cimports `NativeProgram` and calls `run` and `run_mask` from its workers without the
GIL. `evaluate` and `mask` run one program over one Arrow batch, for tests and for a closer look.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

from plait.model.schema import Schema, Type as PlainType, arrow_type
from plait.node_runtime.native._batch cimport NativeBatch
from plait.node_runtime.lowering.expressions import case_changes, error_text
from plait.node_runtime.native.declarations.batch cimport (
    ArrowArray, Column, Type, export_column,
)


cdef extern from "plait/kernels/time_text.hpp" namespace "plait" nogil:
    cdef cppclass TimeFormat:
        pass
    shared_ptr[const TimeFormat] make_time_format(
        const string& format, cbool iso, cbool down, const vector[int64_t]& zone, int unit
    ) except +


cdef extern from "plait/kernels/build.hpp" namespace "plait" nogil:
    cdef cppclass ProgramBuilder:
        ProgramBuilder(Type type, int slots, int columns) except +
        void add_int(Type type, int64_t value) except +
        void add_float(double value) except +
        void add_bool(cbool value) except +
        void add_text(Type type, string value) except +
        void add(const string& kernel, int dst, const vector[int]& args, int64_t value) except +
        void set_function(uint64_t address) noexcept
        void set_times(shared_ptr[const TimeFormat] times) noexcept
        void set_members(vector[int64_t] ints, const vector[double]& floats,
                         vector[string] texts) except +
        shared_ptr[Program] finish(int result) except +

    cbool case_tables_filled() noexcept
    void fill_case_tables(const vector[pair[uint32_t, string]]& lower,
                          const vector[pair[uint32_t, string]]& upper) except +


cdef vector[pair[uint32_t, string]] changes(upper) except *:
    cdef vector[pair[uint32_t, string]] found
    for code, text in case_changes(upper):
        found.push_back(pair[uint32_t, string](<uint32_t>code, <string>text))
    return found


cdef Type type_code(kind):
    return <Type><int>kind.code


cdef class NativeProgram:
    """A program in native form. Immutable; any number of threads may run it at once."""

    def __init__(self, lowered):
        cdef ProgramBuilder* builder = new ProgramBuilder(
            type_code(lowered.type), lowered.slots, lowered.columns)
        try:
            for kind, value in lowered.constants:
                if kind is PlainType.FLOAT64:
                    builder.add_float(value)
                elif kind is PlainType.BOOL:
                    builder.add_bool(value)
                elif kind in (PlainType.STRING, PlainType.BYTES):
                    builder.add_text(type_code(kind), <string>value)
                else:
                    builder.add_int(type_code(kind), value)
            for step in lowered.instructions:
                add_step(builder, step)
            self.program = builder.finish(lowered.result)
        finally:
            del builder
        self.lowered = lowered


cdef add_step(ProgramBuilder* builder, step):
    cdef vector[int64_t] ints
    cdef vector[double] floats
    cdef vector[string] texts
    cdef string kernel = step.kernel.encode()
    cdef vector[int] args = step.args
    plain = step.value if isinstance(step.value, int) else 0
    if step.kernel in ("lower_str", "upper_str") and not case_tables_filled():
        fill_case_tables(changes(False), changes(True))
    builder.add(kernel, step.out, args, plain)
    if step.kernel.startswith("call_"):
        builder.set_function(<uint64_t>step.value.address)
    elif step.kernel.startswith("to_timestamp_"):
        format, down, zone, unit = step.value
        texts.push_back(<string>(format or b""))
        ints = zone
        builder.set_times(make_time_format(texts[0], format is None, down, ints, unit))
    elif step.kernel == "is_in_i64":
        ints = step.value
        builder.set_members(ints, floats, texts)
    elif step.kernel == "is_in_f64":
        floats = step.value
        builder.set_members(ints, floats, texts)
    elif step.kernel == "is_in_str":
        texts = step.value
        builder.set_members(ints, floats, texts)


cdef list failures(ErrorRows& errors):
    """Row number and message of each failed row."""
    return [(errors.rows[i].row, error_text(<int>errors.rows[i].code, errors.rows[i].detail))
            for i in range(errors.rows.size())]


cdef void free_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef NativeBatch native(record_batch, NativeProgram program):
    if record_batch.num_columns != program.lowered.columns:
        raise ValueError("the batch is not of the schema that the program was made for")
    return NativeBatch.from_arrow(record_batch, Schema.of(record_batch.schema))


def evaluate(lowered, record_batch, int64_t text_limit=0):
    """The expression's column as a pyarrow array, and the failed rows with their messages."""
    import pyarrow as pa

    cdef NativeProgram program = NativeProgram(lowered)
    cdef NativeBatch batch = native(record_batch, program)
    cdef Workspace ws
    cdef Column out
    cdef ErrorRows errors
    if text_limit:
        ws.text_limit = text_limit
    with nogil:
        run(program.program.get()[0], batch.batch, ws, out, errors)
    cdef ArrowArray* array = <ArrowArray*>malloc(sizeof(ArrowArray))
    export_column(out, array)
    capsule = PyCapsule_New(array, "arrow_array", free_array)
    schema = arrow_type(lowered.type).__arrow_c_schema__()
    return pa.Array._import_from_c_capsule(schema, capsule), failures(errors)


def mask(lowered, record_batch):
    """The predicate as bytes, 1 where it is true, and the failed rows with their messages."""
    cdef NativeProgram program = NativeProgram(lowered)
    cdef NativeBatch batch = native(record_batch, program)
    cdef Workspace ws
    cdef ErrorRows errors
    if lowered.type is not PlainType.BOOL:
        raise ValueError("a predicate is a bool")
    found = bytearray(batch.batch.length)
    cdef uint8_t* to = found
    with nogil:
        run_mask(program.program.get()[0], batch.batch, ws, to, errors)
    return bytes(found), failures(errors)


def filter_arrow(record_batch, masks):
    """The batch after one filter for each mask, and the row numbers that are left."""
    schema = Schema.of(record_batch.schema)
    cdef NativeBatch batch = NativeBatch.from_arrow(record_batch, schema)
    cdef const uint8_t* given
    for one in masks:
        if len(one) != batch.batch.length:
            raise ValueError("the mask is not as long as the batch")
        given = one
        filter_batch(batch.batch, given)
    return batch.to_arrow(schema), batch.row_numbers()


def seconds_to_run(lowered, record_batch, int64_t rounds):
    """Seconds for `rounds` runs over the batch: a stopwatch without Python inside."""
    import time

    cdef NativeProgram program = NativeProgram(lowered)
    cdef NativeBatch batch = native(record_batch, program)
    cdef Workspace ws
    cdef Column out
    cdef ErrorRows errors
    cdef int64_t _i
    cdef const Program* code = program.program.get()
    began = time.perf_counter()
    with nogil:
        for _i in range(rounds):
            errors.rows.clear()
            run(code[0], batch.batch, ws, out, errors)
    return time.perf_counter() - began
