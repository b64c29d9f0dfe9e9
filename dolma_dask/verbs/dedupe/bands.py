"""Keys of bands: what documents with equal values in a band have in common.

A document is a docno here: its number in the listing of all shards. 16 bytes per document and band go through the exchange.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np

from dolma_dask.engine import Input, Task, group_name, grouped
from dolma_dask.exchange import Emitted
from dolma_dask.exchange.contract import Records
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.minhash.bands import Bands, band_records
from dolma_dask.text.kernels import Bools, Words
from dolma_dask.verbs.dedupe.choosing import chosen_rows
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
    root: str  # of its dataset
    path: str  # relative to ``documents/``
    first: int  # docno of its first row
    rows: int
    file: FileRecord  # of its signatures
    choice: FileRecord | None = None  # in the work folder; None: all documents take part

    @property
    def inputs(self) -> tuple[InputRecord, ...]:
        """The files as tasks name them: the checksum in place of a time stamp, since they are of this job."""
        read = (self.file, self.choice) if self.choice else (self.file,)
        return tuple(InputRecord(file.path, file.bytes, file.checksum, file.checksum) for file in read)

    @property
    def url(self) -> str:
        """File of its signatures."""
        return files.join(self.root, self.file.path)

    def inputs_at(self, folder: str) -> tuple[Input, ...]:
        """Return the files as inputs of a task, below the dataset and the work folder."""
        roots = (self.root, folder)
        return tuple(
            Input(files.join(base, one.path), FileInfo(one.path, one.bytes, one.stamp))
            for base, one in zip(roots, self.inputs, strict=False)
        )


def holding(shards: Sequence[SignedShard], first: int, last: int, shift: int) -> slice:
    """Return which shards hold the documents whose docnos, shifted up, lie from `first` to ``last - 1``."""
    begin = bisect_right(shards, first >> shift, key=attrgetter("first")) - 1
    return slice(max(begin, 0), bisect_right(shards, (last - 1) >> shift, key=attrgetter("first")))


def signed_tasks(folder: str, shards: Sequence[SignedShard]) -> list[Task]:
    """Return tasks that read the signatures of all shards, small ones together; `folder` is the work folder."""
    return [
        Task(
            group_name([shard.path for shard in group]),
            (),
            tuple(item for shard in group for item in shard.inputs_at(folder)),
            tuple(group),
        )
        for group in grouped(shards, lambda shard: shard.file.bytes, TASK_BYTES, TASK_SHARDS)
    ]


@dataclass(frozen=True)
class BandEmitter:
    """Sends the keys of bands `first` to ``last - 1``; a task is a tuple of `SignedShard`. See `dolma_dask.exchange.Emitter`."""

    num_perm: int
    bands: Bands
    first: int
    last: int
    dtype: np.dtype[Any] = KEYS

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read the signatures of some shards."""
        shards: Sequence[SignedShard] = task.work
        for shard in shards:
            for records in self._records(shard, folder):
                out(records)
        inputs = tuple(item for shard in shards for item in shard.inputs)
        return Emitted(inputs, sum(shard.rows for shard in shards))

    def _records(self, shard: SignedShard, folder: str) -> Iterator[Records]:
        docno = shard.first
        signatures = read_signatures(shard.url, self.num_perm)
        chosen: Iterable[tuple[Bools | bool, Words | None]] = repeat((True, None))
        if shard.choice is not None:
            chosen = chosen_rows(folder, shard.choice)
        for (values, valid), (kept, salts) in zip(signatures, chosen, strict=False):
            docnos = np.arange(docno, docno + len(values), dtype=np.uint64)
            words = band_records(values, valid & kept, docnos, self.bands, self.first, self.last, salts)
            yield words.view(KEYS).reshape(-1)
            docno += len(values)
