"""Choices of `dedupe` besides likeness: the documents that take part, their groups, and the survivor of a cluster."""

from collections import Counter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.formats.digests import LOWEST, number_keys, rank_bits, text_keys
from dolma_dask.formats.exact_numbers import inexact, integers, nearest
from dolma_dask.rules.rules import Rule
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import validity
from dolma_dask.text.kernels import Bools, Words
from dolma_dask.text.timestamps import timestamps

Keep = Literal["first", "longest", "newest", "oldest", "highest", "lowest"]
"""The document of a cluster that survives."""


class Chosen(Struct, frozen=True):
    """A choice among some rows (n,)."""

    kept: Bools  # take part
    salts: Words | None  # hashes of their groups
    ranks: Words | None  # the lowest survives


class Choice(Struct, frozen=True):
    """A choice of documents; columns are named in full."""

    keep: Keep = "first"
    rank: str | None = None  # column of numbers, or of times as text
    where: Rule | None = None
    within: str | None = None  # column of groups

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that decide."""
        rule = () if self.where is None else sorted(self.where.names)
        single = (name for name in (self.rank, self.within) if name)
        return tuple(dict.fromkeys([*single, *rule]))

    @property
    def selects(self) -> bool:
        """True if some documents may not take part."""
        return self.where is not None or self.within is not None

    def params(self) -> dict[str, Any]:
        """Return everything that decides."""
        rule = {} if self.where is None else {"where": self.where.canonical()}
        within = {} if self.within is None else {"within": self.within}
        return {"keep": self.keep, "rank": self.rank, **rule, **within}

    def of(self, batch: pa.RecordBatch, readable: Bools, counts: Counter[str]) -> Chosen:
        """Choose among rows that can be read, and count those that take no part, or have no rank."""
        kept, salts = readable, None
        if self.where is not None:
            columns = {name: batch.column(name) for name in self.where.names}
            holds = self.where.mask(columns or {"": pa.nulls(batch.num_rows)})
            kept = still_kept(kept, np.asarray(holds), "documents_excluded", counts)
        if self.within is not None:
            known, (salts, _) = value_keys(batch.column(self.within))
            kept = still_kept(kept, known, "documents_without_group", counts)
        ranks = None if self.rank is None else self._ranks(batch.column(self.rank))
        if ranks is not None:
            still_kept(kept, ranks != LOWEST, "documents_without_rank", counts)
        return Chosen(kept, salts, ranks)

    def _ranks(self, column: pa.Array) -> Words:
        """Return integers of which the lowest is that of the survivor, `LOWEST` where there is no rank."""
        highest_first = self.keep in ("highest", "newest")
        if not pa.types.is_large_string(column.type):
            return rank_bits(numbers(column), validity(column), highest_first=highest_first)
        times = timestamps(column)
        words = times.astype(np.uint64)
        return np.where(times < 0, LOWEST, ~words if highest_first else words)


def still_kept(kept: Bools, holds: Bools, name: str, counts: Counter[str]) -> Bools:
    """Return which rows are kept still, and count the others."""
    still = kept & holds
    counts[name] += int(np.count_nonzero(kept) - np.count_nonzero(still))
    return still


def value_keys(column: pa.Array) -> tuple[Bools, tuple[Words, Words]]:
    """Return which rows (n,) have a value, and the two halves of a hash of each: of its UTF-8, or of a number with all digits."""
    valid = validity(column)
    if pa.types.is_large_string(column.type):
        return valid, text_keys(column)
    doubles = numbers(column)
    keys, rows = number_keys(doubles), np.flatnonzero(inexact(column))
    if len(rows):  # integers that no double holds, by their digits
        digits = pa.array(map(str, integers(column, rows)), pa.large_string())
        for half, of_digits in zip(keys, text_keys(digits), strict=True):
            half[rows] = of_digits
    return valid & ~np.isnan(doubles), keys


def numbers(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return numbers or bools as float64 (n,), NaN where null."""
    doubles = pc.fill_null(nearest(column).cast(pa.float64()), np.nan)
    return np.asarray(doubles.to_numpy(zero_copy_only=False), np.float64)
