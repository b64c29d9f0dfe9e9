"""Keys of bands: what documents with equal values in a band have in common.

A document is a docno here: its number in the listing of all shards. 16 bytes per document and band go through the exchange.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dolma_dask.engine import Input, Task, group_name, grouped
from dolma_dask.exchange import Emitted
from dolma_dask.exchange.contract import Records
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.minhash.bands import Bands, band_records
from dolma_dask.verbs.dedupe.signatures import read_signatures

KEYS = np.dtype([("key", "<u8"), ("docno", "<u8")])
"""A band of a document."""

TASK_BYTES = 64 << 20
"""Bytes of signatures that a task reads."""

TASK_SHARDS = 256
"""Shards that a task reads at most."""


@dataclass(frozen=True)
class SignedShard:
    """A shard with signatures."""

    number: int  # in the listing
    path: str  # relative to ``documents/``
    first: int  # docno of its first row
    rows: int
    file: FileRecord  # of its signatures

    @property
    def input(self) -> InputRecord:
        """The file as tasks name it: the checksum in place of a time stamp, since the file is of this job."""
        return InputRecord(self.file.path, self.file.bytes, self.file.checksum, self.file.checksum)


def signed_tasks(root: str, shards: Sequence[SignedShard]) -> list[Task]:
    """Return tasks that read the signatures of all shards, small ones together."""
    return [
        Task(
            group_name([shard.path for shard in group]),
            (),
            tuple(
                Input(
                    files.join(root, shard.file.path),
                    FileInfo(shard.file.path, shard.file.bytes, shard.file.checksum),
                )
                for shard in group
            ),
            tuple(group),
        )
        for group in grouped(shards, lambda shard: shard.file.bytes, TASK_BYTES, TASK_SHARDS)
    ]


@dataclass(frozen=True)
class BandEmitter:
    """Sends the keys of bands `first` to ``last - 1``; a task is a tuple of `SignedShard`. See `dolma_dask.exchange.Emitter`."""

    root: str  # of the dataset
    num_perm: int
    bands: Bands
    first: int
    last: int
    dtype: np.dtype[Any] = KEYS

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read the signatures of some shards."""
        shards: Sequence[SignedShard] = task.work
        for shard in shards:
            for records in self._records(shard):
                out(records)
        inputs = tuple(shard.input for shard in shards)
        return Emitted(inputs, sum(shard.rows for shard in shards))

    def _records(self, shard: SignedShard) -> Iterator[Records]:
        docno = shard.first
        for values, valid in read_signatures(files.join(self.root, shard.file.path), self.num_perm):
            docnos = np.arange(docno, docno + len(values), dtype=np.uint64)
            words = band_records(values, valid, docnos, self.bands, self.first, self.last)
            yield words.view(KEYS).reshape(-1)
            docno += len(values)
