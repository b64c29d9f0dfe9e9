"""Inputs of a pipeline from outside, and samples of them for trials, in which copies of a text stay together.

A record is drawn if the hash of its text is below a limit: so all copies of a text are in the sample or none, wherever they lie, and a pipeline keeps in the sample what it would keep of
the whole. Where near duplicates are looked for, the hash is the least of the n-grams, which two texts share with the probability of their similarity. Of files other than JSON lines and
Parquet a record is the whole file. Neighbouring files are put together, so that those of a sample are about as large as the real ones. Reads 100 to 300 MB of JSON per CPU-second.
"""

import bz2
import lzma
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from msgspec import Struct

from dolma_dask.dataset import Dataset, open_dataset, shard_info
from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.io.stored import StoredFile
from dolma_dask.io.stream import compression_of, read_lines
from dolma_dask.journal import Journal, Record
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.reading.catalog import Catalog
from dolma_dask.sources.mapping import is_sibling
from dolma_dask.sources.naming import list_raw, split_suffix
from dolma_dask.text import compute as pc

Ints = npt.NDArray[np.int64]
Rows: TypeAlias = Any
"""Neighbouring records: a batch of Parquet, or an array of lines."""

SMALL, LARGE, WHOLE = "small", "large", "whole"
"""Samples: some records, for what a stage costs anyway, and all that was drawn. Beside them: all that the pipeline reads."""

_SHARES = {SMALL: 1 / 16, LARGE: 1.0}
"""Shares of what is drawn; the small sample is a part of the large one."""

_MIN_FILES = {SMALL: 2, LARGE: 3}
"""Files of a sample at least, if there are as many: what several files need is in both, and they tell what each file adds."""

_BLOCK_BYTES = 8_000_000
"""Bytes of a batch of Parquet."""

_MIN_READ = 32_000_000
"""Stored bytes of a large file that are read at least."""

_FILES_READ = 8
"""At least so many files share what may be read."""


_PACK: dict[str | None, Callable[[bytes], bytes]] = {"bz2": bz2.compress, "xz": lzma.compress}
"""Compressions that Arrow does not write."""


class Scanned(Struct):
    """The records of a file, or of its beginning, and those in each sample."""

    info: FileInfo
    keys: npt.NDArray[np.uint64]  # (n,) evenly spread, equal for copies
    sizes: Ints  # (n,) bytes
    stored: int  # stored bytes that were read
    rows: dict[str, Ints] = {}  # by sample, ascending


class PipelineInput(Struct, dict=True):
    """Raw files or a dataset that the pipeline reads and no stage has made, and what was read of it."""

    url: str  # as it stands in the file, `located`
    number: int
    is_dataset: bool
    mapping: str = "dolma"  # of raw files
    stages: list[str] = []  # that read it
    scanned: list[Scanned] = []  # in the order of the listing
    counts: dict[str, int] = {}  # files of each sample, and of all

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset; only where it is one."""
        return open_dataset(self.url)

    @cached_property
    def listed(self) -> tuple[str, list[FileInfo]]:
        """A folder, and the document files or raw files in it, in the order of the listing."""
        if self.is_dataset:
            return self.dataset.root, list(map(shard_info, self.dataset.shards))
        root, infos = list_raw([self.url])
        return root, [info for info in infos if not is_sibling(self.mapping, info.path)]

    @property
    def files(self) -> list[FileInfo]:
        """The files of `listed`."""
        return self.listed[1]

    @property
    def stored(self) -> int:
        """Stored bytes."""
        return sum(info.bytes for info in self.files)

    @property
    def growth(self) -> float:
        """All stored bytes over those that were read."""
        return self.stored / max(sum(one.stored for one in self.scanned), 1)

    @property
    def bytes(self) -> float:
        """Bytes of all records."""
        return self.growth * sum(int(one.sizes.sum()) for one in self.scanned)

    @property
    def records(self) -> float:
        """Number of all records."""
        return self.growth * sum(len(one.keys) for one in self.scanned)

    def sampled(self, name: str) -> int:
        """Return the bytes of the records in a sample."""
        return sum(int(one.sizes[one.rows[name]].sum()) for one in self.scanned)


# ----------------------------------------------------------------------------------------------------------- reading


def scan(
    entries: Sequence[PipelineInput],
    near: MinHash | None,
    seed: int,
    scan_bytes: int,
    advance: Callable[[int], None],
) -> None:
    """Read the records of entries, as far as `scan_bytes` allows: files in an order that the seed decides.

    Raises `UsageError`: an entry holds no records.
    """
    total = max(sum(entry.stored for entry in entries), 1)
    for entry in entries:
        left = max(int(scan_bytes * entry.stored / total), 1)
        limit = max(_MIN_READ, left // _FILES_READ) if entry.stored > left else entry.stored
        for info in sorted(entry.files, key=lambda it: xxhash.xxh3_64_intdigest(it.path.encode(), seed=seed)):
            if left > 0:
                entry.scanned.append(
                    _scan(files.join(entry.listed[0], info.path), info, near, seed, min(limit, left))
                )
                left -= entry.scanned[-1].stored
                advance(entry.scanned[-1].stored)
        entry.scanned.sort(key=lambda one: one.info.path.encode())
        if not any(len(one.keys) for one in entry.scanned):
            raise UsageError(
                f"{entry.url} holds no records in {counted(len(entry.scanned), 'file')} that were read; expected documents to draw a sample from."
            )


def _scan(url: str, info: FileInfo, near: MinHash | None, seed: int, limit: int) -> Scanned:
    """Read a file, or about `limit` stored bytes of it."""
    if kind_of(url) == "whole":
        return Scanned(info, _keys_of([info.path], None, seed), np.array([info.bytes]), info.bytes)
    keys, sizes, stored = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], 0
    for rows, stored in _blocks(url, info.bytes):
        keys.append(_keys_of(_texts_of(rows), near, seed))
        sizes.append(_sizes_of(rows))
        if stored >= limit:
            break
    return Scanned(info, np.concatenate(keys), np.concatenate(sizes), stored)


def kind_of(path: str) -> str:
    """Return how records lie in a file: `jsonl`, `parquet` or `whole`."""
    try:
        kind = split_suffix(path).kind
    except UsageError:
        return "jsonl" if layout.suffix_of(path) else "whole"
    return kind if kind in ("jsonl", "parquet") else "whole"


def _blocks(url: str, size: int) -> Iterator[tuple[Rows, int]]:
    """Yield the records of a file of `size` stored bytes, each time with how many of these are behind them."""
    if kind_of(url) == "parquet":
        table, done = open_parquet(url), 0
        for batch in read_batches(url, table, None, _BLOCK_BYTES):
            done += len(batch)
            yield batch, size * done // max(table.metadata.num_rows, 1)
        return
    with closing(StoredFile(url)) as stored:
        for block in read_lines(stored, compression_of(url.lower())):
            buffers = [None, pa.py_buffer(block.starts), pa.py_buffer(block.data)]
            lines = pa.Array.from_buffers(pa.large_binary(), len(block.starts) - 1, buffers)
            yield lines, min(stored.position, size)


def _sizes_of(rows: Rows) -> Ints:
    if isinstance(rows, pa.RecordBatch):
        return np.full(len(rows), rows.nbytes // max(len(rows), 1))
    return np.asarray(pc.binary_length(rows))


def _texts_of(rows: Rows) -> list[str]:
    """Return the text of each record, else its longest string; one that has none, such as a line that is no JSON, stands for itself."""
    if isinstance(rows, pa.RecordBatch):
        return list(map(_text_of, rows.to_pylist()))
    return [_text_of(_decoded(line)) for line in rows.to_pylist()]


def _decoded(line: bytes) -> Any:
    try:
        return _decoder.decode(line)
    except NOT_JSON:
        return line.decode(errors="replace")


_decoder = msgspec.json.Decoder()


def _text_of(record: Any) -> str:
    text = record.get("text") if isinstance(record, dict) else None
    return text if isinstance(text, str) else _longest(record) or str(record)


def _longest(value: Any) -> str:
    if isinstance(value, str):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_longest, parts), key=len, default="")


def _keys_of(texts: Sequence[str], near: MinHash | None, seed: int) -> npt.NDArray[np.uint64]:
    """Return a number for each text (n,), evenly spread: equal for equal texts, and mostly for those that are alike where `near` is given."""
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    if near is not None and texts:
        signed = near.sign(pa.array(texts, pa.large_string()))
        for at in np.flatnonzero(near.has_signature(signed.kinds)):
            data[at] = signed.values[at, 0].tobytes()
    return np.fromiter((xxhash.xxh3_64_intdigest(item, seed) for item in data), np.uint64, len(data))


# ----------------------------------------------------------------------------------------------------------- drawing


def draw(entries: Sequence[PipelineInput], sample_bytes: int) -> None:
    """Draw the samples: sets `Scanned.rows`. Each has a record of every entry.

    Raises `UsageError`: something can only be taken whole and is too large.
    """
    total = sum(int(one.sizes.sum()) for entry in entries for one in entry.scanned)
    share = min(sample_bytes / max(total, 1), 1.0)
    for entry in entries:
        least = min(one.keys.min() for one in entry.scanned if len(one.keys))
        for one in entry.scanned:
            for name, part in _SHARES.items():
                limit = max(np.uint64(part * share * (2.0**64 - 2.0**11)), least)
                one.rows[name] = np.flatnonzero(one.keys <= limit)
            size = int(one.sizes[one.rows[LARGE]].sum()) if kind_of(one.info.path) == "whole" else 0
            if size > 4 * sample_bytes:
                raise UsageError(
                    f"{files.join(entry.listed[0], one.info.path)} can only be taken whole and holds {size / 1e6:,.0f} MB; expected at most four times "
                    f"--sample-bytes {sample_bytes:,}. Give a larger number, or smaller files."
                )


# ------------------------------------------------------------------------------------------------------------ writing


def write_sample(entry: PipelineInput, name: str, folder: str) -> None:
    """Write a sample of an entry, with the attributes of its documents, to a folder: sets `PipelineInput.counts`."""
    groups = _groups(entry, name)
    entry.counts |= {name: len(groups), WHOLE: len(entry.files)}
    sets = list(_attribute_files(entry.dataset)) if entry.is_dataset else []
    made_by = Catalog(entry.dataset).written if entry.is_dataset else {}
    for group in groups:
        paths = [one.info.path for one in group]
        stems = [layout.stem_of(path.removeprefix(f"{layout.DOCUMENTS}/")) for path in paths]
        beside = [[known[stem] for stem in stems] for known in sets if known.keys() >= {*stems}]
        for chosen in (paths, *beside):
            data = _sample_file(entry.listed[0], chosen, [one.rows[name] for one in group])
            with publish(files.join(folder, chosen[0]), synced=False) as out:
                out.write(data)
            if chosen[0] in made_by:
                _declare(folder, chosen[0], data, *made_by[chosen[0]])


def _groups(entry: PipelineInput, name: str) -> list[list[Scanned]]:
    """Return neighbouring files of one kind that become one: about as many as are in proportion, or `_MIN_FILES`."""
    used = [one for one in entry.scanned if len(one.rows[name])]
    wanted = len(entry.files) * entry.sampled(name) / max(entry.bytes, 1.0)
    count = max(min(_MIN_FILES[name], len(entry.files)), round(wanted))
    groups: defaultdict[tuple[str | None, int], list[Scanned]] = defaultdict(list)
    for number, one in enumerate(used):
        path = one.info.path
        kind = {"parquet": "parquet", "jsonl": compression_of(path.lower())}.get(kind_of(path), path)
        groups[kind, number * count // len(used)].append(one)
    return list(groups.values())


def _attribute_files(dataset: Dataset) -> Iterator[dict[str, str]]:
    """Yield the files of each attribute set relative to the dataset, by stem."""
    for name in dataset.attributes:
        folder = f"{layout.ATTRIBUTES}/{name}"
        listed = files.list_files(dataset.url(folder))
        yield {layout.stem_of(info.path): f"{folder}/{info.path}" for info in listed}


def _sample_file(root: str, paths: Sequence[str], rows: Sequence[Ints]) -> bytes:
    """Return ascending rows of neighbouring files of one kind as one file; lines are compressed as its suffix says."""
    kind = kind_of(paths[0])
    if kind == "whole":
        return files.read_bytes(files.join(root, paths[0]))
    pieces = [
        piece
        for path, mine in zip(paths, rows, strict=True)
        for piece in _taken(files.join(root, path), mine)
    ]
    if kind == "parquet":
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches(pieces), buffer, compression="zstd")
        return bytes(buffer.getvalue())
    data = b"".join(line for piece in pieces for line in piece.to_pylist())
    compression = compression_of(paths[0].lower())
    if compression in _PACK:
        return _PACK[compression](data)
    return bytes(pa.compress(data, codec=compression, asbytes=True)) if compression else data


def _taken(url: str, rows: Ints) -> Iterator[Rows]:
    first = 0
    for block, _ in _blocks(url, 0) if len(rows) else ():
        begin, end = np.searchsorted(rows, [first, first + len(block)])
        if end > begin:
            yield block.take(pa.array(rows[begin:end] - first))
        first += len(block)
        if first > rows[-1]:
            return


def _declare(folder: str, path: str, data: bytes, verb: str, record: Record) -> None:
    """Tell the keys of an attribute file as the journal of the dataset does: its rows may hold none, such as flags that are rare."""
    info: dict[str, Any] = {"unproved": True}
    info.update((name, record.info[name]) for name in ("kinds", "levels") if name in record.info)
    there = files.stat(files.join(folder, path))
    written = FileRecord(path, len(data), xxhash.xxh3_128_hexdigest(data), stamp=there.stamp if there else "")
    sample = Record(path, record.shard, "sample", files=(written,), info=info)
    Journal(folder, verb).append(sample)
