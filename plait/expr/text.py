"""Expressions as a user would write them, for messages and `explain()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.expr.tree import Expr

SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "^",
    "shl": "<<",
    "shr": ">>",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&",
    "or": "|",
}
PREFIXES = {"neg": "-", "not": "~"}
DEEPEST_TEXT = 8
WRAP = "wrap"
"""The value of int64 arithmetic that wraps around."""


def text(expr: Expr, depth: int = 0, tight: bool = False, wraps: bool = False) -> str:
    """The expression as a user would write it; what lies very deep is left out.

    `tight` puts an operator in parentheses, because another one stands beside it; `wraps` says that
    it stands inside `wrapping(...)`.
    """
    if depth > DEEPEST_TEXT:
        return "..."
    if expr.value == WRAP and expr.op not in ("lit", "col") and not wraps:
        return f"wrapping({text(expr, depth, False, True)})"
    inside = expr.op in SIGNS or expr.op in PREFIXES
    args = [
        text(arg, depth + 1, inside or place == 0, wraps) for place, arg in enumerate(expr.args)
    ]
    match expr.op:
        case "col":
            return f'col("{expr.value}")'
        case "lit":
            return repr(expr.value)
        case "when":
            args = [text(arg, depth + 1, wraps=wraps) for arg in expr.args]
            cases = zip(args[0:-1:2], args[1::2], strict=True)
            chain = ".".join(f"when({condition}).then({value})" for condition, value in cases)
            return f"{chain}.otherwise({args[-1]})"
        case "call":
            args = [text(arg, depth + 1, wraps=wraps) for arg in expr.args]
            return f"{getattr(expr.value, '__name__', 'function')}({', '.join(args)})"
        case op if op in SIGNS and len(args) == 2:
            inner = f"{args[0]} {SIGNS[op]} {args[1]}"
            return f"({inner})" if tight else inner
        case op if op in PREFIXES and len(args) == 1:
            return f"{PREFIXES[op]}{args[0]}"
        case op:
            own = [] if expr.value in (None, WRAP) else [shown(op, expr.value)]
            return f"{args[0] if args else ''}.{op}({', '.join(args[1:] + own)})"


def shown(op: str, value: Any) -> str:
    if op == "is_in" and len(value) > 6:
        return f"[{', '.join(map(repr, value[:5]))}, ... {len(value)} values]"
    if op == "is_in":
        return repr(list(value))
    if op == "to_timestamp":
        return str(value.arguments())
    return f'"{value}us"' if op == "truncate" else repr(value)
