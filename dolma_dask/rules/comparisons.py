"""Comparisons of a value with a number, as bounds of that value."""

from dolma_dask.rules.rules import Compare, Rule
from dolma_dask.rules.values import Literal, Value

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""Operators with their operands exchanged."""


def comparison(rule: Rule) -> tuple[Value, str, float] | None:
    """Return the value, the operator as it reads with the value on its left, and the number; None if the rule is no such comparison."""
    match rule:
        case Compare(sign, Literal(number, kind="number"), value) if not isinstance(value, Literal):
            return value, MIRRORED[sign], float(number)
        case Compare(sign, value, Literal(number, kind="number")) if not isinstance(value, Literal):
            return value, sign, float(number)
    return None
