"""Expressions to programs: a bound tree becomes a flat list of kernel calls over registers.

The result is plain data; `_kernels.NativeProgram` turns it into a native program once. The walk
uses no recursion, computes a part that is used twice once, and leaves out what nobody uses. Errors
of a part that only some rows use (a branch of `when`, the second of `fill_null`) sit in a scope,
so that a row fails only by values it needs. The kernels are named operation_type; their table is
`include/plait/kernels_table.hpp`.

    >>> from plait.expr.tree import col
    >>> [i.kernel for i in lower(col("k") * 31 + 7, Schema.of({"k": int})).instructions]
    ['load_i64', 'muladd_i64']
"""

from __future__ import annotations

import datetime
from collections.abc import Generator, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plait.errors import JobError
from plait.expr.text import WRAP, text
from plait.expr.tree import WRAPPED, Expr, type_of_constant
from plait.expr.type_checker import bind
from plait.model.durations import signed_microseconds
from plait.model.records import microseconds_of
from plait.model.schema import INT64_MIN, Schema, Type
from plait.node_runtime.lowering.time_zones import zone_numbers

if TYPE_CHECKING:
    from plait.expr.time_reading import TimeReading

WORDS = {
    Type.INT64: "i64",
    Type.TIMESTAMP: "i64",
    Type.FLOAT64: "f64",
    Type.BOOL: "bool",
    Type.STRING: "str",
    Type.BYTES: "str",
    Type.OBJECT: "str",
}
MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
COMMUTATIVE = {"add", "mul", "bit_and", "bit_or", "bit_xor"}
TIME_PARTS = {"year", "month", "day", "hour", "minute", "second"}
MAY_FAIL = {
    "add_i64",
    "sub_i64",
    "mul_i64",
    "muladd_i64",
    "neg_i64",
    "abs_i64",
    "floordiv_i64",
    "wrapping_floordiv_i64",
    "mod_i64",
    "truncate_i64",
    "to_timestamp_str",
    "to_timestamp_i64",
    "to_timestamp_f64",
    "cast_f64_i64",
    "cast_str_i64",
    "cast_str_f64",
    "cast_str_bool",
    "cast_bytes_str",
    "cast_time_str",
    "concat_str",
    "lower_str",
    "upper_str",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One kernel call. An argument is a slot, or ~i for constant i."""

    kernel: str
    out: int
    args: tuple[int, ...]
    value: Any = None
    """What the kernel needs beside its arguments: a column, a shift, a set, a function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A program as data."""

    type: Type
    nullable: bool
    passthrough: int | None
    """The input column that the whole expression is, if it is one."""
    instructions: tuple[Instruction, ...]
    constants: tuple[tuple[Type, Any], ...]
    """Types and values; a timestamp in microseconds, a string as UTF-8 bytes."""
    slots: int
    result: int
    columns: int
    """How many columns the schema has: the native side trusts the column numbers."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A typed value: of a register (numbered as computed, not yet a slot), or a constant, ~i."""

    type: Type
    register: int

    @property
    def constant(self) -> bool:
        return self.register < 0

    @property
    def word(self) -> str:
        return WORDS[self.type]


Lowering = Generator[Expr, Operand, Operand]


def lower(expr: Expr, schema: Schema) -> Lowered:
    """The program of an expression over batches of a schema."""
    bound = bind(expr, schema)
    if bound.type is None:
        raise JobError(f"{text(expr)} has no type; write lit(None).cast(int)")
    builder = Builder(schema)
    result = builder.build(bound.expr)
    code, slots, place = allocate(builder.code, result.register, builder.covered)
    return Lowered(
        type=bound.type,
        nullable=bound.nullable,
        passthrough=schema.index(bound.expr.value) if bound.expr.op == "col" else None,
        instructions=code,
        constants=tuple(builder.constants),
        slots=slots,
        result=place,
        columns=len(schema),
    )


class Builder:
    """Emits instructions whose slots are still one for each value computed."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.code: list[Instruction] = []
        self.constants: list[tuple[Type, Any]] = []
        self.producers: dict[int, Instruction] = {}
        self.registers = 0
        # Products that a product and sum computes again and checks.
        self.covered: set[int] = set()
        # What is already computed, innermost scope last: a value made inside a scope whose errors
        # may be dropped is no substitute for the same value outside of it.
        self.known: list[dict[Any, Any]] = [{}]

    def build(self, root: Expr) -> Operand:
        """Drives the generators of `lowering`, which yield the parts they need."""
        stack = [(root, self.lowering(root))]
        answer: Operand | None = None
        while stack:
            expr, steps = stack[-1]
            try:
                wanted = steps.send(answer) if answer is not None else next(steps)
            except StopIteration as done:
                stack.pop()
                answer = done.value
                self.known[-1].setdefault(id(expr), answer)
                continue
            answer = self.recall(id(wanted))
            if answer is None:
                stack.append((wanted, self.lowering(wanted)))
        assert answer is not None
        return answer

    def recall(self, key: Any) -> Any:
        return next((known[key] for known in self.known if key in known), None)

    def emit(self, kernel: str, kind: Type, args: Sequence[Operand], value: Any = None) -> Operand:
        registers = tuple(arg.register for arg in args)
        key = (kernel, registers, id(value) if kernel.startswith(("call", "is_in")) else value)
        register = self.recall(key)
        if register is None:
            register = self.registers
            self.registers += 1
            step = Instruction(kernel=kernel, out=register, args=registers, value=value)
            self.code.append(step)
            self.producers[register] = step
            self.known[-1 if self.can_fail(step) else 0][key] = register
        return Operand(kind, register)

    def can_fail(self, step: Instruction) -> bool:
        if step.kernel.endswith(("floordiv_i64", "mod_i64")) and step.args[1] < 0:
            divisor = self.constants[~step.args[1]][1]
            return divisor == 0 or (divisor == -1 and step.kernel == "floordiv_i64")
        return step.kernel in MAY_FAIL

    def constant(self, kind: Type, value: Any) -> Operand:
        held = hold(kind, value)
        key = (kind, repr(held))  # by its text: 0.0 and -0.0 are two constants, nan is one
        place = self.known[0].setdefault(key, len(self.constants))
        if place == len(self.constants):
            self.constants.append((kind, held))
        return Operand(kind, ~place)

    def vector(self, arg: Operand) -> Operand:
        """The operand as a full register, for kernels that take no constants."""
        return self.emit(f"spread_{arg.word}", arg.type, [arg]) if arg.constant else arg

    def lowering(self, expr: Expr) -> Lowering:
        match expr.op:
            case "col":
                field = self.schema[expr.value]
                place = self.schema.index(expr.value)
                return self.emit(f"load_{WORDS[field.type]}", field.type, [], place)
            case "lit":
                kind = type_of_constant(expr.value)
                assert kind is not None, "a bound null is inside a cast"
                return self.constant(kind, expr.value)
            case "cast" if expr.args[0].op == "lit" and expr.args[0].value is None:
                return self.emit(f"null_{WORDS[expr.value]}", expr.value, [])
            case "when":
                return (yield from self.when(expr))
            case "fill_null":
                return (yield from self.fill_null(expr))
        args = []
        for arg in expr.args:
            args.append((yield arg))
        return self.apply(expr, args)

    def when(self, expr: Expr) -> Lowering:
        """Each value counts where its condition is true, what follows where it is not."""
        chosen: list[tuple[Operand, Operand]] = []
        opened: list[tuple[int, Operand]] = []
        for i in range(0, len(expr.args) - 1, 2):
            condition = self.vector((yield expr.args[i]))
            mark = self.open_scope()
            value = self.vector((yield expr.args[i + 1]))
            self.close_scope(mark, condition, 1)
            chosen.append((condition, value))
            opened.append((self.open_scope(), condition))
        result = self.vector((yield expr.args[-1]))
        for mark, condition in reversed(opened):
            self.close_scope(mark, condition, 0)
        for condition, value in reversed(chosen):
            result = self.emit(f"select_{value.word}", value.type, [condition, value, result])
        return result

    def fill_null(self, expr: Expr) -> Lowering:
        first = self.vector((yield expr.args[0]))
        absent = self.emit("is_null", Type.BOOL, [first])
        mark = self.open_scope()
        second = self.vector((yield expr.args[1]))
        self.close_scope(mark, absent, 1)
        return self.emit(f"fill_null_{first.word}", first.type, [first, second])

    def open_scope(self) -> int:
        self.known.append({})
        self.code.append(Instruction(kernel="scope_begin", out=-1, args=()))
        return len(self.code) - 1

    def close_scope(self, mark: int, condition: Operand, keep: int) -> None:
        """Ends a scope; one in which nothing can fail leaves no trace."""
        inner = self.known.pop()
        if any(self.can_fail(step) for step in self.code[mark + 1 :]):
            end = Instruction(kernel="scope_end", out=-1, args=(condition.register,), value=keep)
            self.code.append(end)
        else:
            del self.code[mark]
            self.known[-1].update(inner)

    def apply(self, expr: Expr, args: list[Operand]) -> Operand:
        op, first = expr.op, args[0]
        if op in MIRRORED:
            return self.compare(op, *args)
        if op == "add" and first.type in (Type.STRING, Type.BYTES):
            return self.emit("concat_str", first.type, self.one_vector(args))
        if op in ("shl", "shr"):
            return self.emit(f"{op}_i64", Type.INT64, [self.vector(first)], expr.args[1].value)
        if op in ("contains", "startswith", "endswith"):
            return self.emit(f"{op}_str", Type.BOOL, self.one_vector(args))
        if op == "cast":
            return self.cast(first, expr.value)
        if len(args) == 2 and op not in ("and", "or", "call"):
            return self.arithmetic(op, args[0], args[1], wraps=expr.value == WRAP)
        args = [self.vector(arg) for arg in args]
        match op:
            case "and" | "or" | "not" | "is_nan":
                return self.emit(f"{op}_{args[0].word}", Type.BOOL, args)
            case "is_null":
                return self.emit("is_null", Type.BOOL, args)
            case "is_in":
                return self.emit(f"is_in_{first.word}", Type.BOOL, args, members(first, expr.value))
            case "length":
                word = "bytes" if first.type is Type.BYTES else "str"
                return self.emit(f"length_{word}", Type.INT64, args)
            case "neg" | "abs" | "lower" | "upper" | "strip":
                wraps = "wrapping_" if expr.value == WRAP and first.word == "i64" else ""
                return self.emit(f"{wraps}{op}_{first.word}", first.type, args)
            case "truncate":
                return self.emit("truncate_i64", Type.TIMESTAMP, args, int(expr.value))
            case "to_timestamp":
                reading = time_numbers(expr.value)
                return self.emit(f"to_timestamp_{first.word}", Type.TIMESTAMP, args, reading)
            case "call":
                kind: Type = expr.value.result_type
                return self.emit(f"call_{WORDS[kind]}", kind, args, expr.value)
        assert op in TIME_PARTS, op
        return self.emit(f"{op}_i64", Type.INT64, args)

    def one_vector(self, args: Sequence[Operand]) -> list[Operand]:
        """The arguments with at most one constant among two."""
        if all(arg.constant for arg in args):
            return [self.vector(args[0]), *args[1:]]
        return list(args)

    def compare(self, op: str, a: Operand, b: Operand) -> Operand:
        a, b = self.one_vector([a, b])
        if a.constant:
            a, b, op = b, a, MIRRORED[op]
        return self.emit(f"{op}_{a.word}", Type.BOOL, [a, b])

    def arithmetic(self, op: str, a: Operand, b: Operand, wraps: bool) -> Operand:
        kind = a.type
        prefix = "wrapping_" if wraps and a.word == "i64" and op in WRAPPED else ""
        if op == "sub" and a.type is b.type is Type.TIMESTAMP:
            kind = Type.INT64
        a, b = self.one_vector([a, b])
        if a.constant and op in COMMUTATIVE:
            a, b = b, a
        if op in ("add", "sub") and a.word in ("i64", "f64") and b.constant:
            product = self.producers[a.register]
            if product.kernel == f"{prefix}mul_{a.word}" and product.args[1] < 0:
                plus = self.constants[~b.register][1]
                if prefix or a.word == "f64" or (op, plus) != ("sub", INT64_MIN):
                    kernel = f"{prefix}muladd_{a.word}"
                    return replace(self.multiply_and_add(kernel, op, product, plus), type=kind)
        return self.emit(f"{prefix}{op}_{a.word}", kind, [a, b])

    def multiply_and_add(self, kernel: str, op: str, product: Instruction, plus: Any) -> Operand:
        """Both in one kernel, which checks both: half the passes of the most common pair."""
        integer = kernel.endswith("i64")
        kind = Type.INT64 if integer else Type.FLOAT64
        if op == "sub":
            plus = wrap(-plus) if integer else -plus
        factors = [Operand(kind, register) for register in product.args]
        self.covered.add(product.out)
        value = int(op == "sub") if kernel == "muladd_i64" else None
        return self.emit(kernel, kind, [*factors, self.constant(kind, plus)], value)

    def cast(self, arg: Operand, target: Type) -> Operand:
        pair = (arg.type, target)
        if pair == (Type.INT64, Type.FLOAT64) and arg.constant:
            return self.constant(target, float(self.constants[~arg.register][1]))
        if arg.word == WORDS[target] and pair != (Type.BYTES, Type.STRING):
            return replace(arg, type=target)
        arg = self.vector(arg)
        source = {Type.TIMESTAMP: "time", Type.BYTES: "bytes"}.get(arg.type, arg.word)
        return self.emit(f"cast_{source}_{WORDS[target]}", target, [arg])


def allocate(
    code: Sequence[Instruction], result: int, covered: AbstractSet[int] = frozenset()
) -> tuple[tuple[Instruction, ...], int, int]:
    """The code without unused values, in as few slots as it needs, their number, the result's. An
    unused value stays if it may fail, unless another one that is used `covered` it."""
    used = {result}
    live: list[Instruction] = []
    for step in reversed(code):
        fails = step.kernel in MAY_FAIL and step.out not in covered
        if step.out in used or step.out < 0 or fails:
            used.update(step.args)
            live.append(step)
    live.reverse()
    last_use = {arg: i for i, step in enumerate(live) for arg in (step.out, *step.args)}
    last_use[result] = len(live)
    slot_of: dict[int, int] = {}
    free: list[int] = []
    slots = 0
    placed: list[Instruction] = []
    for i, step in enumerate(live):
        args = tuple(slot_of[arg] if arg >= 0 else arg for arg in step.args)
        out = step.out
        if out >= 0:
            # Taken before the arguments' slots are given back: no kernel writes over its input.
            slots += not free
            out = slot_of[step.out] = free.pop() if free else slots - 1
        placed.append(replace(step, out=out, args=args))
        ended = {arg for arg in (step.out, *step.args) if arg >= 0 and last_use[arg] == i}
        free.extend(slot_of[arg] for arg in sorted(ended))
    return tuple(placed), slots, slot_of[result] if result >= 0 else result


def wrap(value: int) -> int:
    return (value - INT64_MIN) % 2**64 + INT64_MIN


def hold(kind: Type, value: Any) -> Any:
    """A constant as the native side keeps it."""
    if isinstance(value, datetime.timedelta):
        return signed_microseconds(value)
    if isinstance(value, datetime.datetime):
        return microseconds_of(value)
    if isinstance(value, str):
        return value.encode()
    return float(value) if kind is Type.FLOAT64 else value


def members(arg: Operand, options: Iterable[Any]) -> Any:
    """The set of `is_in`: distinct held constants; of bools bit 0 for false, bit 1 for true."""
    held = [hold(arg.type, option) for option in options if option is not None]
    if arg.type is Type.BOOL:
        return (False in held) + 2 * (True in held)
    if arg.type is Type.FLOAT64:
        held = [value + 0.0 for value in held if value == value]  # nan is in no set; -0.0 is 0.0
    return tuple(dict.fromkeys(held))


ERRORS = {
    1: "integer division by zero",
    2: "cannot cast {} to int64",
    3: "cannot cast {} to float64",
    4: "cannot cast {} to bool",
    5: "cannot cast {} to int64",
    6: "cannot cast {} to string",
    7: "text too long: a batch's column holds 2 GiB",
    8: "integer modulo by zero",
    9: "cannot cast {} to string",
    10: "integer overflow: {} does not fit int64",
    11: "cannot read {} as a timestamp",
    12: '{} has no time zone; write to_timestamp(tz="UTC") or the name of its zone',
    13: '{} is finer than a microsecond; to_timestamp(rounding="down") cuts it',
    14: "{} does not exist in its time zone: the clocks were put forward",
    15: "{} is outside the years 1900 to 2099, for which the rules of its time zone are known",
    16: "{} is outside the years 1 to 9999",
    17: '{} is finer than a microsecond; to_timestamp(rounding="down") cuts it',
    18: "{} is outside the years 1 to 9999",
}
SHOWN_AS_TEXT = (2, 3, 4, 11, 12, 13, 14, 15, 16)
TIME_UNITS = ("s", "ms", "us", "ns")


def time_numbers(reading: TimeReading) -> tuple[bytes | None, bool, tuple[int, ...], int]:
    """How times are read, in plain form: format, round down, zone, and the number of the unit."""
    format = None if reading.format is None else reading.format.encode()
    unit = 0 if reading.unit is None else TIME_UNITS.index(reading.unit)
    return format, reading.rounding == "down", zone_numbers(reading.tz), unit


def error_text(code: int, detail: bytes) -> str:
    """What a failed row says: the native code and the value it could not use."""
    if code in SHOWN_AS_TEXT:
        return ERRORS[code].format(repr(detail.decode(errors="replace")))
    return ERRORS[code].format(repr(detail) if code == 6 else detail.decode())


def case_changes(upper: bool) -> list[tuple[int, bytes]]:
    """Every character that changes case by itself, with the UTF-8 of what it becomes."""
    change = str.upper if upper else str.lower
    found = []
    for first in range(0, 0x110000, 256):
        block = "".join(map(chr, range(first, first + 256)))
        if change(block) != block:
            found += [(ord(c), change(c).encode()) for c in block if change(c) != c]
    return found
