"""Counts of duplicates by source, of one shard and of several together; 60 ns per document."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dolma_dask.formats.json_write import validity
from dolma_dask.stages.marks import MarkRows

MOST_SOURCES = 200
"""Sources that a shard's record tells apart; a dataset with more has no table by source."""

TALLIED = ("documents", "duplicates", "bytes", "clusters", "largest")
"""What is counted for each source: clusters are those of its survivors."""


@dataclass
class Tally:
    """Counts of one shard, in all and by source.

    Attributes
    ----------
    sources : dict
        Name to `TALLIED`; documents that could not be read are left out.
    """

    sources: dict[str, list[int]] = field(default_factory=dict)

    def add(self, rows: MarkRows, marked: npt.NDArray[np.bool_], sizes: npt.NDArray[np.int64]) -> None:
        """Count rows: which are marked, and the sizes of the clusters they survive."""
        encoded = rows.sources.dictionary_encode()
        known = validity(rows.ids) & validity(rows.sources)
        places = np.asarray(encoded.indices.fill_null(0), np.int64)[known]
        names = encoded.dictionary.to_pylist()
        marked, sizes, texts = marked[known], sizes[known], rows.sizes[known]
        columns = [
            np.bincount(places, minlength=len(names)),
            np.bincount(places[marked], minlength=len(names)),
            _sums(places[marked], texts[marked], len(names)),
            np.bincount(places[sizes > 0], minlength=len(names)),
            _largest(places, sizes, len(names)),
        ]
        for name, counted in zip(names, np.stack(columns, axis=1).tolist(), strict=True):
            self.sources[name] = merged(self.sources.get(name), counted)

    def counts(self) -> dict[str, float]:
        """Return the counts of the shard."""
        sums = [sum(column) for column in zip(*self.sources.values(), strict=True)] or [0] * len(TALLIED)
        return {"duplicates": sums[1], "text_bytes_marked": sums[2], "clusters": sums[3]}

    def info(self) -> dict[str, Any]:
        """Return the counts by source, unless there are too many sources."""
        many = len(self.sources) > MOST_SOURCES
        return {"many_sources": True} if many else {"sources": dict(sorted(self.sources.items()))}


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
