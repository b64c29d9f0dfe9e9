"""A Bloom filter of all keys of an exchange: a piece for each range of keys, which together are the file, whoever made them."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import msgspec
import numpy as np
import xxhash
from msgspec import Struct
from msgspec.structs import asdict, replace

from dolma_dask.engine import Gather, Pass, Ran, Step, Task, WorkDir
from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.exchange import Emitter, Exchanged, Reducer
from dolma_dask.exchange.buckets import of_shards
from dolma_dask.exchange.contract import Records, Words, to_records, to_words
from dolma_dask.exchange.job import Found
from dolma_dask.exchange.passes import by_shard, range_tasks, reduce, scatter
from dolma_dask.exchange.staged import DEFAULT, Staged
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.text.columns import for_kernel
from dolma_dask.verbs.dedupe.bloom import (
    BLOCK_WORDS,
    PARTS,
    VERSION,
    FilterHead,
    Shape,
    Wanted,
    add_keys,
    read_head,
    wrong_shares,
)
from dolma_dask.verbs.dedupe.flags import FLAGS

_READ = 1 << 22


class Piece(Struct, frozen=True):
    """Some of the blocks, one after another."""

    bytes: int
    file: FileRecord | None = None  # below the work folder; None: zeros


class FilterJoin(Struct, frozen=True):
    """Goes through the pieces of a filter, and writes its file if the head is known; see `dolma_dask.engine.Gather`."""

    folder: str
    pieces: tuple[Piece, ...]
    head: FilterHead | None = None
    url: str = ""  # of the file
    verb: str = "dedupe-bloom"

    def run_shard(self, task: Task) -> str:
        """Return the digest of the blocks."""
        digest = xxhash.xxh3_128()
        if self.head is None:
            for part in self._blocks():
                digest.update(part)
            return digest.hexdigest()
        with publish(self.url) as out:
            out.write(self.head.encode())
            for part in self._blocks():
                out.write(part)
        return self.head.digest

    def step(self) -> Gather:
        """Return the step of a job that does it."""
        return Gather(self, [Task("filter", (), ())])

    def _blocks(self) -> Iterator[bytes]:
        for piece in self.pieces:
            if piece.file is None:
                for at in range(0, piece.bytes, _READ):
                    yield bytes(min(_READ, piece.bytes - at))
            else:
                yield from self._stored(piece.file)

    def _stored(self, file: FileRecord) -> Iterator[bytes]:
        """Yield a piece; raises `CorruptFileError` at its end if it is not as it was written."""
        url, digest = files.join(self.folder, file.path), xxhash.xxh3_128()
        with files.open_read(url) as handle:
            while part := handle.read(_READ):
                digest.update(part)
                yield part
        if digest.hexdigest() != file.checksum:
            raise files.damaged(url, f"checksum {digest.hexdigest()}")


class FilterStage(Struct, frozen=True):
    """Makes the piece of a range of keys; see `dolma_dask.engine.Stage`."""

    staged: Staged
    shape: Shape
    verb: str

    def run_shard(self, task: Task) -> list[Record]:
        """Write the blocks of the buckets of a range, one bucket after another."""
        span = task.work.span
        blocks = self.shape.blocks // PARTS
        bits, last = np.zeros(blocks * BLOCK_WORDS, np.uint64), np.zeros(3, np.uint64)
        count, wrong, bucket = 0, 0.0, span.first
        with publish(files.join(self.staged.folder, task.unit.name), synced=False) as out:
            for at, records in self._by_bucket(self.staged.sorted(span, DEFAULT)):
                while bucket < at:
                    wrong += self._write(out, bits)
                    bucket += 1
                count += int(
                    add_keys(
                        for_kernel(records), self.shape.blocks, self.shape.hashes, at * blocks, last, bits
                    )
                )
            while bucket < span.last:
                wrong += self._write(out, bits)
                bucket += 1
        info = {"first": span.first, "last": span.last, "count": count, "wrong": wrong}
        file = FileRecord(task.unit.name, out.bytes, out.checksum)
        return [task.record([file], task.listed, info=info)]

    def _write(self, out: Any, bits: Words) -> float:
        out.write(bits)
        wrong = wrong_shares(bits, self.shape.hashes) if bits.any() else 0.0
        bits[:] = 0
        return wrong

    def _by_bucket(self, chunks: Iterable[Words]) -> Iterator[tuple[int, Words]]:
        """Yield sorted records with the bucket that they are in."""
        shift = np.uint64(self.staged.bucketing.shift)
        for chunk in chunks:
            buckets = (chunk[:, 0] >> shift).astype(np.int64)
            starts = np.flatnonzero(np.diff(buckets, prepend=-1))
            for start, end in zip(starts.tolist(), [*starts.tolist()[1:], len(chunk)], strict=True):
                yield int(buckets[start]), chunk[start:end]


class Ordered(Struct, frozen=True):
    """A filter that is to be written."""

    file: str  # as seen from the dataset
    url: str
    wanted: Wanted
    keys: Mapping[str, Any]  # what its keys are of

    def params(self) -> dict[str, Any]:
        """Return everything that decides, wherever the dataset lies."""
        return {"file": self.file, "keys": self.keys, **asdict(self.wanted)}

    def check_place(self, of_old: Mapping[str, Any], known: Record | None, *, overwrite: bool) -> bool:
        """Tell whether the filter of a valid record is there; `of_old` is what the last record of this set tells, valid or not.

        Raises `UsageError`: another file is there.
        """
        there = files.stat(self.url)
        is_own = of_old.get(BLOOM, {}).get("file") == self.file
        if there is not None and not is_own and not overwrite:
            raise UsageError(
                f"{self.url} is there, and was not made with this attribute set; expected a free place for the filter. Choose another --bloom, flag what is in "
                "it with --read-only, or replace it with --overwrite."
            )
        head = head_in(known.info if known else {})
        if there is None or head is None:
            return False
        try:
            return read_head(self.url).head == head
        except CorruptFileError:
            return False


BLOOM = "bloom"
"""Name under which the record of a set tells of its filter."""


def head_in(info: Mapping[str, Any]) -> FilterHead | None:
    """Return the facts about the filter that the record of a set tells of."""
    return msgspec.convert(info[BLOOM]["head"], FilterHead) if BLOOM in info else None


class FilteredFound(Found, frozen=True, kw_only=True):
    """What was found out, with a filter that waits to be written."""

    join: FilterJoin

    @classmethod
    def of(cls, found: Found, join: "FilterJoin", file: str) -> Self:
        """Return what was found, with a filter."""
        info = {**found.info, BLOOM: {"file": file, "head": msgspec.to_builtins(join.head)}}
        known = {name: getattr(found, name) for name in found.__struct_fields__}
        return cls(**{**known, "info": info}, join=join)


def exchange_with_filter(
    work: WorkDir,
    emitter: Emitter,
    tasks: Sequence[Task],
    reducer: Reducer,
    shards: int,
    ordered: Ordered,
) -> Generator[Step, Any, tuple[Exchanged, FilterJoin]]:
    """Do what `dolma_dask.exchange.exchange` does, and make a filter of all keys on the way."""
    staged = yield from scatter(work, emitter, tasks)
    made = yield from _made(work, staged, ordered)
    reduced = yield from reduce(work, reducer, staged, cut=of_shards(shards))
    assert reduced.staged is not None, "the reducer gives out records"
    records = yield from by_shard(work, reduced.staged)
    return Exchanged(reduced.infos, staged.emitted, records), made


def _made(work: WorkDir, staged: Staged, ordered: Ordered) -> Generator[Step, Any, FilterJoin]:
    shape = ordered.wanted.shape(staged.all.records)
    key = work_key("bloom", VERSION, {"shape": [shape.blocks, shape.hashes], "content": staged.content})
    stage = FilterStage(staged.without_records, shape, f"{work.verb}-bloom")
    ran: Ran = yield Pass(stage, range_tasks("bloom", staged, DEFAULT, key), reads=staged.records)
    records = list(ran.records.values())
    join = FilterJoin(work.url, tuple(_pieces(records, shape)))
    (digest,) = yield join.step()
    count = sum(record.info["count"] for record in records)
    wrong = sum(record.info["wrong"] for record in records) / shape.blocks
    head = FilterHead(ordered.keys, shape.blocks, shape.hashes, count, float(f"{wrong:.6g}"), digest)
    return replace(join, head=head, url=ordered.url)


def _pieces(records: Sequence[Record], shape: Shape) -> Iterator[Piece]:
    """Yield the pieces of all buckets: of those without keys there is no file."""
    at, size = 0, shape.bytes // PARTS
    for record in records:
        first, last = record.info["first"], record.info["last"]
        yield Piece((first - at) * size)
        yield Piece((last - first) * size, record.files[0])
        at = last
    yield Piece((PARTS - at) * size)


class FoundReducer(Struct, frozen=True):
    """Gives out every record as that of a duplicate: what a filter has not found was not sent."""

    dtype: np.dtype[Any] = FLAGS

    def reduce(self, runs: Iterable[Records], out: Any) -> dict[str, Any]:
        """Give out the places of a range."""
        for run in runs:
            words = to_words(run, run.dtype)
            flags = np.zeros((len(words), 2), np.uint64)
            flags[:, 0] = words[:, -1]
            out(to_records(flags, FLAGS))
        return {"largest": []}
