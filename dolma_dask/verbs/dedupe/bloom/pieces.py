"""A Bloom filter of all keys of an exchange: a piece for each range of keys, which together are the file, whoever made them."""

import os
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

import msgspec
import numpy as np
import xxhash
from msgspec import Struct
from msgspec.structs import asdict, replace

from dolma_dask.display import byte_size
from dolma_dask.engine import Gather, Pass, Ran, Step, Task, WorkDir
from dolma_dask.engine.lease import leased
from dolma_dask.errors import CorruptFileError, DiskFullError, UsageError
from dolma_dask.exchange import Emitter, Exchanged, Reducer
from dolma_dask.exchange.buckets import of_shards
from dolma_dask.exchange.contract import Records, Words, to_records, to_words
from dolma_dask.exchange.job import Found
from dolma_dask.exchange.passes import by_shard, range_tasks, reduce, scatter
from dolma_dask.exchange.staged import DEFAULT, Staged
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.publish import publish, sweep
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.text.columns import for_kernel
from dolma_dask.verbs.dedupe.bloom.filters import (
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


class Place(Struct, frozen=True):
    """What is at the place of a filter."""

    file: files.FileInfo | None
    head: FilterHead | None  # None: no file, or no filter that can be read

    @property
    def digest(self) -> str:
        """Digest of the blocks."""
        return "" if self.head is None else self.head.digest


def look_at(url: str) -> Place:
    """Return what is at the place of a filter."""
    file = files.stat(url)
    try:
        return Place(file, None if file is None else read_head(url).head)
    except CorruptFileError:
        return Place(file, None)


def check_no_folder(url: str) -> None:
    """Refuse a folder as a filter."""
    if files.is_local(url) and files.local_path(url).is_dir():
        raise UsageError(f"{url} is a folder; expected the file of a Bloom filter, such as {url}/seen.bloom.")


def _check_room(url: str, size: int) -> None:
    folder = files.parent(url)
    if files.is_local(url) and (free := shutil.disk_usage(files.local_path(folder)).free) < size:
        raise DiskFullError(
            f"{folder} has {byte_size(free)} free; expected {byte_size(size)} for the Bloom filter. Make room, or take a smaller one: --bloom-bytes, or a higher "
            "--bloom-rate.",
            url=url,
        )


def lease_of_filter(url: str | None) -> AbstractContextManager[None]:
    """Hold the lease of the file of a filter while the block runs, and remove what a writer that was killed has left beside it."""
    return nullcontext() if url is None else _leased(files.normalize(url))


@contextmanager
def _leased(url: str) -> Iterator[None]:
    check_no_folder(url)
    folder, name = files.resolved(files.parent(url)), url.rpartition("/")[2]
    work = files.join(folder, f"{layout.WORK}/bloom-{xxhash.xxh3_64_hexdigest(os.fsencode(name))}")
    with leased(work, "dedupe", output=url):
        sweep(folder, name)
        yield


class FilterJoin(Struct, frozen=True):
    """Goes through the pieces of a filter, and writes its file if the head is known; see `dolma_dask.engine.Gather`."""

    folder: str
    pieces: tuple[Piece, ...]
    head: FilterHead | None = None
    url: str = ""  # of the file
    before: Place | None = None  # what was there when the run began
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

    def check(self) -> None:
        """Refuse to write in place of what another run has written meanwhile."""
        if self.before is not None and files.stat(self.url) != self.before.file:
            raise UsageError(
                f"{self.url} was written or removed by another run meanwhile; expected one at a time, and nothing has been written there now. Run the same command "
                "again, or choose another --bloom."
            )

    def step(self) -> Gather:
        """Return the step of a job that joins the pieces."""
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
        there, old = look_at(self.url), of_old.get(BLOOM, {})
        own = ("", old["head"]["digest"], old.get("before")) if old.get("file") == self.file else ()
        if there.file is not None and there.digest not in own and not overwrite:
            raise UsageError(
                f"{self.url} is there, and is not what was made with this attribute set; expected a free place for the filter. Choose another --bloom, flag what is in "
                "it with --read-only, or replace it with --overwrite."
            )
        head = head_in(known.info if known else {})
        return head is not None and there.head == head and _is_whole(self.url)


def _is_whole(url: str) -> bool:
    """Tell whether the blocks of a filter are those that were written; stores look at their own."""
    if files.is_local(url):
        try:
            read_head(url).check()
        except CorruptFileError:
            return False
    return True


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
        told = {"file": file, "head": msgspec.to_builtins(join.head)}
        if join.before is not None and join.before.digest:
            told["before"] = join.before.digest  # is there until the filter is written
        info = {**found.info, BLOOM: told}
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
    before = look_at(ordered.url)
    _check_room(ordered.url, ordered.wanted.shape(1).bytes)
    staged = yield from scatter(work, emitter, tasks)
    made = replace((yield from _made(work, staged, ordered)), before=before)
    reduced = yield from reduce(work, reducer, staged, cut=of_shards(shards))
    assert reduced.staged is not None, "the reducer gives out records"
    records = yield from by_shard(work, reduced.staged)
    return Exchanged(reduced.infos, staged.emitted, records), made


def _made(work: WorkDir, staged: Staged, ordered: Ordered) -> Generator[Step, Any, FilterJoin]:
    shape = ordered.wanted.shape(staged.all.records)
    _check_room(ordered.url, shape.bytes)
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
