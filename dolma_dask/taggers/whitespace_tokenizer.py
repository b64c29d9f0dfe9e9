"""The published tagger ``whitespace_tokenizer_v1``: one number, the pieces between words and punctuation.

The Dolma toolkit counts ``len(regex.split(r"\\w+|[^\\w\\s]+", text))``. Splitting returns what lies *between* the
matches, so the number is the tokens plus one, and 1 for an empty text. ``\\w`` and ``\\s`` are those of the
``regex`` package, not of `re`: marks, connector punctuation and the zero-width joiners are word characters.
Source: ``whitespace_tokenizers.py`` of the toolkit, release 1.2.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dolma_dask.taggers.base import Kind
from dolma_dask.text.kernels import Bytes, Counts, Floats, kernel
from dolma_dask.text.runs import count_runs
from dolma_dask.text.tables import load_tables
from dolma_dask.text.view import TextView


@kernel
def _count_pieces(data: Bytes, offsets: Counts, numbers: Bytes, blocks: Bytes, pieces: Floats) -> None:
    """Set `pieces` of every text of a column."""
    for row in range(pieces.size):
        pieces[row] = count_runs(data, offsets[row], offsets[row + 1], numbers, blocks) + 1


@dataclass(frozen=True)
class WhitespaceTokenizer:
    """Pieces between ``\\w+|[^\\w\\s]+`` matches, as `whitespace_tokenizer_v1` of the Dolma toolkit."""

    name: ClassVar[str] = "whitespace_tokenizer_v1"
    version: ClassVar[int] = 1
    params: ClassVar[str] = "{}"
    types: ClassVar[Mapping[str, Kind]] = {"length": "document"}
    reads: ClassVar[tuple[str, ...]] = ("text",)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the column ``length``, float64 without nulls."""
        return self.of_view(TextView(batch.column("text")))

    def of_view(self, view: TextView) -> pa.RecordBatch:
        """Return the same for a view of the texts."""
        pieces = np.empty(len(view))
        _count_pieces(view.data, view.offsets, *load_tables(), pieces)
        return pa.RecordBatch.from_arrays([pa.array(pieces)], names=["length"])


whitespace_tokenizer_v1 = WhitespaceTokenizer()
