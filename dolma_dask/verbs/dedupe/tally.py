"""Counts of duplicates by source, of one shard and of several together; 60 ns per document."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dolma_dask.text.columns import validity
from dolma_dask.verbs.flag_rows import FlagRows

MOST_SOURCES = 200
"""Sources that a shard's record tells apart; a dataset with more has no table by source."""

TALLIED = ("documents", "duplicates", "bytes", "clusters", "largest")
"""What is counted for each source: clusters are those of its survivors."""


@dataclass
class Tally:
    """Counts of one shard, in all and by source; as small as `MOST_SOURCES` of them, however many there are.

    Attributes
    ----------
    totals : list of int
        `TALLIED` of all documents that could be read.
    sources : dict or None
        Name to `TALLIED`; None: there are too many.
    """

    totals: list[int] = field(default_factory=lambda: [0] * len(TALLIED))
    sources: dict[str, list[int]] | None = field(default_factory=dict)

    def add(self, rows: FlagRows, marked: npt.NDArray[np.bool_], sizes: npt.NDArray[np.int64]) -> None:
        """Count rows: which are marked, and the sizes of the clusters they survive."""
        known = validity(rows.ids) & validity(rows.sources)
        counted = marked[known], sizes[known], rows.sizes[known]
        self.totals = merged(self.totals, _counts(np.zeros(len(counted[0]), np.int64), *counted, 1)[0])
        if self.sources is None:
            return
        encoded = rows.sources.dictionary_encode()
        if len(encoded.dictionary) <= MOST_SOURCES:
            places = np.asarray(encoded.indices.fill_null(0), np.int64)[known]
            names = encoded.dictionary.to_pylist()
            for name, numbers in zip(names, _counts(places, *counted, len(names)), strict=True):
                self.sources[name] = merged(self.sources.get(name), numbers)
        if max(len(encoded.dictionary), len(self.sources)) > MOST_SOURCES:
            self.sources = None

    def counts(self) -> dict[str, float]:
        """Return the counts of the shard."""
        return {
            "duplicates": self.totals[1],
            "text_bytes_marked": self.totals[2],
            "clusters": self.totals[3],
        }

    def info(self) -> dict[str, Any]:
        """Return the counts by source, unless there are too many sources."""
        if self.sources is None:
            return {"many_sources": True}
        return {"sources": dict(sorted(self.sources.items()))}


def _counts(
    places: npt.NDArray[np.int64],
    marked: npt.NDArray[np.bool_],
    sizes: npt.NDArray[np.int64],
    texts: npt.NDArray[np.int64],
    count: int,
) -> list[list[int]]:
    """Return `TALLIED` for each of `count` sources, of rows (n,) whose source stands at `places`."""
    columns = [
        np.bincount(places, minlength=count),
        np.bincount(places[marked], minlength=count),
        _sums(places[marked], texts[marked], count),
        np.bincount(places[sizes > 0], minlength=count),
        _largest(places, sizes, count),
    ]
    found: list[list[int]] = np.stack(columns, axis=1).tolist()
    return found


def _sums(places: npt.NDArray[np.int64], values: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, places, values)
    return sums


def _largest(
    places: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.int64]:
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, places, sizes)
    return largest


def merged(one: Sequence[int] | None, other: Sequence[int]) -> list[int]:
    """Return the counts `TALLIED` of two parts as those of the whole."""
    if one is None:
        return list(other)
    *sums, _ = (a + b for a, b in zip(one, other, strict=True))
    return [*sums, max(one[-1], other[-1])]
