"""Keys of bands, edges between documents that share one, and the array of all documents into which edges are merged.

A document is a docno here: its number in the listing of all shards. 16 bytes per document and band go through the exchange.

`EdgeReducer` gets the keys of a range in order and gives out an edge from the first document of a key to each of the others. Edges of one band make a
forest as they are; where a range holds several keys of a document they are contracted by union-find before they leave the task, so that at most as many
leave as there are documents in it, less one. In a large dataset there are more ranges than bands: contracting a range then takes half as long as
sorting it, and saves one edge in fifty. Memory does not depend on how many documents share a key.

`MergeStage` joins the edges of all tasks in one array with a number per document, 4 bytes each (8 from 2**31 documents on; verified ones 2 more): the memory of one
worker. Where it has not as much, `fuzzy.ranges` joins them. Roots are always the smallest docno, so that no order of the edges matters. What either leaves is `DocumentLabels`.
"""

import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.engine import Free, Input, Pass, Ran, Step, Task, Unit, WorkDir
from dolma_dask.errors import UsageError
from dolma_dask.exchange import Emitted
from dolma_dask.exchange.buckets import BucketRange
from dolma_dask.exchange.contract import Records, to_records, to_words
from dolma_dask.exchange.staged import DEFAULT, Staged
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import FileRecord
from dolma_dask.io.staging import StagingReader, stage
from dolma_dask.journal import Record, work_key
from dolma_dask.minhash.bands import Bands, band_records
from dolma_dask.minhash.components import flatten, raise_matches, unite
from dolma_dask.minhash.edges import STATE, Forest, label_clusters, root_bit, star_edges
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bools, Words
from dolma_dask.verbs.dedupe.fuzzy.choices import chosen_rows
from dolma_dask.verbs.dedupe.fuzzy.signatures import SignedShard, read_signatures

VERSION = 1
"""Raised when the staging files change for the same edges."""

KEYS = np.dtype([("key", "<u8"), ("docno", "<u8")])
"""A band of a document."""

EDGES = np.dtype([("low", "<u8"), ("high", "<u8")])
"""Two documents of one cluster, the smaller docno first."""

VERIFIED = np.dtype([*EDGES.descr, ("matches", "<u8")])
"""An edge of which it is known in how many values the signatures agree."""

MATCHES = np.dtype("<u2")
"""Type of the most matches of each document: signatures have fewer than 65,536 values."""

Labels = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]


def label_type(documents: int) -> np.dtype[np.unsignedinteger]:
    """Return the type of labels: the top bit tells roots, so that 4 bytes are enough for fewer than 2**31 documents."""
    return np.dtype("<u4" if documents < 1 << 31 else "<u8")


class BandEmitter(Struct, frozen=True):
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


class EdgeReducer(Struct, frozen=True):
    """Turns keys in order into edges; the exchange calls it once per range."""

    keys: int  # of a document in the range, about
    dtype: np.dtype[Any] = EDGES

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the edges of a range; returns the documents of the largest bucket."""
        state = np.zeros(STATE, np.uint64)
        forest = Forest() if self.keys > 1 else None
        largest = 0
        for run in runs:
            edges = np.empty((len(run), 2), np.uint64)
            count, longest = star_edges(for_kernel(to_words(run, run.dtype)), state, edges, False)
            largest = max(largest, int(longest))
            for found in [edges[:count]] if forest is None else forest.add(edges[:count]):
                out(to_records(found, EDGES))
        if forest is not None:
            out(to_records(forest.take(), EDGES))
        return {"largest": largest}


def edge_reducer(bands: int, keys: Staged) -> EdgeReducer:
    """Return the reducer of the keys of so many bands."""
    return EdgeReducer(-(-bands // max(len(keys.ranges(DEFAULT)), 1)))


class Merge(Struct, frozen=True):
    """Work of `MergeStage`."""

    edges: Staged
    span: BucketRange  # all of them
    documents: int
    previous: FileRecord | None = None  # parents of the bands before
    is_last: bool = True


class MergeStage(Struct, frozen=True):
    """Joins edges with those of the bands before; see `dolma_dask.engine.Stage`."""

    verb: str
    folder: str  # of the staging files

    def run_shard(self, task: Task) -> list[Record]:
        """Write the parents of all documents, or after the last band their labels; of verified edges the most matches of each too."""
        unit = task.unit
        work: Merge = task.work
        verified = work.edges.dtype == VERIFIED
        check_memory(bytes_needed(work.documents, verified))
        parents = self._parents(work)
        matches = np.zeros(work.documents if verified else 0, MATCHES)
        for rows in work.edges.read(work.span):
            unite(parents, for_kernel(rows[:, :2]))
            if verified:
                raise_matches(matches, for_kernel(rows))
        flatten(parents)
        info = {}
        if work.is_last:
            clusters, members = label_clusters(parents, root_bit(parents))
            info = {"clusters": int(clusters), "members": int(members)}
        every = {unit.name: parents, **({f"{unit.name}.matches": matches} if verified else {})}
        made = tuple(write_numbers(self.folder, path, one) for path, one in every.items())
        return [task.record(made, task.listed, info=info)]

    def _parents(self, work: Merge) -> Labels:
        if work.previous is None:
            return np.arange(work.documents, dtype=label_type(work.documents))
        return read_numbers(self.folder, work.previous, label_type(work.documents), 0, work.documents)


def bytes_needed(documents: int, verified: bool) -> int:
    """Return the memory of the worker that merges edges, besides that of any other."""
    return documents * (label_type(documents).itemsize + MATCHES.itemsize * verified)


def check_memory(needed: int) -> None:
    """Refuse to merge what does not fit into this process, before anything of it is there.

    Raises `UsageError`: it does not.
    """
    most = memory_limit()
    if needed > most:
        raise UsageError(
            f"clusters of so many documents need {needed / 1e9:,.1f} GB of memory in one worker, which may have {most / 1e9:,.1f} GB; expected a larger "
            "one. Use workers with more memory, or deduplicate parts of the dataset by themselves first (how='exact' removes many)."
        )


def memory_limit() -> int:
    """Return the bytes that this process may have: the limit of its Dask worker, else the memory of the machine."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if "distributed" in sys.modules:
        from distributed import get_worker

        with suppress(ValueError):
            return get_worker().memory_manager.memory_limit or physical
    return physical


def merge(
    work: WorkDir, edges: Staged, number: int, documents: int, previous: Record | None, is_last: bool
) -> Generator[Step, Any, Record]:
    """Merge the edges of a group of bands into the array of all documents, as a step of a job; frees what was read."""
    name = f"parents-{number:03d}.bin"
    span = edges.all
    params = {
        "documents": documents,
        "edges": edges.content,
        "previous": previous.key if previous else "",
        "last": is_last,
    }
    key = work_key("merge", VERSION, params)
    # a file that was freed is read by nothing that is left
    before = next(iter(previous.files), None) if previous else None
    source = FileInfo("edges", span.records * EDGES.itemsize, key)
    task = Task(
        name,
        (Unit(name, key),),
        (Input(source.path, source),),
        Merge(edges.without_records, span, documents, before, is_last),
    )
    ran: Ran = yield Pass(
        MergeStage(f"{work.verb}-merge", work.url),
        [task],
        reads=[*edges.records, *([previous] if previous else [])],
    )
    yield edges.free()
    if previous:
        yield Free(f"{work.verb}-merge", [previous])
    return ran.records[name]


# ------------------------------------------------------------------------------------------------ numbers of all documents


def write_numbers(folder: str, path: str, numbers: npt.NDArray[Any]) -> FileRecord:
    """Write a number per document to a file below `folder`."""
    with stage(files.join(folder, path)) as out:
        out.write(numbers.view(np.uint8).data)
    return FileRecord(path, out.bytes, out.checksum, len(numbers))


def read_numbers(
    folder: str, file: FileRecord, kind: np.dtype[Any], first: int, count: int
) -> npt.NDArray[Any]:
    """Return the numbers, of type `kind`, of `count` documents from `first` on.

    Raises `CorruptFileError`: the file is damaged; it is removed, so that the same command makes it again.
    """
    with StagingReader(files.join(folder, file.path), file.checksum, scattered=True) as opened:
        return np.frombuffer(opened.read(first * kind.itemsize, count * kind.itemsize), kind)


class DocumentLabels(Struct, frozen=True):
    """Labels of all documents (`dolma_dask.minhash.edges.label_clusters`) in the work folder, in files of `each` documents; for workers."""

    documents: int
    each: int
    labels: tuple[FileRecord, ...]
    matches: tuple[
        FileRecord | None, ...
    ] = ()  # the most of each document; None: 0; empty: pairs were not verified

    @classmethod
    def of(cls, merged: Record) -> Self:
        """Return those of one array."""
        labels, *matches = merged.files
        return cls(labels.rows, max(labels.rows, 1), (labels,), tuple(matches))

    def read(self, folder: str, first: int, count: int) -> Labels:
        """Return the labels of `count` documents from `first` on; see `read_numbers`."""
        return self._read(folder, self.labels, label_type(self.documents), first, count)

    def read_matches(self, folder: str, first: int, count: int) -> npt.NDArray[np.uint16]:
        """Return their most matches, 0 where pairs were not verified."""
        made = self.matches or (None,) * len(self.labels)
        return self._read(folder, made, MATCHES, first, count)

    def _read(
        self, folder: str, made: Sequence[FileRecord | None], kind: np.dtype[Any], first: int, count: int
    ) -> npt.NDArray[Any]:
        numbers = np.zeros(count, kind)
        for at in range(first // self.each, -(-(first + count) // self.each)):
            start, end = max(first, at * self.each), min(first + count, (at + 1) * self.each)
            file = made[at]
            if file is not None:
                part = read_numbers(folder, file, kind, start - at * self.each, end - start)
                numbers[start - first : end - first] = part
        return numbers
