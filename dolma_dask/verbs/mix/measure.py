"""Weights of documents where a mix is downsampled: one each, by their bytes, their tokens, or a column."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import SchemaError
from dolma_dask.sinks.sink import DocumentRows
from dolma_dask.verbs.mix.ranking import Ints

if TYPE_CHECKING:  # most mixes make no tokens, whose modules cost a third of a start
    from dolma_dask.tokens.engine import TokenEngine


MAX_WEIGHT = (1 << 31) - 1
"""Largest number of a column: sums of four thousand million documents are exact."""


@dataclass(frozen=True)
class Measure:
    """Weight of documents."""

    unit: str
    column: str | None = None  # with a number per document
    engine: "TokenEngine | None" = None  # that encodes the texts
    added: int = 0  # tokens around each document

    def weigh(self, rows: DocumentRows, shard: str) -> Ints:
        """Return the weight of each document (n,)."""
        if self.column is not None:
            return _whole(rows.batch.column(self.column), self.column, rows, shard)
        if self.engine is not None:
            lengths = self.engine.encode(rows.batch.column("text")).lengths
            return lengths.astype(np.int64) + self.added
        if self.unit == "bytes":
            lengths = pc.binary_length(rows.batch.column("text")).to_numpy(zero_copy_only=False)
            return np.asarray(lengths, np.int64)
        return np.ones(rows.batch.num_rows, np.int64)

    @property
    def of_text(self) -> bool:
        """True if it depends on the text."""
        return self.unit == "bytes" or self.engine is not None

    def params(self) -> dict[str, Any]:
        """Return what decides the weights."""
        tokenizer = {} if self.engine is None else {"tokenizer": self.engine.fingerprint, "added": self.added}
        return {"unit": self.unit, "column": self.column, **tokenizer}


def _whole(column: pa.Array, name: str, rows: DocumentRows, shard: str) -> Ints:
    """Return the numbers of a column; refuse those that count nothing."""
    numbers = np.array(column.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False))
    wrong = ~((numbers >= 0) & (numbers <= MAX_WEIGHT) & (numbers == np.floor(numbers)))
    if wrong.any():
        at = int(wrong.argmax())
        raise SchemaError(
            f"{shard}, row {int(rows.numbers[at])}: {name} is {column[at].as_py()}; expected a whole number from 0 to {MAX_WEIGHT:,} in every document that the "
            "mix keeps. Leave the others out by the rule, or choose another unit.",
            shard=shard,
            row=int(rows.numbers[at]),
        )
    return numbers.astype(np.int64)
