"""Parts of a JSONPath: steps from value to value, and the conditions of its filters; see `dolma_dask.rules.jsonpath_text`."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Field:
    """The value of a key; several keys: of each."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Index:
    """Elements of an array by their place, from its end if negative."""

    places: tuple[int, ...]


@dataclass(frozen=True)
class Slice:
    """Elements of an array, as in Python."""

    start: int | None
    stop: int | None
    step: int | None


@dataclass(frozen=True)
class Every:
    """All elements of an array or values of an object; ``deep``: also all below them."""

    deep: bool = False


@dataclass(frozen=True)
class Below:
    """The values of a key at any depth."""

    name: str


@dataclass(frozen=True)
class Length:
    """Number of elements of an array."""


@dataclass(frozen=True)
class Where:
    """Values that a condition holds for: elements of an array, or anything else itself."""

    condition: "Condition"


Step = Field | Index | Slice | Every | Below | Length | Where


@dataclass(frozen=True)
class Path:
    """Steps from the row (``$``) or from the value that is tested (``@``)."""

    from_row: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Constant:
    """A literal."""

    value: Any


Operand = Path | Constant


@dataclass(frozen=True)
class Exists:
    """There is such a value."""

    operand: Operand


@dataclass(frozen=True)
class Test:
    """``left sign right``."""

    sign: str
    left: Operand
    right: Operand


@dataclass(frozen=True)
class No:
    """``!condition``."""

    condition: "Condition"


@dataclass(frozen=True)
class Both:
    """``a && b && ...``."""

    parts: tuple["Condition", ...]


@dataclass(frozen=True)
class Either:
    """``a || b || ...``."""

    parts: tuple["Condition", ...]


Condition = Exists | Test | No | Both | Either
