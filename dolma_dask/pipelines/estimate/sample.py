"""Inputs of a pipeline from outside, and seeded samples of them for trials, in which copies of a text stay together.

Records are cut into runs of neighbours, a share of which is drawn, evenly spread: neighbours are alike, so that the sample deflates like the whole. Copies belong to the run of the first of them,
wherever they lie, so that a pipeline keeps in the sample what it would keep of the whole. Texts are copies if they are equal, and where near duplicates are looked for, if they share the
least hash of their n-grams, as two texts do with the probability of their similarity. Of files other than JSON lines and Parquet a record is the whole file.
Neighbouring files are put together, so that those of a sample are about as large as the real ones. Reads 100 to 300 MB of JSON per CPU-second.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

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
from dolma_dask.io.stream import LineBlock, compression_of, read_lines
from dolma_dask.journal import Journal, Record
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.reading.catalog import Catalog
from dolma_dask.sources.mapping import is_sibling
from dolma_dask.sources.naming import list_raw, split_suffix

Ints = npt.NDArray[np.int64]

SMALL, LARGE = "small", "large"
"""Samples: some records, for what a stage costs anyway, and all that was drawn."""

_MIN_FILES = {SMALL: 2, LARGE: 3}
"""Files of a sample at least, if there are as many: what several files need is in both, and they tell what each file adds."""

_SMALL_RUNS = 16
"""One in so many runs that are drawn is in the small sample."""

_RUN_BYTES = 16_000
"""Bytes of neighbours that are drawn together: half a window of gzip. Longer runs are too few where most documents are copies."""

_BLOCK_BYTES = 8_000_000
"""Bytes of a batch of Parquet."""

_MIN_READ = 32_000_000
"""Stored bytes of a large file that are read at least."""

_FILES_READ = 8
"""At least so many files share what may be read."""


@dataclass
class Scanned:
    """The records of a file, or of its beginning."""

    info: FileInfo
    keys: npt.NDArray[np.uint64]  # (n,) equal for copies
    sizes: Ints  # (n,) bytes
    stored: int  # stored bytes that were read
    texts: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # (n,) number of each among all texts
    drawn: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)  # by sample (n,)


@dataclass
class PipelineInput:
    """Raw files or a dataset that the pipeline reads and no stage has made, and what was read of it."""

    url: str  # as it stands in the file, `located`
    number: int
    is_dataset: bool
    mapping: str = "dolma"  # of raw files
    stages: list[str] = field(default_factory=list)  # that read it
    scanned: list[Scanned] = field(default_factory=list)  # in the order of the listing
    counts: dict[str, int] = field(default_factory=dict)  # files of each sample

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset; only where it is one."""
        return open_dataset(self.url)

    @cached_property
    def _listed(self) -> tuple[str, list[FileInfo]]:
        if self.is_dataset:
            return self.dataset.root, list(map(shard_info, self.dataset.shards))
        root, infos = list_raw([self.url])
        return root, [info for info in infos if not is_sibling(self.mapping, info.path)]

    @property
    def root(self) -> str:
        """The folder that paths of `files` are relative to."""
        return self._listed[0]

    @property
    def files(self) -> list[FileInfo]:
        """Its document files or raw files, in the order of the listing."""
        return self._listed[1]

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

    @property
    def largest(self) -> float:
        """Bytes of the records of the largest file."""
        return max(info.bytes for info in self.files) * self.bytes / self.stored

    def sampled(self, name: str) -> int:
        """Return the bytes of the records in a sample."""
        return sum(int(one.sizes[one.drawn[name]].sum()) for one in self.scanned)


# ----------------------------------------------------------------------------------------------------------- reading


class _Block(NamedTuple):
    """Neighbouring records of a file."""

    texts: Callable[[], Sequence[str]]
    sizes: Ints  # (n,) bytes
    take: Callable[[Ints], Any]  # bytes or a table of some of them
    stored: int  # stored bytes of the file up to here


def _blocks(url: str, size: int) -> Iterator[_Block]:
    """Yield the records of a file of so many stored bytes."""
    kind = kind_of(url)
    if kind == "parquet":
        table = open_parquet(url)
        rows, done = table.metadata.num_rows, 0
        for batch in read_batches(url, table, None, _BLOCK_BYTES):
            done += len(batch)
            sizes = np.full(len(batch), batch.nbytes // max(len(batch), 1))
            yield _Block(partial(_column, batch), sizes, batch.take, size * done // max(rows, 1))
    elif kind == "jsonl":
        with closing(StoredFile(url)) as stored:
            for block in read_lines(stored, compression_of(url.lower())):
                read = min(stored.position, size)
                yield _Block(partial(_texts_of, block), np.diff(block.starts), partial(_lines, block), read)
    else:
        yield _Block(lambda: [url], np.array([size]), lambda _: files.read_bytes(url), size)


def kind_of(path: str) -> str:
    """Return how records lie in a file: `jsonl`, `parquet` or `whole`."""
    try:
        kind = split_suffix(path).kind
    except UsageError:
        return "whole"
    return kind if kind in ("jsonl", "parquet") else "whole"


def _column(batch: pa.RecordBatch) -> Sequence[str]:
    """Return the column of texts, else the last of strings; rows without any stand for themselves."""
    strings = [f.name for f in batch.schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    if not strings:
        return list(map(str, batch.to_pylist()))
    name = "text" if "text" in strings else strings[-1]
    return [text or "" for text in batch.column(name).to_pylist()]


def _lines(block: LineBlock, rows: Ints) -> bytes:
    return b"".join(block.data[block.starts[i] : block.starts[i + 1]].tobytes() for i in rows)


def _texts_of(block: LineBlock) -> Sequence[str]:
    decode = msgspec.json.Decoder().decode
    return [_text_of(line, decode) for line in block]


def _text_of(line: bytes, decode: Callable[[bytes], Any]) -> str:
    """Return the text of a record, else its longest string; a line that is no JSON stands for itself."""
    try:
        record = decode(line)
    except NOT_JSON:
        return line.decode(errors="replace")
    text = record.get("text") if isinstance(record, dict) else None
    return text if isinstance(text, str) else _longest(record)


def _longest(value: Any) -> str:
    if isinstance(value, str):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_longest, parts), key=len, default="")


def _keys_of(texts: Sequence[str], near: MinHash | None) -> npt.NDArray[np.uint64]:
    """Return a number for each text (n,): equal for equal texts, and mostly for those that are alike where `near` is given."""
    hashes = (xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")) for text in texts)
    keys = np.fromiter(hashes, np.uint64, len(texts))
    if near is not None and texts:
        signed = near.sign(pa.array(texts, pa.large_string()))
        has = near.has_signature(signed.kinds)
        keys[has] = signed.values[has, 0]
    return keys


def scan_entries(
    entries: Sequence[PipelineInput],
    near: MinHash | None,
    seed: int,
    scan_bytes: int,
    advance: Callable[[int], None],
) -> None:
    """Read the records of entries, as far as `scan_bytes` allows: whole files in an order that the seed decides.

    Raises `UsageError`: an entry holds no records.
    """
    total = sum(entry.stored for entry in entries)
    for entry in entries:
        left = max(int(scan_bytes * entry.stored / total), 1)
        limit = max(_MIN_READ, left // _FILES_READ) if entry.stored > left else entry.stored
        for info in sorted(
            entry.files, key=lambda info: xxhash.xxh3_64_intdigest(info.path.encode(), seed=seed)
        ):
            if left > 0:
                entry.scanned.append(_scan(files.join(entry.root, info.path), info, near, min(limit, left)))
                left -= entry.scanned[-1].stored
                advance(entry.scanned[-1].stored)
        entry.scanned.sort(key=lambda one: one.info.path.encode())
        if not any(len(one.keys) for one in entry.scanned):
            raise UsageError(
                f"{entry.url} holds no records in {counted(len(entry.scanned), 'file')} that were read; expected documents to draw a sample from."
            )


def _scan(url: str, info: FileInfo, near: MinHash | None, limit: int) -> Scanned:
    """Read a file, or about `limit` stored bytes of it."""
    keys, sizes, stored = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], 0
    for block in _blocks(url, info.bytes):
        keys.append(_keys_of(block.texts(), near))
        sizes.append(block.sizes)
        stored = block.stored
        if stored >= limit:
            break
    return Scanned(info, np.concatenate(keys), np.concatenate(sizes), stored)


# ----------------------------------------------------------------------------------------------------------- drawing


def draw(entries: Sequence[PipelineInput], sample_bytes: int, seed: int) -> None:
    """Draw the samples: sets `Scanned.drawn`. Each has a record of every entry.

    Raises `UsageError`: something can only be taken whole and is too large.
    """
    scanned = [one for entry in entries for one in entry.scanned]
    keys = np.concatenate([one.keys for one in scanned])
    sizes = np.concatenate([one.sizes for one in scanned])
    _, first, texts = np.unique(keys, return_index=True, return_inverse=True)
    is_drawn = _choose(sizes, first, sample_bytes, seed)
    ends = np.cumsum([len(one.keys) for one in scanned])[:-1]
    for one, rows in zip(scanned, np.split(texts, ends), strict=True):
        one.texts = rows
    for entry in entries:
        mine = np.concatenate([one.texts for one in entry.scanned])
        is_drawn[LARGE][mine[len(mine) // 2]] |= not is_drawn[LARGE][mine].any()
        is_drawn[SMALL][mine[is_drawn[LARGE][mine]][0]] |= not is_drawn[SMALL][mine].any()
    for one in scanned:
        one.drawn = {name: of_texts[one.texts] for name, of_texts in is_drawn.items()}
    _check_whole(entries, sample_bytes)


def _choose(sizes: Ints, first: Ints, sample_bytes: int, seed: int) -> dict[str, npt.NDArray[np.bool_]]:
    """Return which texts are in each sample: one run of neighbours in ``1 / share``.

    Parameters
    ----------
    sizes : ndarray
        Bytes of each record (n,).
    first : ndarray
        For each text, the first record that holds it (n_texts,).
    sample_bytes, seed : int
        As of `draw`.
    """
    share = min(1.0, sample_bytes / max(float(sizes.sum()), 1.0))
    new = np.zeros(len(sizes))
    new[first] = sizes[first]
    begins = np.cumsum(new) - new  # bytes of texts that are no copies, before each record
    run_bytes = max(min(_RUN_BYTES, share * float(new.sum()) / _SMALL_RUNS), 1.0)
    turns = (begins[first] // run_bytes + np.random.default_rng(seed).random() / share) * share
    turn = np.floor(turns + share)
    large = turn > np.floor(turns)
    return {SMALL: large & (turn % _SMALL_RUNS == 0), LARGE: large}


def _check_whole(entries: Sequence[PipelineInput], sample_bytes: int) -> None:
    for entry in entries:
        for one in entry.scanned:
            size = int(one.sizes[one.drawn[LARGE]].sum()) if kind_of(one.info.path) == "whole" else 0
            if size > 4 * sample_bytes:
                raise UsageError(
                    f"{files.join(entry.root, one.info.path)} can only be taken whole and holds {size / 1e6:,.0f} MB; expected at most four times "
                    f"--sample-bytes {sample_bytes:,}. Give a larger number, or smaller files."
                )


# ------------------------------------------------------------------------------------------------------------ writing


def write_sample(entry: PipelineInput, name: str, folder: str) -> None:
    """Write a sample of an entry, with the attributes of its documents, to a folder: sets `PipelineInput.counts`."""
    groups = list(_groups(entry, name))
    entry.counts[name] = len(groups)
    attributes = _attribute_files(entry.dataset) if entry.is_dataset else []
    made_by = Catalog(entry.dataset).written if entry.is_dataset else {}
    for group in groups:
        for paths in _beside([one.info.path for one in group], attributes):
            pieces: list[Any] = []
            for path, one in zip(paths, group, strict=True):
                rows = np.flatnonzero(one.drawn[name])
                pieces += _chosen(files.join(entry.root, path), one.info.bytes, rows)
            data = _packed(pieces, paths[0])
            with publish(files.join(folder, paths[0]), synced=False) as out:
                out.write(data)
            if paths[0] in made_by:
                _declare(folder, paths[0], data, *made_by[paths[0]])


def _groups(entry: PipelineInput, name: str) -> Iterator[list[Scanned]]:
    """Yield neighbouring files of one kind that become one: as many as are in proportion, or `_MIN_FILES`."""
    used = [one for one in entry.scanned if one.drawn[name].any()]
    wanted = len(entry.files) * entry.sampled(name) / max(entry.bytes, 1.0)
    count = max(min(_MIN_FILES[name], len(entry.files)), round(wanted))
    by_kind: defaultdict[tuple[str, str | None], list[Scanned]] = defaultdict(list)
    for one in used:
        kind, path = kind_of(one.info.path), one.info.path
        by_kind[kind, path if kind == "whole" else compression_of(path.lower())].append(one)
    for alike in by_kind.values():
        parts = min(max(1, round(count * len(alike) / len(used))), len(alike))
        for at in np.array_split(np.arange(len(alike)), parts):
            yield [alike[i] for i in at]


def _attribute_files(dataset: Dataset) -> list[dict[str, str]]:
    """Return the files of each attribute set relative to the dataset, by stem."""
    folders = [f"{layout.ATTRIBUTES}/{name}" for name in dataset.attributes]
    listed = [[info.path for info in files.list_files(dataset.url(folder))] for folder in folders]
    return [
        {layout.stem_of(path): f"{folder}/{path}" for path in paths}
        for folder, paths in zip(folders, listed, strict=True)
    ]


def _beside(paths: list[str], attributes: Sequence[Mapping[str, str]]) -> Iterator[list[str]]:
    """Yield files of documents, then the files of each attribute set that has all of them."""
    yield paths
    stems = [layout.stem_of(path.removeprefix(f"{layout.DOCUMENTS}/")) for path in paths]
    yield from ([known[stem] for stem in stems] for known in attributes if known.keys() >= {*stems})


def _chosen(url: str, size: int, rows: Ints) -> Iterator[Any]:
    """Yield ascending rows of a file."""
    first = 0
    for block in _blocks(url, size) if len(rows) else ():
        begin, end = np.searchsorted(rows, [first, first + len(block.sizes)])
        if end > begin:
            yield block.take(rows[begin:end] - first)
        first += len(block.sizes)
        if first > rows[-1]:
            return


def _packed(pieces: Sequence[Any], path: str) -> bytes:
    """Join records as one file; lines are compressed as its suffix says."""
    if pieces and isinstance(pieces[0], pa.RecordBatch):
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches(pieces), buffer, compression="zstd")
        return bytes(buffer.getvalue())
    data = b"".join(pieces)
    compression = compression_of(path.lower()) if kind_of(path) == "jsonl" else None
    return bytes(pa.compress(data, codec=compression, asbytes=True)) if compression else data


def _declare(folder: str, path: str, data: bytes, verb: str, record: Record) -> None:
    """Tell the keys of an attribute file as the journal of the dataset does: its rows may hold none, such as flags that are rare."""
    info: dict[str, Any] = {"unproved": True}
    info.update((name, record.info[name]) for name in ("kinds", "levels") if name in record.info)
    there = files.stat(files.join(folder, path))
    written = FileRecord(path, len(data), xxhash.xxh3_128_hexdigest(data), stamp=there.stamp if there else "")
    sample = Record(path, record.shard, "sample", files=(written,), info=info)
    Journal(folder, verb).append(sample)
