"""The values inside of rules: columns, literals, arithmetic; and what they share with the rules around them."""

import keyword
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import ExpressionError
from dolma_dask.formats.exact_numbers import EXACT, LIMIT, REST, as_exact, inexact, nearest
from dolma_dask.formats.exact_numbers import integers as integers_of
from dolma_dask.text import compute as pc

WIDE_INTEGER = REST
"""Holds every int64, every uint64, and every literal of 38 digits."""


class Operand(Struct, frozen=True):
    """An evaluated value: an array (n,) or a scalar, its kind, and how messages call it."""

    data: Any
    kind: str
    called: str


def load(column: pa.Array) -> tuple[Any, str]:
    """Return a column in the types that the operators work on, and its kind."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    of = column.type
    if pa.types.is_dictionary(of):
        column, of = column.dictionary_decode(), of.value_type
    if pa.types.is_null(of):
        return column, "missing"
    if of == EXACT:
        if inexact(column).any():
            return column, "number"
        column, of = nearest(column), pa.float64()
    if pa.types.is_integer(of):
        return column, "number"
    if pa.types.is_floating(of) or pa.types.is_decimal(of):
        return without_nan(column.cast(pa.float64(), safe=False)), "number"
    if pa.types.is_boolean(of):
        return column, "bool"
    if pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of):
        return column.cast(pa.large_string()), "string"
    return column, str(of)


def number_scalar(value: Any) -> pa.Scalar:
    """Return a literal number; integers in a type that holds them exactly."""
    if isinstance(value, float):
        return pa.scalar(value, pa.float64())
    return pa.scalar(value, pa.int64() if -(2**63) <= value < 2**63 else WIDE_INTEGER)


def doubles(data: Any) -> Any:
    """Return numbers, a column or a scalar, as float64."""
    return nearest(data).cast(pa.float64(), safe=False)


def without_nan(data: Any) -> Any:
    """Return float64 with null instead of NaN."""
    return pc.if_else(pc.is_nan(data), pa.scalar(None, pa.float64()), data)


def check_comparable(left: Operand, right: Operand, sign: str) -> None:
    """Refuse two operands of different kinds, and an order of bools."""
    known = {"number", "string", "bool"}
    if left.kind != right.kind or left.kind not in known:
        pair = f"{left.called}, a {left.kind}, with {right.called}, a {right.kind}"
        raise ExpressionError(f"cannot compare {pair}; expected two numbers, two strings or two bools")
    if left.kind == "bool" and sign not in ("==", "!="):
        raise ExpressionError(f"cannot compare {left.called} by {sign}: bools have no order; use == or !=")


def compare(sign: str, left: Any, right: Any) -> Any:
    """Compare two operands of one kind, columns or scalars; numbers exactly, whatever their types."""
    types = (left.type, right.type)
    if all(map(_is_integer, types)):
        if pa.uint64() in types or WIDE_INTEGER in types:
            left, right = left.cast(WIDE_INTEGER), right.cast(WIDE_INTEGER)
    elif _is_large(left) or _is_large(right):
        return _compare_parts(sign, _parts(left), _parts(right))
    elif any(map(_is_integer, types)):
        left, right = left.cast(pa.float64()), right.cast(pa.float64())
    return getattr(pc, _COMPARE[sign])(left, right)


_COMPARE = {
    "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip


def _compare_parts(sign: str, left: tuple[Any, Any], right: tuple[Any, Any]) -> Any:
    """Compare numbers as nearest doubles, and where these are equal by their rests."""
    is_even = pc.equal(left[0], right[0])
    if sign == "!=":
        return pc.or_(pc.invert(is_even), pc.not_equal(left[1], right[1]))
    rests = pc.and_(is_even, getattr(pc, _COMPARE[sign])(left[1], right[1]))
    return rests if sign == "==" else pc.or_(getattr(pc, _COMPARE[sign[0]])(left[0], right[0]), rests)


def _is_large(data: Any) -> bool:
    """Tell whether some integers may share their double with a neighbour."""
    if data.type == EXACT:
        return True
    if not _is_integer(data.type):
        return False
    if isinstance(data, pa.Scalar):
        return bool(abs(data.as_py()) >= LIMIT)
    least_and_most = pc.min_max(data.cast(pa.float64(), safe=False)).as_py().values()
    return any(abs(number or 0.0) >= LIMIT for number in least_and_most)


def _parts(data: Any) -> tuple[Any, Any]:
    """Return the nearest doubles and the rests of a column or a scalar."""
    if isinstance(data, pa.Scalar):
        column = as_exact(pa.array([data.as_py()], data.type))
        return column.field("value")[0], column.field("rest")[0]
    column = as_exact(data)
    return pc.struct_field(column, "value"), pc.struct_field(column, "rest")


def is_in(data: pa.Array, values: list[Any]) -> pa.BooleanArray:
    """Tell which values of `data` are among `values`, all of its kind; false where null."""
    if _is_integer(data.type):
        least, most = _bounds(data.type)
        integers = [int(v) for v in values if v == v // 1 and least <= v <= most]
        return pc.is_in(data, value_set=pa.array(integers, data.type))
    if data.type != EXACT and not pa.types.is_floating(data.type):
        return pc.is_in(data, value_set=pa.array(values, data.type))
    is_listed = _is_in_floats(nearest(data), [v for v in values if float(v) == v])
    large = inexact(data)
    if not large.any():
        return is_listed
    rows, known = np.flatnonzero(large), {v for v in values if isinstance(v, int)}
    listed = np.array(is_listed.to_numpy(zero_copy_only=False))
    listed[rows] = [number in known for number in integers_of(data, rows)]
    return pa.array(listed)


def _is_integer(of: pa.DataType) -> bool:
    return bool(pa.types.is_integer(of) or of == WIDE_INTEGER)


def _bounds(of: pa.DataType) -> tuple[int, int]:
    if of == WIDE_INTEGER:
        return 1 - 10**38, 10**38 - 1
    bounds = np.iinfo(of.to_pandas_dtype())
    return int(bounds.min), int(bounds.max)


def _is_in_floats(data: pa.Array, values: list[Any]) -> pa.BooleanArray:
    numbers = [float(v) for v in values]
    if 0.0 in numbers:  # Arrow looks numbers up by their bits
        numbers += [0.0, -0.0]
    return pc.is_in(data, value_set=pa.array(numbers, pa.float64()))


def two_valued(result: Any, count: int) -> pa.BooleanArray:
    """Make a three-valued result two-valued, and one row per document."""
    if isinstance(result, pa.Scalar):
        return every_row(result.as_py() or False, count)
    return pc.fill_null(result, False)


def every_row(value: bool, count: int) -> pa.BooleanArray:
    """Return one answer for all rows (count,)."""
    return pa.repeat(pa.scalar(value), count)


Columns = Mapping[str, pa.Array]
ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}

LITERALS = {"bool": pa.bool_(), "string": pa.large_string()}

MAX_DEPTH = 100
"""Levels of nesting; rules are evaluated by recursion, and Python's limit is 1000 calls."""


class Node:
    """Base of rules and values, which are structs: names, spelling, a canonical form."""

    __struct_fields__: ClassVar[tuple[str, ...]]
    beside: ClassVar[tuple[str, ...]] = ()
    """Fields that are no part of the meaning."""

    level: ClassVar[int] = 8
    """Precedence of the spelling, from `Or` (1) to names (8)."""

    def children(self) -> Iterator["Node"]:
        """Yield the nodes directly below this one."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            items = value if isinstance(value, tuple) else (value,)
            yield from (item for item in items if isinstance(item, Node))

    def check_depth(self) -> None:
        """Refuse more levels of nesting than evaluation by recursion can take; raises `ExpressionError`."""
        levels, nodes = 0, [self]
        while nodes:
            levels += 1
            if levels > MAX_DEPTH:
                raise ExpressionError(
                    f"a rule nested more than {MAX_DEPTH} levels deep; expected fewer rules within each other."
                )
            nodes = [child for node in nodes for child in node.children()]

    @property
    def names(self) -> frozenset[str]:
        """Columns the rule looks at."""
        return frozenset().union(*(child.names for child in self.children()))

    @property
    def lists(self) -> frozenset[str]:
        """Columns among `names` that hold a list of spans for each row."""
        return frozenset().union(*(child.lists for child in self.children()))

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return it with other column names; those not in `names` stay."""
        return self.substituted({name: Name(other) for name, other in names.items()})

    def substituted(self, values: Mapping[str, "Value"]) -> Self:
        """Return it with values in the place of columns; those not in `values` stay."""

        def substitute(part: Any) -> Any:
            if isinstance(part, tuple):
                return tuple(substitute(item) for item in part)
            if isinstance(part, Name):
                return values.get(part.name, part)
            return part.substituted(values) if isinstance(part, Node) else part

        parts = {name: substitute(getattr(self, name)) for name in self.__struct_fields__}
        return type(self)(**parts)

    def canonical(self) -> list[Any]:
        """Return a form that JSON can hold, equal for equal rules: nested lists, each with the node's class first."""

        def plain(value: Any) -> Any:
            if isinstance(value, tuple):
                return [plain(item) for item in value]
            return value.canonical() if isinstance(value, Node) else value

        return [
            type(self).__name__.lower(),
            *map(plain, self._meaning()),
        ]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._meaning() == other._meaning()

    def __hash__(self) -> int:
        return hash((type(self), *self._meaning()))

    def _meaning(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name not in self.beside)

    def _spell(self, child: "Node", level: int) -> str:
        return str(child) if child.level >= level else f"({child})"


class Value(Node):
    """Something to compare: a number, a string or a bool for each row."""

    def evaluate(self, columns: Columns) -> Operand:
        """Look at `columns`; missing is null."""
        raise NotImplementedError

    def number(self, columns: Columns) -> Any:
        """Return the value as float64, for arithmetic."""
        operand = self.evaluate(columns)
        if operand.kind not in ("number", "missing"):
            raise ExpressionError(
                f"cannot calculate with {operand.called}, a {operand.kind}; expected numbers"
            )
        return doubles(operand.data)


class Name(Value, Struct, frozen=True):
    """A column."""

    name: str

    @property
    def names(self) -> frozenset[str]:
        return frozenset([self.name])

    def renamed(self, names: Mapping[str, str]) -> "Name":
        return Name(names.get(self.name, self.name))

    def evaluate(self, columns: Columns) -> Operand:
        if self.name not in columns:
            raise ExpressionError(unknown_name(self.name, columns), name=self.name)
        data, kind = load(columns[self.name])
        return Operand(data, kind, f"column {self}")

    def __str__(self) -> str:
        if all(_is_plain(part) for part in self.name.split(".")):
            return self.name
        return "`" + self.name.replace("`", "``") + "`"


class Literal(Value, Struct, frozen=True):
    """A number, a string or a bool; ``1`` and ``1.0`` are equal, ``1`` and ``True`` are not."""

    value: int | float | str | bool

    @property
    def kind(self) -> str:
        """Kind of the value: "number", "string" or "bool"."""
        return {bool: "bool", str: "string"}.get(type(self.value), "number")

    def _meaning(self) -> tuple[Any, ...]:
        return self.kind, self.value

    @property
    def level(self) -> int:  # type: ignore[override]
        return 7 if str(self).startswith("-") else 8

    def canonical(self) -> list[Any]:
        value = self.value
        is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        return ["literal", int(value) if is_whole else value]

    def evaluate(self, columns: Columns) -> Operand:
        scalar = (
            number_scalar(self.value) if self.kind == "number" else pa.scalar(self.value, LITERALS[self.kind])
        )
        return Operand(scalar, self.kind, str(self))

    def __str__(self) -> str:
        return repr(self.value)


class Negative(Value, Struct, frozen=True):
    """Unary minus."""

    operand: Value
    level = 7

    def evaluate(self, columns: Columns) -> Operand:
        return Operand(pc.negate(self.operand.number(columns)), "number", f"`{self}`")

    def __str__(self) -> str:
        return f"-{self._spell(self.operand, 7)}"


class Arithmetic(Value, Struct, frozen=True):
    """``+ - * /`` in float64; with a missing operand, a divisor of zero, or an undefined result it is missing."""

    sign: str
    left: Value
    right: Value

    @property
    def level(self) -> int:  # type: ignore[override]
        return 5 if self.sign in "+-" else 6

    def evaluate(self, columns: Columns) -> Operand:
        left, right = self.left.number(columns), self.right.number(columns)
        if self.sign == "/":
            right = pc.if_else(pc.equal(right, 0.0), pa.scalar(None, pa.float64()), right)
        return Operand(without_nan(getattr(pc, ARITHMETIC[self.sign])(left, right)), "number", f"`{self}`")

    def __str__(self) -> str:
        return f"{self._spell(self.left, self.level)} {self.sign} {self._spell(self.right, self.level + 1)}"


def endings(name: str, known: Collection[str]) -> list[str]:
    """Return the columns that a name stands for: itself, else those that end in it behind ``__``; ``set/name`` those of one attribute set; ``set`` its `main_keys`.

    Columns of attribute sets are known as ``set/key``, and as ``key`` too where no other set has the key.
    """
    if name in known:
        return [name]
    folder, _, ending = name.partition("/")
    if ending and (own := [column for column in known if column.startswith(f"{folder}/")]):
        return sorted(column for column in own if column.endswith((f"/{ending}", f"__{ending}")))
    ends = sorted(column for column in once_each(known) if column.endswith((f"__{name}", f"/{name}")))
    keys = [column.partition("/")[2] for column in known if not ends and column.startswith(f"{name}/")]
    return ends or [f"{name}/{key}" for key in main_keys(keys)]


def main_keys(keys: Collection[str]) -> list[str]:
    """Return the key of an attribute set with which all of its keys begin, as with that of the flags of `dedupe`; it may have none."""
    return [key for key in keys if all(other == key or other.startswith(f"{key}__") for other in keys)]


def once_each(known: Collection[str]) -> list[str]:
    """Return the names of columns without those of the form ``set/key`` whose key is a name by itself."""
    names = frozenset(known)
    return [name for name in known if name.partition("/")[2] not in names]


def ambiguous_name(name: str, columns: Iterable[str], spell: Callable[[str], object] = Name) -> str:
    """Describe a short name of several columns."""
    return f"{spell(name)} is short for several columns: {', '.join(str(spell(column)) for column in columns)}; write one of them"


def unknown_name(name: str, known: Collection[str], spell: Callable[[str], object] = Name) -> str:
    """Describe a column that does not exist: the names most like it, in full or behind a ``__``, as rules (`Name`) or options (`str`) spell them."""
    by_spelling: dict[str, list[str]] = {}
    known = once_each(known)
    for full in known:
        parts = full.split("__")
        for k in range(len(parts)):
            by_spelling.setdefault("__".join(parts[k:]), []).append(full)
    near = [full for spelling in get_close_matches(name, by_spelling, n=5) for full in by_spelling[spelling]]
    if near:
        return f"no column is named {spell(name)}; near it are: {', '.join(str(spell(n)) for n in dict.fromkeys(near))}"
    some = [str(spell(n)) for n in sorted(known)]
    more = f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
    return f"no column is named {spell(name)}; there are: {', '.join(some[:_SHOWN]) or 'none'}{more}"


_SHOWN = 10
"""Columns that a message names."""


def _is_plain(part: str) -> bool:
    return part.isidentifier() and not keyword.iskeyword(unicodedata.normalize("NFKC", part))
