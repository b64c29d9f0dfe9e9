"""The signals of one document, each with its place among those of all documents: counted in one pass, or between the quantiles that are known."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine.fold import fold, readable_rows, shards_of
from dolma_dask.errors import UsageError
from dolma_dask.formats.exact_numbers import floats
from dolma_dask.options.groups import PlaceOptions
from dolma_dask.reading.columns import Columns
from dolma_dask.reading.entry_points import EntryPoints
from dolma_dask.reading.one_row import aligned_row
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.reading.signals import find_signals
from dolma_dask.reading.thresholds import quantiles_path, read_table
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.quantile_table import Entry, QuantileTable

Counts = npt.NDArray[np.int64]


class SignalPlace(Struct, frozen=True):
    """A signal of a document among those of all."""

    name: str
    value: float | None  # None: the document has none
    quantile: float | None  # share of the values below it, and half of those that are equal
    documents: int = 0  # with a value
    below: int | None = None  # documents with a smaller value; None: not counted, but taken from quantiles
    equal: int | None = None  # documents with this value, itself included


class Ranks(Struct, frozen=True, eq=False):
    """Documents with a value, with a smaller and with an equal one, for each signal (3, signals)."""

    counts: Counts

    def __add__(self, other: "Ranks") -> "Ranks":
        return Ranks(self.counts + other.counts)


class CountRanks(Struct, frozen=True):
    """Counting of documents below some values; see `dolma_dask.engine.fold`."""

    names: tuple[str, ...]
    values: tuple[float, ...]
    verb: ClassVar[str] = "explain"

    def start(self) -> Ranks:
        """Return the counts of no documents."""
        return Ranks(np.zeros((3, len(self.names)), np.int64))

    def count(self, shard: AlignedShard) -> Ranks:
        """Return the counts of a shard."""
        counts = self.start().counts
        for batch in readable_rows(shard):
            for number, (name, value) in enumerate(zip(self.names, self.values, strict=True)):
                own = floats(batch.column(name))
                counts[:, number] += [
                    np.count_nonzero(~np.isnan(own)),
                    np.count_nonzero(own < value),
                    np.count_nonzero(own == value),
                ]
        return Ranks(counts)


def signals_of(
    dataset: Dataset, shard: Shard, row: int, points: EntryPoints, options: PlaceOptions, *, exact: bool
) -> list[SignalPlace]:
    """Return the signals of a document.

    Raises `UsageError`: the dataset has none. Raises `StageError`, `DataError`: attributes do not line up with their documents.
    """
    columns, names, _ = find_signals(dataset, None, None, (), None, sampled=False)
    block = aligned_row(columns.work(shard, exact=True, identities=True), row, points)
    found = {name: float(floats(block.batch.column(name))[0]) for name in names}
    values = {name: value for name, value in found.items() if not np.isnan(value)}
    table = {} if exact else _table(dataset)
    known = {name: _between(name, value, table[name][ALL]) for name, value in values.items() if name in table}
    counted = _ranks(columns, {name: value for name, value in values.items() if name not in known}, options)
    return [(known | counted).get(name) or SignalPlace(name, None, None) for name in names]


def _table(dataset: Dataset) -> QuantileTable:
    try:
        return read_table(dataset.url(quantiles_path("quantiles")))
    except UsageError:
        return {}


def _ranks(columns: Columns, values: dict[str, float], options: PlaceOptions) -> dict[str, SignalPlace]:
    """Return signals with their ranks, counted over all documents."""
    if not values:
        return {}
    counting = CountRanks(tuple(values), tuple(values.values()))
    ranks = fold(counting, shards_of(columns), options)
    return {
        name: SignalPlace(name, value, (below + equal / 2) / every, every, below, equal)
        for (name, value), (every, below, equal) in zip(values.items(), ranks.counts.T.tolist(), strict=True)
    }


def _between(name: str, value: float, entry: Entry) -> SignalPlace:
    """Return a signal with its place between known quantiles, which is about right: the middle of those that are equal to it, else on the line between two."""
    ends: Sequence[tuple[float, float | None]] = [
        (0.0, entry["min"]),
        *((float(p), q) for p, q in entry["q"].items()),
        (1.0, entry["max"]),
    ]
    shares = np.array([share for share, bound in ends if bound is not None])
    bounds = np.array([bound for _, bound in ends if bound is not None])
    if not len(bounds):
        return SignalPlace(name, value, None)
    same = shares[bounds == value]
    quantile = float(same[[0, -1]].mean()) if len(same) else float(np.interp(value, bounds, shares))
    return SignalPlace(name, value, quantile, entry["n"])
