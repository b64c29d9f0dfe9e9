"""Values of span lists inside of rules: a number of the n-th span, how many spans there are.

A column of spans is ``list<struct<start: int64, end: int64, score: float64>>``, null where a document does not have the attribute.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.mixing.evaluation import Operand
from dolma_dask.mixing.values import Columns, Name, Value

PARTS = ("start", "end", "score")
"""What stands in a span, by its place in the JSON array."""


@dataclass(frozen=True)
class SpanItem(Value):
    """``column[place][part]``: start (0), end (1) or score (2) of a span; missing where there are not so many."""

    column: Name
    place: int
    part: int

    def evaluate(self, columns: Columns) -> Operand:
        spans = self.column.evaluate(columns).data
        at, there = _places(spans, self.place)
        numbers = spans.values.field(PARTS[self.part])
        taken = numbers.take(pa.array(np.where(there, at, 0), mask=~there))
        return Operand(taken, "number", f"column {self}")

    def __str__(self) -> str:
        return f"{self.column}[{self.place}][{self.part}]"


@dataclass(frozen=True)
class SpanCount(Value):
    """The number of spans; where the attribute is missing, missing or 0."""

    column: Name
    zero_if_missing: bool

    def evaluate(self, columns: Columns) -> Operand:
        spans = self.column.evaluate(columns).data
        counts: Any = pc.list_value_length(spans).cast(pa.int64())
        return Operand(
            pc.fill_null(counts, 0) if self.zero_if_missing else counts, "number", f"column {self}"
        )

    def __str__(self) -> str:
        return f"{self.column}.length"


def _places(spans: pa.ListArray, place: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where the span `place` of each list is among the values (n,), and whether there is one (n,)."""
    offsets = np.asarray(spans.offsets)
    at = (offsets[:-1] if place >= 0 else offsets[1:]).astype(np.int64) + place
    there = (at >= offsets[:-1]) & (at < offsets[1:])
    if spans.null_count:
        there &= spans.is_valid().to_numpy(zero_copy_only=False)
    return at, there
