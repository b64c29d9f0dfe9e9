"""A verb by exchange in one page: documents whose first word another document of the dataset begins with too are flagged.

The example of an exchange. The emitter makes a key for each document, the reducer finds keys that several have, the sink writes what came back beside
the documents; tasks, passes, staging files, resume, keys and the dataset-wide record are of `dolma_dask.exchange.job.Exchange` and the engine.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dolma_dask.dataset import open_dataset
from dolma_dask.engine import RunOptions, Step, Unit, WorkDir, run_job
from dolma_dask.exchange.contract import Records, key_dtype, keyed, locations
from dolma_dask.exchange.flag_rows import COLUMNS, DocumentEmitter, FlagRows
from dolma_dask.exchange.flags import FlagOutput, FlagSink, FoundRows
from dolma_dask.exchange.job import Exchange, Found
from dolma_dask.formats.digests import text_keys
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.reading.columns import find_columns
from dolma_dask.results.summary import Summary

NAME = "shared"
SHARED = np.dtype([("location", "<u8")])


@dataclass(frozen=True)
class FirstWordEmitter(DocumentEmitter):
    """Emits the first word of each document."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return key_dtype()

    def records(
        self, rows: FlagRows, batch: pa.RecordBatch, number: int, counts: Counter[str]
    ) -> Iterator[Records]:
        words = [" ".join((text or "").split()[:1]) for text in batch.column("text").to_pylist()]
        has_word = np.array([bool(word) for word in words])
        keys = text_keys(pa.array(words, pa.large_string()))
        yield keyed(keys, locations(number, rows.first, len(rows)))[has_word]


@dataclass(frozen=True)
class SharedReducer:
    """Gives out the locations of keys that several records have."""

    dtype: np.dtype[Any] = SHARED

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        records = np.concatenate(list(runs))  # a real reducer goes through the runs one by one
        _, keys, counts = np.unique(records[["hi", "lo"]], return_inverse=True, return_counts=True)
        out(records[["location"]][counts[keys] > 1].astype(SHARED))
        return {"words": len(counts)}


class SharedSink(FlagSink):
    """Writes the flags of one shard."""

    def write(self, found: FoundRows) -> None:
        self.write_flags(found.rows, found.mask)
        self.counts["shared"] += len(found.at)


@dataclass(frozen=True)
class SharedOutput(FlagOutput):
    """An attribute file for each shard."""

    def open(self, unit: Unit, shard: str) -> SharedSink:
        return SharedSink(self, unit.name)


@dataclass(frozen=True, kw_only=True)
class SharedWords(Exchange):
    """A call of the verb."""

    verb = "shared"
    version = 1

    def find(self, work: WorkDir) -> Generator[Step, Any, Found]:
        return (yield from self.exchanged(work, FirstWordEmitter(self.policy, self.verb), SharedReducer()))

    def output(self, infos: Sequence[Mapping[str, Any]] = ()) -> SharedOutput:
        return SharedOutput(self.root, self.name, ("text",), self.verb)


def flag_shared(root: str, options: RunOptions, policy: RecordPolicy) -> Summary:
    """Write what is missing of the flags."""
    dataset = open_dataset(root)
    columns = find_columns(dataset, COLUMNS)
    job = SharedWords(dataset=dataset, selected=dataset, columns=columns, name=NAME, policy=policy)
    return run_job(job, options)
