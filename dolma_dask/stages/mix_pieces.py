"""First pass of a mix whose files are cut by size or whose rows are shuffled: kept rows of each shard wait in a piece beside the output.

In listing order a piece is a file of small members, which the last pass only has to copy. For a shuffle, rows are scattered into buckets by a
hash of the seed, the path of their shard and their row; a second pass sorts each bucket in memory. So the order depends on the seed and the
listing alone, never on workers. Disk: the stored size of what is kept, once (twice while a shuffle is sorted). Memory: `RUN_BYTES` of
text and its copy in the first pass, three times `BUCKET_BYTES` in the second.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from isal import igzip, igzip_lib, isal_zlib

from dolma_dask.engine import Task
from dolma_dask.errors import CorruptFileError
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record
from dolma_dask.mixing.splicing import binary_array, string_parts_of
from dolma_dask.stages.mix_recipe import MixWork
from dolma_dask.stages.mix_rows import Kept, MixedShard
from dolma_dask.stages.mix_stage import pour
from dolma_dask.writers.jsonl import MEMBER_BYTES, JsonlWriter

RUN_BYTES = 128 << 20
"""Text that is held before it is scattered."""

BUCKET_BYTES = 64 << 20
"""Text of a bucket, about."""

TEXT_PER_STORED = 4
"""Text bytes per stored byte of gzip, about."""

MOST_BUCKETS = 1 << 14

Hashes = npt.NDArray[np.uint64]

_DAMAGE: tuple[type[Exception], ...] = (igzip_lib.IsalError, ValueError)  # type: ignore[assignment]


class PieceWriter(JsonlWriter):
    """JSON lines in members of a given size of text, so that files can be put together from members.

    Parameters
    ----------
    root, path : str
        See `JsonlWriter`.
    member_bytes : int
        Text after which a member ends, at the next end of a record.
    """

    def __init__(self, root: str, path: str, member_bytes: int) -> None:
        super().__init__(root, path)
        self._member_bytes = min(member_bytes, MEMBER_BYTES)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def write(self, rows: pa.LargeBinaryArray) -> None:
        """Append rows, each with its final newline."""
        if len(rows) == 0:
            return
        cut, data = string_parts_of(rows)
        self._check_rows(rows, cut)
        view = data.data
        done = 0
        while done < len(rows):
            wanted = cut[done] + self._member_bytes - len(self._waiting)
            stop = min(int(np.searchsorted(cut[done + 1 :], wanted)) + done + 1, len(rows))
            self._waiting += view[cut[done] : cut[stop]]
            self._waiting_rows += stop - done
            if len(self._waiting) >= self._member_bytes:
                self._end_member()
            done = stop

    @property
    def text_bytes(self) -> int:
        """Bytes of all lines; after a clean exit."""
        return self._text_bytes


class PieceSink:
    """Writes the kept rows of one shard as a file of small members."""

    def __init__(self, root: str, path: str, member_bytes: int) -> None:
        self._writer = PieceWriter(root, path, member_bytes)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def take(self, rows: Kept) -> None:
        """Append lines."""
        self._writer.write(rows.lines)

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """The piece."""
        return (self._writer.record,)

    @property
    def text_bytes(self) -> int:
        """Of the piece."""
        return self._writer.text_bytes


def bucket_count(stored_bytes: int) -> int:
    """Return into how many buckets documents of this stored size are scattered, a power of two."""
    wanted = stored_bytes * TEXT_PER_STORED // BUCKET_BYTES + 1
    return min(1 << (wanted - 1).bit_length(), MOST_BUCKETS)


def order_hashes(seed: int, path: str, rows: npt.NDArray[np.int64]) -> Hashes:
    """Return the hash by which the rows of a shard are ordered in a shuffle; rows that come several times have several.

    Parameters
    ----------
    seed : int
        0 to 2**64 - 1.
    path : str
        Of the shard.
    rows : int64[n]
        Row numbers in the shard, not descending.
    """
    base = np.uint64(xxhash.xxh64_intdigest(path.encode(), seed))
    firsts = np.searchsorted(rows, rows)
    copies = (np.arange(len(rows)) - firsts).astype(np.uint64)
    with np.errstate(over="ignore"):
        word = (
            base
            + rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            + copies * np.uint64(0xD1342543DE82EF95)
        )
        # the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), twice
        for _ in range(2):
            word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            word = word ^ (word >> np.uint64(31))
    return word


class ScatterSink:
    """Scatters the kept rows of one shard into buckets of a file, with an index beside it.

    Parameters
    ----------
    root, path : str
        The file; the index has the suffix ``.index``: int64[segments, 3], bucket, first byte and bytes.
    shard : str
        Path of the shard, for the order.
    seed : int
        Of the order.
    buckets : int
        A power of two.
    """

    def __init__(self, root: str, path: str, shard: str, seed: int, buckets: int) -> None:
        self._root, self._path, self._shard, self._seed = root, path, shard, seed
        self._shift = 64 - (buckets.bit_length() - 1)
        self._lines: list[pa.Array] = []
        self._hashes: list[Hashes] = []
        self._held = 0
        self._index: list[tuple[int, int, int]] = []
        self.text_bytes = 0
        self.files: tuple[FileRecord, ...] = ()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._out = stack.enter_context(publish(files.join(self._root, self._path)))
            stack.push(self._finish)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            self._write_index()

    def _finish(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()

    def _write_index(self) -> None:
        path = f"{self._path}.index"
        table = np.array(self._index, "<i8").reshape(-1, 3)
        with publish(files.join(self._root, path)) as out:
            out.write(table.tobytes())
        piece = FileRecord(self._path, self._out.bytes, self._out.checksum)
        self.files = (piece, FileRecord(path, out.bytes, out.checksum))

    def take(self, rows: Kept) -> None:
        """Hold rows until there are many."""
        if not len(rows.lines):
            return
        self._hashes.append(order_hashes(self._seed, self._shard, rows.numbers))
        self._lines.append(pa.concat_arrays([rows.lines]))
        self._held += rows.lines.nbytes
        if self._held >= RUN_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Write what is held, a segment for each bucket."""
        if not self._lines:
            return
        hashes, lines = np.concatenate(self._hashes), pa.concat_arrays(self._lines)
        self._hashes, self._lines, self._held = [], [], 0
        order = np.argsort(hashes, kind="stable")
        hashes, lines = hashes[order], lines.take(pa.array(order))
        bucket = (
            (hashes >> np.uint64(self._shift)).astype(np.int64)
            if self._shift < 64
            else np.zeros(len(hashes), np.int64)
        )
        firsts = np.flatnonzero(np.diff(bucket, prepend=-1))
        for first, stop in zip(firsts.tolist(), [*firsts[1:].tolist(), len(bucket)], strict=True):
            segment = igzip.compress(
                pack_rows(hashes[first:stop], lines.slice(first, stop - first)), 1, mtime=0
            )
            self._index.append((int(bucket[first]), self._out.bytes, len(segment)))
            self._out.write(segment)


def pack_rows(hashes: Hashes, lines: pa.LargeBinaryArray) -> bytes:
    """Return rows as bytes: their number, hashes and ends, and the lines."""
    cut, data = string_parts_of(lines)
    ends = (cut[1:] - cut[0]).astype("<i8")
    head = np.array([len(lines)], "<i8").tobytes()
    return b"".join([head, hashes.astype("<u8").tobytes(), ends.tobytes(), data[cut[0] : cut[-1]].tobytes()])


def unpack_rows(data: bytes) -> tuple[Hashes, pa.LargeBinaryArray]:
    """Return what `pack_rows` was given."""
    count = int(np.frombuffer(data, "<i8", 1)[0])
    hashes = np.frombuffer(data, "<u8", count, 8)
    offsets = np.zeros(count + 1, np.int64)
    offsets[1:] = np.frombuffer(data, "<i8", count, 8 + 8 * count)
    return hashes, binary_array(offsets, np.frombuffer(data, np.uint8, -1, 8 + 16 * count))


@dataclass(frozen=True)
class PieceWork:
    """A shard of the first pass.

    Attributes
    ----------
    path : str
        Of the piece, relative to the folder of pieces.
    name : str
        Of the shard in this run.
    mix : MixWork
        What is read and done.
    has_roots : bool
        Whether paths of inputs are told with the roots of their datasets.
    """

    path: str
    name: str
    mix: MixWork
    has_roots: bool = False

    def told(self, inputs: Sequence[InputRecord]) -> tuple[InputRecord, ...]:
        """Return inputs under the names that they have in this run."""
        if not self.has_roots:
            return tuple(inputs)
        return tuple(
            msgspec.structs.replace(item, path=files.join(self.mix.root, item.path)) for item in inputs
        )


@dataclass(frozen=True)
class PieceStage:
    """The first pass.

    Attributes
    ----------
    target, folder : str
        Output root, for the quarantine; and where pieces wait.
    member_bytes : int
        See `PieceWriter`.
    seed : int or None
        Of a shuffle.
    buckets : int
        Of a shuffle.
    policy : RecordPolicy
        What happens to bad records.
    """

    target: str
    folder: str
    member_bytes: int
    seed: int | None
    buckets: int
    policy: RecordPolicy = field(default_factory=RecordPolicy)
    verb: str = "mix"

    def _sink(self, work: PieceWork) -> PieceSink | ScatterSink:
        if self.seed is None:
            return PieceSink(self.folder, work.path, self.member_bytes)
        return ScatterSink(self.folder, work.path, work.name, self.seed, self.buckets)

    def run_shard(self, task: Task) -> list[Record]:
        """Read one shard; see `dolma_dask.engine.Stage`."""
        work: PieceWork = task.work
        quarantine = Quarantine(self.target, self.verb, work.name, self.policy)
        rows = MixedShard(work.mix, self.policy, quarantine)
        sink = self._sink(work)
        _, _, kept = pour(rows, (sink,), quarantine)
        state = rows.reader.state
        record = Record(
            unit=task.units[0].name,
            shard=task.shard,
            key=task.units[0].key,
            inputs=work.told(state.inputs),
            files=sink.files,
            rows=int(rows.counts["documents_out"]),
            counts={**rows.counts, "unproved_attribute_files": len(state.unproved)},
            info={
                "text_bytes": sink.text_bytes,
                "unproved": list(state.unproved),
                "quarantine": [[file.path, file.bytes, file.checksum, file.rows] for file in kept],
            },
        )
        return [record]


@dataclass(frozen=True)
class SortStage:
    """The second pass of a shuffle: the rows of one bucket from all pieces, sorted.

    Attributes
    ----------
    folder : str
        Where pieces wait.
    pieces : tuple of str
        Their paths, in the order of shards.
    member_bytes : int
        See `PieceWriter`.
    """

    folder: str
    pieces: tuple[str, ...]
    member_bytes: int
    verb: str = "mix-sort"

    def run_shard(self, task: Task) -> list[Record]:
        """Sort one bucket; see `dolma_dask.engine.Stage`."""
        bucket: int = task.work
        unit = task.units[0]
        parts = [part for path in self.pieces for part in _segments(self.folder, path, bucket)]
        with PieceWriter(self.folder, unit.name, self.member_bytes) as writer:
            if parts:
                hashes = np.concatenate([part[0] for part in parts])
                lines = pa.concat_arrays([part[1] for part in parts])
                order = np.argsort(hashes, kind="stable")  # equal ones stay in the order of shards and rows
                writer.write(lines.take(pa.array(order)))
        return [
            Record(
                unit=unit.name,
                shard=task.shard,
                key=unit.key,
                files=(writer.record,),
                rows=writer.record.rows,
                info={"text_bytes": writer.text_bytes},
            )
        ]


def _segments(folder: str, path: str, bucket: int) -> Iterator[tuple[Hashes, pa.LargeBinaryArray]]:
    """Yield the rows of a bucket in one piece, run by run."""
    url = files.join(folder, path)
    index = np.frombuffer(files.read_bytes(f"{url}.index"), "<i8").reshape(-1, 3)
    wanted = index[index[:, 0] == bucket]
    if not len(wanted):
        return
    with files.open_read(url) as handle:
        for _, first, size in wanted.tolist():
            handle.seek(first)
            data = read_exactly(handle, size, url)
            try:
                yield unpack_rows(isal_zlib.decompress(data, wbits=31))
            except _DAMAGE as error:
                raise CorruptFileError(
                    f"{url}: bytes {first} to {first + size} cannot be read ({error}); expected what an earlier pass wrote. Run the same "
                    "command again with --overwrite.",
                    url=url,
                ) from error


def read_exactly(handle: Any, size: int, url: str) -> bytes:
    """Read `size` bytes.

    Raises
    ------
    CorruptFileError
        The file ends before.
    """
    parts: list[bytes] = []
    left = size
    while left:
        piece = handle.read(left)
        if not piece:
            raise CorruptFileError(
                f"{url} ends {left} bytes too early; expected what an earlier pass wrote.", url=url
            )
        parts.append(piece)
        left -= len(piece)
    return b"".join(parts)
