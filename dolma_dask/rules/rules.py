"""Rules: which rows to keep, as small immutable objects that Arrow compute evaluates column by column.

Trees come from `dolma_dask.rules.where.parse`, or from other rules by ``&``, ``|`` and ``~``; on one side of ``&`` and ``|`` the text of a rule
may stand. ``str(rule)`` parses back to an equal one. Inside of rules stand the values of `dolma_dask.rules.values`.

The logic has two values. A comparison, membership or flag with a missing operand is false, also ``!=`` and ``not in``;
what follows (``not and or``) is plain logic. Missing are null and NaN, and the results of dividing by zero.
Numbers are compared exactly; arithmetic is in float64.
"""

from collections.abc import Iterator
from functools import reduce

import pyarrow as pa
from msgspec import Struct

from dolma_dask.display import as_typed
from dolma_dask.errors import ExpressionError, SchemaError
from dolma_dask.formats.layout import check_name
from dolma_dask.results import notebook
from dolma_dask.results.parts import Listing, Part
from dolma_dask.rules.values import (
    Columns,
    Literal,
    Name,
    Node,
    Operand,
    Value,
    check_comparable,
    compare,
    every_row,
    is_in,
    two_valued,
)
from dolma_dask.text import compute as pc

WIDTH = 72
"""Characters of a rule that stand on one line; those of longer ones are broken by condition."""


class Rule(Node):
    """A condition on rows."""

    def mask(self, columns: Columns) -> pa.BooleanArray:
        """Return where a row is kept, (n,) without nulls.

        `columns` has at least the columns `names`, (n,) each; numbers, strings or bools, and anything for ``is None``. Empty arrays will do to find
        out whether names and types are right. Raises `ExpressionError`: a column is missing, or of a type that the rule cannot take.
        """
        lengths = {len(column) for column in columns.values()}
        if len(lengths) != 1:
            raise SchemaError(
                f"columns of {sorted(lengths)} rows; a rule needs at least one column, and equal lengths"
            )
        return self.rows(columns, lengths.pop())

    def rows(self, columns: Columns, count: int) -> pa.BooleanArray:
        """`mask`, given the number of rows."""
        raise NotImplementedError

    @property
    def operands(self) -> tuple[Value, ...]:
        """Values that are compared: where one is missing, a comparison is false."""
        inner = (rule.operands for rule in self.children() if isinstance(rule, Rule))
        return tuple(dict.fromkeys(value for values in inner for value in values))

    @property
    def required(self) -> tuple[Value, ...]:
        """Values that no document may lack; it is for readers of documents to say which one does."""
        inner = (rule.required for rule in self.children() if isinstance(rule, Rule))
        return tuple(dict.fromkeys(value for values in inner for value in values))

    @property
    def short(self) -> str:
        """Text for people: thresholds by their name, all else as it is spelled."""
        return str(self)

    def __repr__(self) -> str:
        return self.short if len(self.short) <= WIDTH else "\n".join(laid_out(self))

    def _repr_html_(self) -> str:
        return notebook.shown(self.parts())

    def parts(self) -> Iterator[Part]:
        """Yield what a notebook shows."""
        yield Listing("", laid_out(self))

    def __and__(self, other: "Rule | str") -> "Rule":
        return all_of(self, _as_rule(other)) if isinstance(other, Rule | str) else NotImplemented

    def __rand__(self, other: str) -> "Rule":
        return all_of(_as_rule(other), self) if isinstance(other, str) else NotImplemented

    def __or__(self, other: "Rule | str") -> "Rule":
        return any_of(self, _as_rule(other)) if isinstance(other, Rule | str) else NotImplemented

    def __ror__(self, other: str) -> "Rule":
        return any_of(_as_rule(other), self) if isinstance(other, str) else NotImplemented

    def __invert__(self) -> "Rule":
        return Not(self)

    def __bool__(self) -> bool:
        raise ExpressionError(f"the rule `{self}` has no truth value of its own; combine rules with & | ~")


def _as_rule(rule: Rule | str) -> Rule:
    """Return a rule that stands beside ``&`` or ``|``."""
    if isinstance(rule, Rule):
        return rule
    from dolma_dask.rules.where import parse  # which makes rules

    return parse(rule)


class Compare(Rule, Struct, frozen=True):
    """``left sign right``."""

    sign: str
    left: Value
    right: Value
    level = 4

    @property
    def operands(self) -> tuple[Value, ...]:
        return tuple(value for value in (self.left, self.right) if not isinstance(value, Literal))

    def rows(self, columns: Columns, count: int) -> pa.BooleanArray:
        left, right = self.left.evaluate(columns), self.right.evaluate(columns)
        if "missing" in (left.kind, right.kind):
            return every_row(False, count)
        check_comparable(left, right, self.sign)
        return two_valued(compare(self.sign, left.data, right.data), count)

    def __str__(self) -> str:
        return f"{self._spell(self.left, 5)} {self.sign} {self._spell(self.right, 5)}"


class Membership(Rule, Struct, frozen=True):
    """``operand in (...)``, or ``not in``, which is false for a missing operand too."""

    operand: Value
    literals: tuple[Literal, ...]
    negated: bool = False
    level = 4

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.operand,)

    def rows(self, columns: Columns, count: int) -> pa.BooleanArray:
        operand = self.operand.evaluate(columns)
        if operand.kind == "missing":
            return every_row(False, count)
        for literal in {literal.kind: literal for literal in self.literals}.values():
            check_comparable(operand, literal.evaluate(columns), "==")
        data = operand.data
        if isinstance(data, pa.Scalar):
            data = pa.repeat(data, count)
        is_listed = is_in(data, [literal.value for literal in self.literals])
        return pc.and_(data.is_valid(), pc.invert(is_listed)) if self.negated else is_listed

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.literals)) + ("," if len(self.literals) == 1 else "")
        return f"{self._spell(self.operand, 5)} {'not in' if self.negated else 'in'} ({inner})"


class Missing(Rule, Struct, frozen=True):
    """``operand is None``, or ``is not None``."""

    operand: Value
    negated: bool = False
    level = 4

    def rows(self, columns: Columns, count: int) -> pa.BooleanArray:
        data = self.operand.evaluate(columns).data
        return two_valued(pc.is_valid(data) if self.negated else pc.is_null(data), count)

    def __invert__(self) -> "Missing":
        return Missing(self.operand, not self.negated)

    def __str__(self) -> str:
        return f"{self._spell(self.operand, 5)} {'is not' if self.negated else 'is'} None"


class Flag(Rule, Struct, frozen=True):
    """A bool column by itself."""

    column: Value

    def rows(self, columns: Columns, count: int) -> pa.BooleanArray:
        operand = self._bools(columns, self, Missing(self.column, negated=True))
        return two_valued(operand.data.cast(pa.bool_()), count)

    def opposite(self, columns: Columns, count: int) -> pa.BooleanArray:
        """Return the rows that ``not`` before the column keeps; the advice for a column of another kind is the opposite too."""
        operand = self._bools(columns, Not(self), Missing(self.column))
        return pc.invert(two_valued(operand.data.cast(pa.bool_()), count))

    def _bools(self, columns: Columns, written: Rule, meant: Rule) -> Operand:
        """Return the column; `meant` is what people mean who have written this of a column whose values are no bools."""
        operand = self.column.evaluate(columns)
        if operand.kind not in ("bool", "missing"):
            is_not = isinstance(written, Not)
            # no comparison holds for documents without a value, which `not` of a flag is meant to keep
            examples = {} if is_not else {"number": f"{self.column} > 0", "string": f"{self.column} == '...'"}
            example = examples.get(operand.kind)
            compared = f", or a comparison such as {as_typed(example)}" if example else ""
            raise ExpressionError(
                f"{operand.called} is a {operand.kind} and no rule by itself; in place of {as_typed(str(written))} write {as_typed(str(meant))} "
                f"for documents that have {'none' if is_not else 'one'}{compared}"
            )
        return operand

    def __str__(self) -> str:
        return str(self.column)


class Constant(Rule, Struct, frozen=True):
    """``True``: every row; ``False``: none."""

    value: bool

    def rows(self, columns: Columns, count: int) -> pa.BooleanArray:
        return every_row(self.value, count)

    def __str__(self) -> str:
        return str(self.value)


class Not(Rule, Struct, frozen=True):
    """Rows that `rule` leaves out."""

    rule: Rule
    level = 3

    def rows(self, columns: Columns, count: int) -> pa.BooleanArray:
        if isinstance(self.rule, Flag):
            return self.rule.opposite(columns, count)
        return pc.invert(self.rule.rows(columns, count))

    def __str__(self) -> str:
        return f"not {self._spell(self.rule, 3)}"

    @property
    def short(self) -> str:
        return f"not {_bracketed(self.rule, 3)}"


class Required(Rule, Struct, frozen=True):
    """Rows that `rule` keeps, of documents that have all values which it compares."""

    rule: Rule

    @property
    def level(self) -> int:  # type: ignore[override]
        return self.rule.level

    @property
    def required(self) -> tuple[Value, ...]:
        return self.rule.operands

    @property
    def short(self) -> str:
        return self.rule.short

    def rows(self, columns: Columns, count: int) -> pa.BooleanArray:
        return self.rule.rows(columns, count)

    def __str__(self) -> str:
        return str(self.rule)


class And(Rule, Struct, frozen=True):
    """Rows that all `rules` keep; make it with `all_of`."""

    rules: tuple[Rule, ...]
    level = 2

    def rows(self, columns: Columns, count: int) -> pa.BooleanArray:
        return reduce(pc.and_, (rule.rows(columns, count) for rule in self.rules))

    def __str__(self) -> str:
        return " and ".join(self._spell(rule, 3) for rule in self.rules)

    @property
    def short(self) -> str:
        return " and ".join(_bracketed(rule, 3) for rule in self.rules)


class Or(Rule, Struct, frozen=True):
    """Rows that any of `rules` keeps; make it with `any_of`."""

    rules: tuple[Rule, ...]
    level = 1

    def rows(self, columns: Columns, count: int) -> pa.BooleanArray:
        return reduce(pc.or_, (rule.rows(columns, count) for rule in self.rules))

    def __str__(self) -> str:
        return " or ".join(self._spell(rule, 2) for rule in self.rules)

    @property
    def short(self) -> str:
        return " or ".join(_bracketed(rule, 2) for rule in self.rules)


def _bracketed(rule: Rule, level: int) -> str:
    return rule.short if rule.level >= level else f"({rule.short})"


def laid_out(rule: Rule) -> list[str]:
    """Return a rule with each of its conditions on a line; what stands in brackets is broken where it is long."""
    if not isinstance(rule, And | Or):
        return [rule.short]
    word, level = ("and ", 3) if isinstance(rule, And) else ("or ", 2)
    shown: list[str] = []
    for part in rule.rules:
        head, *others = _bracketed_lines(part, level)
        shown += [f"{word if shown else ' ' * len(word)}{head}", *(" " * len(word) + line for line in others)]
    return shown


def _bracketed_lines(rule: Rule, level: int) -> list[str]:
    text = _bracketed(rule, level)
    if len(text) <= WIDTH or not isinstance(rule, And | Or):
        return [text]
    first, *others = (line.rstrip() for line in laid_out(rule))
    return [f"({first}", *(f" {line}" for line in others[:-1]), f" {others[-1]})"]


def all_of(*rules: Rule) -> Rule:
    """Join by ``and``; nested ones become one flat rule. Without rules every row is kept."""
    flat = tuple(part for rule in rules for part in (rule.rules if isinstance(rule, And) else (rule,)))
    return And(flat) if len(flat) > 1 else flat[0] if flat else Constant(True)


def any_of(*rules: Rule) -> Rule:
    """Join by ``or``; nested ones become one flat rule. Without rules no row is kept."""
    flat = tuple(part for rule in rules for part in (rule.rules if isinstance(rule, Or) else (rule,)))
    return Or(flat) if len(flat) > 1 else flat[0] if flat else Constant(False)


def duplicates(name: str = "exact") -> Rule:
    """Return the rule that holds for documents which `dedupe` has flagged.

    Parameters
    ----------
    name : str
        Attribute set that dedupe wrote, or the key of its flags.

    Returns
    -------
    Rule
        The same as ``"exact is not None"``; ``~`` turns it round.

    Raises
    ------
    UsageError
        No attribute set can have such a name.
    """
    return _flagged(name)


def listed(name: str) -> Rule:
    """Return the rule that holds for documents which stand in the list that `block` was given.

    Parameters
    ----------
    name : str
        Attribute set that block wrote.

    Returns
    -------
    Rule
        The same as ``"takedown is not None"``: drop listed documents with ``~``, or keep them alone.

    Raises
    ------
    UsageError
        No attribute set can have such a name.
    """
    return _flagged(name)


def _flagged(name: str) -> Rule:
    return Missing(Name(check_name(name, "attribute set")), negated=True)
