"""Usual JSONPath filters as rules over columns: 50 times faster than looking at one document after the other.

Compiled are paths of keys and indexes, and conditions on the document, its attributes or its metadata that compare such paths with
literals, or two numbers with each other. Everything else is left to `dolma_dask.rules.jsonpath`, which means the same.
"""

from collections.abc import Sequence

import pyarrow as pa

from dolma_dask.rules.jsonpath_nodes import (
    Both,
    Condition,
    Constant,
    Either,
    Exists,
    Field,
    Index,
    Length,
    No,
    Operand,
    Path,
    Step,
    Test,
    Where,
)
from dolma_dask.rules.row_columns import ATTRIBUTES, Found, RowKinds, Steps, compare, count_of, find_column
from dolma_dask.rules.rules import Compare, Membership, Missing, Not, Rule, all_of, any_of
from dolma_dask.rules.rules import Constant as Always
from dolma_dask.rules.values import Literal

_ORDER = ("<", "<=", ">", ">=")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


class _NoColumnError(Exception):
    """Some part has no form over columns."""


def compile_path(path: Path, kinds: RowKinds) -> Rule | None:
    """Return a rule that keeps the rows in which the path leads to something; None if there is no such rule."""
    plain = _plain(path.steps)
    others = path.steps[len(plain) :]
    try:
        if not others:
            return _found(plain, kinds).there
        if len(others) == 1 and isinstance(others[0], Where) and plain in ((), (ATTRIBUTES,), ("metadata",)):
            rule = _condition(others[0].condition, plain, kinds)
            return rule if _is_there(plain, kinds) or not _holds_for_nothing(rule) else None
    except _NoColumnError:
        pass
    return None


def _plain(steps: Sequence[Step]) -> tuple[str | int, ...]:
    """Return the leading steps that go to one value each."""
    plain: list[str | int] = []
    for step in steps:
        match step:
            case Field((name,)):
                plain.append(name)
            case Index((place,)):
                plain.append(place)
            case _:
                break
    return tuple(plain)


def _is_there(base: Steps, kinds: RowKinds) -> bool:
    return not base or (base == (ATTRIBUTES,) and kinds.always)


def _holds_for_nothing(rule: Rule) -> bool:
    """Tell whether a rule keeps a row that has none of its columns; a document without metadata matches no filter on it."""
    if not rule.names:
        return True
    try:
        return bool(rule.mask({name: pa.nulls(1) for name in rule.names})[0].as_py())
    except Exception:  # noqa: BLE001 - null columns of spans cannot be looked into: take the careful way
        return True


def _found(steps: Steps, kinds: RowKinds) -> Found:
    found = find_column(steps, kinds)
    if found is None:
        raise _NoColumnError
    return found


def _condition(condition: Condition, base: Steps, kinds: RowKinds) -> Rule:
    match condition:
        case Exists(Path() as path):
            return _found(_steps(path, base), kinds).there
        case Exists(Constant()):
            return Always(True)
        case No(inner):
            return Not(_condition(inner, base, kinds))
        case Both(parts):
            return all_of(*(_condition(part, base, kinds) for part in parts))
        case Either(parts):
            return any_of(*(_condition(part, base, kinds) for part in parts))
        case Test(sign, left, right):
            return _test(sign, left, right, base, kinds)
    raise _NoColumnError


def _steps(path: Path, base: Steps) -> Steps:
    plain = _plain(path.steps)
    if len(plain) != len(path.steps):
        raise _NoColumnError
    return plain if path.from_row else (*base, *plain)


def _test(sign: str, left: Operand, right: Operand, base: Steps, kinds: RowKinds) -> Rule:
    if isinstance(left, Constant) and isinstance(right, Path) and sign in _MIRRORED:
        return _test(_MIRRORED[sign], right, left, base, kinds)
    if not isinstance(left, Path):
        raise _NoColumnError
    if isinstance(right, Path):
        return _two_paths(sign, left, right, base, kinds)
    if left.steps and isinstance(left.steps[-1], Length):
        return _length(sign, Path(left.from_row, left.steps[:-1]), right, base, kinds)
    found = _found(_steps(left, base), kinds)
    if right.value is None:
        raise _NoColumnError  # null and nothing are one in a column
    if sign in ("in", "nin"):
        return _membership(sign, found, right.value)
    if sign not in _MIRRORED:
        raise _NoColumnError
    return _literal(sign, found, right.value)


def _literal(sign: str, found: Found, value: object) -> Rule:
    if sign == "!=":
        return Not(_literal("==", found, value))
    rule = compare(sign, found, value)
    if rule is None and isinstance(value, list):
        raise _NoColumnError
    if rule is None and sign in (
        "<=",
        ">=",
    ):  # equal strings are neither less nor greater, but they are equal
        return _literal("==", found, value)
    return Always(False) if rule is None else rule


def _two_paths(sign: str, left: Path, right: Path, base: Steps, kinds: RowKinds) -> Rule:
    ours, theirs = (_found(_steps(path, base), kinds) for path in (left, right))
    if sign not in _ORDER or (ours.kind, theirs.kind) != ("number", "number") or "=" in sign:
        raise _NoColumnError  # two missing values are equal
    return Compare(sign, ours.value, theirs.value)


def _length(sign: str, path: Path, right: Constant, base: Steps, kinds: RowKinds) -> Rule:
    count = count_of(_found(_steps(path, base), kinds), zero_if_missing=False)
    if count is None or sign not in _MIRRORED:
        raise _NoColumnError
    return _literal(sign, Found("number", count, Missing(count, negated=True)), right.value)


def _membership(sign: str, found: Found, values: object) -> Rule:
    kinds = {"number": (int, float), "string": (str,)}.get(found.kind, ())
    if not isinstance(values, list) or not all(
        isinstance(item, kinds) and not isinstance(item, bool) for item in values
    ):
        raise _NoColumnError
    return Membership(found.value, tuple(map(Literal, values)), negated=sign == "nin")
