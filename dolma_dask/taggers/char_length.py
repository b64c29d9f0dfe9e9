"""The published tagger ``char_length_v1``: the length of a text in code points.

Source: ``length.py`` of the Dolma toolkit, release 1.2.1: ``len(text)``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dolma_dask.taggers.base import Kind
from dolma_dask.text.view import TextView


@dataclass(frozen=True)
class CharLength:
    """Length in code points, as `char_length_v1` of the Dolma toolkit."""

    name: ClassVar[str] = "char_length_v1"
    version: ClassVar[int] = 1
    params: ClassVar[str] = "{}"
    types: ClassVar[Mapping[str, Kind]] = {"length": "document"}
    reads: ClassVar[tuple[str, ...]] = ("text",)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the column ``length``, float64 without nulls."""
        return self.of_view(TextView(batch.column("text")))

    def of_view(self, view: TextView) -> pa.RecordBatch:
        """Return the same for a view of the texts."""
        return pa.RecordBatch.from_arrays([pa.array(view.lengths.astype(np.float64))], names=["length"])


char_length_v1 = CharLength()
