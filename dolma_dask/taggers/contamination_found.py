"""What a dataset has of each benchmark, counted from what the tagger of `dolma_dask.taggers.contamination` finds in its documents."""

import base64
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.results.table import Column, Table
from dolma_dask.taggers.base import Scorer
from dolma_dask.taggers.labels import label_name
from dolma_dask.text import compute as pc
from dolma_dask.text.kernels import Counts

SHARE, ITEMS = "share_", "items_"
"""What stands before the name of a benchmark in keys: how much of a text it covers, and where which item does."""


class BenchmarkRow(Struct, frozen=True):
    """What was found of a benchmark."""

    benchmark: str
    documents: int  # that have an n-gram of it
    share_of_documents: float
    mean_share: float  # of the text of these that it covers
    items_found: int  # that have an n-gram in some document; of those with an n-gram in common the first
    items: int  # all


class Found:
    """Counts of what a shard has of each benchmark."""

    def __init__(self, scorer: Scorer) -> None:
        known = cast("partial[Iterator[pa.Array]]", scorer).args[0].opened()
        sizes: dict[str, int] = {
            name: max(total) for name, total in zip(known.names, known.totals, strict=True)
        }
        self._items = {name: np.empty(0, np.int64) for name in sizes}
        self._documents = dict.fromkeys(sizes, 0)
        self._shares = dict.fromkeys(sizes, 0.0)
        self._sizes, self._rows = sizes, 0

    def add(self, columns: Mapping[str, pa.Array], rows: int) -> None:
        """Count documents by their attributes."""
        self._rows += rows
        for name in self._items:
            label = label_name(name)
            if (shares := columns.get(f"{SHARE}{label}")) is not None:
                self._documents[name] += len(shares) - shares.null_count
                self._shares[name] += pc.sum(shares).as_py() or 0.0
            if (spans := columns.get(f"{ITEMS}{label}")) is not None:
                rows_of_items = np.asarray(spans.flatten().field("score")).astype(np.int64)
                self._items[name] = np.union1d(self._items[name], rows_of_items)

    def info(self) -> dict[str, Any]:
        """Return the counts for the journal: documents, and of each benchmark its size, documents, the sum of their shares, and the rows of the items that were found."""
        return {
            "documents": self._rows,
            "benchmarks": {
                name: [size, self._documents[name], round(self._shares[name], 8), _packed(self._items[name])]
                for name, size in self._sizes.items()
            },
        }

    @staticmethod
    def merged(shards: Iterable[Mapping[str, Any]]) -> list[BenchmarkRow]:
        """Return the sums over shards."""
        total, sums = 0, dict[str, list[Any]]()
        for shard in shards:
            total += shard["documents"]
            for name, (size, documents, share, items) in shard["benchmarks"].items():
                known = sums.setdefault(name, [size, 0, 0.0, np.empty(0, np.int64)])
                known[1] += documents
                known[2] += share
                known[3] = np.union1d(known[3], _unpacked(items))
        return [
            BenchmarkRow(name, documents, documents / max(total, 1), share / max(documents, 1), len(items), size)
            for name, (size, documents, share, items) in sums.items()
        ]  # fmt: skip

    @staticmethod
    def table(rows: Sequence[BenchmarkRow]) -> Table:
        """Return the table of the sums."""
        return Table.of("contamination", _COLUMNS, rows, "Documents with words of items of each benchmark, and how much of their text that is.")  # fmt: skip


_COLUMNS = (
    Column("benchmark", "name"),
    Column("documents"),
    Column("of all", "share", "share_of_documents"),
    Column("mean share", "share"),
    Column("items found"),
    Column("items"),
)


def _packed(rows: Counts) -> str:
    """Return numbers as compressed bits."""
    if not len(rows):
        return ""
    marks = np.zeros(int(rows[-1]) + 1, np.bool_)
    marks[rows] = True
    return base64.b64encode(zlib.compress(np.packbits(marks).tobytes())).decode()


def _unpacked(packed: str) -> Counts:
    stored = zlib.decompress(base64.b64decode(packed)) if packed else b""
    return np.flatnonzero(np.unpackbits(np.frombuffer(stored, np.uint8)))
