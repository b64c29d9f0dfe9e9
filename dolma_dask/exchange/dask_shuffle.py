"""Records to their reducers through Dask's own dataframe shuffle, for slow shared storage: nothing but side files is written before.

It costs several times the CPU of files (every record becomes a row of a frame), begins anew when it is killed, may stall when a worker is lost, holds the records of a task and of
a partition in memory several times, and one key cannot be spread over partitions: skewed keys need memory.
"""

import uuid
from collections.abc import Generator, Sequence
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct

from dolma_dask import clusters
from dolma_dask.engine import Step, Task, WorkDir
from dolma_dask.engine.attempts import failure
from dolma_dask.engine.batches import Quoted
from dolma_dask.errors import StageError
from dolma_dask.exchange.buckets import Bucketing
from dolma_dask.exchange.contract import Emitter, Records, Reducer, Words, to_records, to_words, word_count
from dolma_dask.exchange.ordering import chunks_of, sort_grouped
from dolma_dask.exchange.passes import staged_files, write_records
from dolma_dask.exchange.staged import Limits, Reduced, file_of
from dolma_dask.io import files, late
from dolma_dask.io.publish import publish
from dolma_dask.journal import Record
from dolma_dask.options.groups import RunOptions

if TYPE_CHECKING:
    import pandas as pd

PARTITIONS = (8, 256)
"""Least and most partitions; between them as many as the inputs have multiples of the bytes of a range."""

RANGE = "range"
"""Column of the range of keys that a record belongs to: the top bits of its first word."""


class _Sent(Struct, frozen=True):
    """Tasks whose records wait for a reducer: emitters and reducers are in one graph of Dask."""

    emitter: Emitter
    tasks: tuple[Task, ...]


class DaskTransport(Struct, frozen=True):
    """See `dolma_dask.exchange.passes.Transport`."""

    work: WorkDir
    limits: Limits

    def write(self, emitter: Emitter, tasks: Sequence[Task]) -> Generator[Step, Any, _Sent]:
        """See `Transport`; nothing is done before `read`."""
        yield from ()
        return _Sent(emitter, tuple(tasks))

    def read(
        self, sent: _Sent, reducer: Reducer, cut: Bucketing
    ) -> Generator[Step, Any, tuple[dict[str, Record], Reduced]]:
        """See `Transport`."""
        least, most = PARTITIONS
        partitions = min(max(sum(task.bytes for task in sent.tasks) // self.limits.range, least), most)
        # eight ranges per partition, or Dask's hash would leave some empty
        shift = 64 - (8 * partitions - 1).bit_length()
        shuffle = _Shuffle(self.work, sent.emitter, reducer, self.limits, cut, shift)
        parts: list[Record] = yield partial(_compute, shuffle, sent.tasks, partitions)
        infos = sorted((pair for part in parts for pair in part.info["reduced"]), key=itemgetter(0))
        out = reducer.dtype
        staged = None if out is None else staged_files(self.work, "reduce", out, cut, tuple(parts))
        emitted = map(shuffle.emitted, range(len(sent.tasks)))
        return {one.shard: one for one in emitted}, Reduced(tuple(info for _, info in infos), staged)


def _compute(
    shuffle: "_Shuffle", tasks: Sequence[Task], partitions: int, options: RunOptions
) -> list[Record]:
    if not tasks:
        return []
    import dask
    from dask.dataframe import from_map

    sizes = [task.bytes for task in tasks]
    in_memory = files.is_in_memory(shuffle.work.url)
    with clusters.open_placement(
        options.scheduler,
        options.workers,
        sizes,
        verb=shuffle.work.verb,
        in_memory=in_memory,
        profile=options.cluster,
    ) as placement:
        scheduler = placement.client or placement.scheduler
        label = f"{shuffle.work.verb}-{uuid.uuid4().hex[:8]}"  # or Dask might give back what an earlier call has shuffled
        numbered = [Quoted(pair) for pair in enumerate(tasks)]
        with dask.config.set(scheduler=scheduler):
            frame = from_map(shuffle.emit, numbered, meta=shuffle.frame([]), label=label)
            moved = frame.shuffle(RANGE, npartitions=partitions, ignore_index=True).to_delayed()
            reduce = dask.delayed(shuffle.reduce, pure=False)
            return list(dask.compute(*(reduce(part, number) for number, part in enumerate(moved))))


class _Shuffle(Struct, frozen=True):
    """The work of both sides, on workers."""

    work: WorkDir
    emitter: Emitter
    reducer: Reducer
    limits: Limits
    cut: Bucketing
    shift: int

    def record_url(self, number: int) -> str:
        """Return where the record of a task is kept."""
        return files.join(self.work.url, f"scatter/{number:06d}.json")

    def emitted(self, number: int) -> Record:
        """Return the record of a task."""
        url = self.record_url(number)
        return msgspec.json.decode(late.opened(url, lambda: files.read_bytes(url)), type=Record)

    def emit(self, numbered: Quoted) -> "pd.DataFrame":
        """Return the records of a task as a frame, and write what the emitter tells."""
        number, task = numbered.value
        parts: list[Words] = []

        def take(records: Records) -> None:
            parts.append(to_words(records, self.emitter.dtype).copy())

        try:
            emitted = self.emitter.emit(task, take, self.work.url)
        except Exception as error:
            what = failure(task, error)
            raise StageError(f"{task.shard}: {what.error}: {what.message}", failures=(what,)) from error
        record = Record(
            task.shard,
            task.shard,
            "",
            emitted.inputs,
            emitted.files,
            emitted.rows,
            counts=emitted.counts,
            info=emitted.info,
        )
        with publish(self.record_url(number)) as out:
            out.write(msgspec.json.encode(record))
        return self.frame(parts)

    def frame(self, parts: list[Words]) -> "pd.DataFrame":
        """Return records as a frame with a column per word, and their ranges."""
        import pandas as pd

        words = word_count(self.emitter.dtype)
        rows = np.concatenate(parts) if parts else np.empty((0, words), np.uint64)
        columns = {f"word{word}": np.ascontiguousarray(rows[:, word]) for word in range(words)}
        return pd.DataFrame(
            {**columns, RANGE: (rows[:, 0] >> np.uint64(self.shift)).astype(np.uint16)}, copy=False
        )

    def reduce(self, frame: "pd.DataFrame", number: int) -> Record:
        """Reduce the ranges that Dask has put into one partition, one by one."""
        dtype, path = self.emitter.dtype, file_of("reduce", number)
        rows = np.stack([frame[f"word{word}"].to_numpy() for word in range(word_count(dtype))], axis=1)
        sort_grouped(rows, [len(rows)])
        chunks = chunks_of(rows, self.limits.records(min(self.limits.chunk, self.limits.range), dtype))
        pieces = (
            (int(rows[begin, 0] >> np.uint64(self.shift)), to_records(rows[begin:end], dtype))
            for rows in chunks
            for begin, end in pairwise(_bounds(rows[:, 0] >> np.uint64(self.shift)))
        )
        ranges = ((at, (piece for _, piece in group)) for at, group in groupby(pieces, itemgetter(0)))
        reduced, written, info = write_records(
            self.work.url,
            path,
            self.reducer.dtype,
            self.cut,
            self.limits,
            lambda out: [(at, self.reducer.reduce(runs, out)) for at, runs in ranges],
        )
        return Record(path, path, "", files=written, info={"reduced": reduced, **info})


def _bounds(ranges: Words) -> list[int]:
    return [0, *(np.flatnonzero(ranges[1:] != ranges[:-1]) + 1).tolist(), len(ranges)]
