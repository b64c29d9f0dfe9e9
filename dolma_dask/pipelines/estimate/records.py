"""Records of raw files and documents, each with a number that its copies share, and chosen records again.

A record of JSON lines is a line, of Parquet a row, of anything else the whole file. The number is a hash of the text, so that equal texts are
drawn together or not at all; for a pipeline that looks for near duplicates it is the least hash of the text's n-grams, which two texts share with
the probability of their similarity. Text is what `text` names, else the longest string of the record. Reads 100 to 300 MB of JSON per CPU-second.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from dolma_dask.errors import UsageError
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.stored import StoredFile
from dolma_dask.io.stream import LineBlock, compression_of, read_lines
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.sources.naming import split_suffix

Numbers = npt.NDArray[np.uint64]
Sizes = npt.NDArray[np.int64]

_BLOCK_BYTES = 8_000_000
"""Of a batch of texts."""

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True)
class Scanned:
    """Records of a file, or of its beginning."""

    keys: Numbers  # (n,) equal for copies
    sizes: Sizes  # (n,) bytes of each record
    stored: int  # stored bytes that were read


@dataclass(frozen=True)
class TextKeys:
    """Numbers of texts: equal for equal texts, and with `near` mostly for similar ones."""

    near: MinHash | None = None

    def __call__(self, texts: Sequence[str]) -> Numbers:
        """Return a number for each text (n,)."""
        keys = np.fromiter(
            (xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")) for text in texts),
            np.uint64,
            len(texts),
        )
        if self.near is not None and texts:
            signed = self.near.sign(pa.array(texts, pa.large_string()))
            has = self.near.has_signature(signed.kinds)
            keys[has] = signed.values[has, 0]
        return keys


def near_keys(ngram: int, unit: Any) -> TextKeys:
    """Return keys for near duplicates of n-grams."""
    return TextKeys(MinHash(ngram=ngram, unit=unit, num_perm=1))


def kind_of(path: str) -> str:
    """Return how records lie in a file: `lines`, `table` or `whole`."""
    try:
        kind = split_suffix(path).kind
    except UsageError:
        return "whole"
    return {"jsonl": "lines", "parquet": "table"}.get(kind, "whole")


def scan(url: str, size: int, keys: TextKeys, limit: int) -> Scanned:
    """Read a file of so many stored bytes, or about `limit` of them."""
    reader = {"lines": _scan_lines, "table": _scan_table}.get(kind_of(url))
    if reader is None:
        return Scanned(np.array([xxhash.xxh3_64_intdigest(url.encode())], np.uint64), np.array([size]), size)
    return reader(url, size, keys, limit)


def _scan_lines(url: str, size: int, keys: TextKeys, limit: int) -> Scanned:
    stored = StoredFile(url)
    found: list[tuple[Numbers, Sizes]] = []
    for block in read_lines(stored, compression_of(url.lower())):
        found.append((keys([_text_of(line) for line in block]), np.diff(block.starts)))
        if stored.position >= limit:
            break
    read = min(stored.position, size)
    stored.close()
    return _joined(found, read)


def _text_of(line: bytes) -> str:
    """Return the text of a record; a line that is no JSON stands for itself."""
    try:
        record = _decode(line)
    except NOT_JSON:
        return line.decode(errors="replace")
    text = record.get("text") if isinstance(record, dict) else None
    return text if isinstance(text, str) else _longest(record)


def _longest(value: Any) -> str:
    """Return the longest string in a value."""
    if isinstance(value, str):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_longest, parts), key=len, default="")


def _joined(found: Sequence[tuple[Numbers, Sizes]], stored: int) -> Scanned:
    keys = [keys for keys, _ in found] or [np.empty(0, np.uint64)]
    sizes = [sizes for _, sizes in found] or [np.empty(0, np.int64)]
    return Scanned(np.concatenate(keys), np.concatenate(sizes), stored)


def _scan_table(url: str, size: int, keys: TextKeys, limit: int) -> Scanned:
    found: list[tuple[Numbers, Sizes]] = []
    table = open_parquet(url)
    column = _text_column(table.schema_arrow)
    rows, done = table.metadata.num_rows, 0
    if column is None:
        return Scanned(np.arange(rows, dtype=np.uint64), np.full(rows, size // max(rows, 1)), size)
    for batch in read_batches(url, table, [column], _BLOCK_BYTES):
        texts = [text or "" for text in batch.column(0).to_pylist()]
        found.append((keys(texts), np.array([len(text) for text in texts], np.int64)))
        done += len(texts)
        if size * done // rows >= limit:
            break
    return _joined(found, size * done // max(rows, 1))


def _text_column(schema: pa.Schema) -> str | None:
    """Return the column of texts: that of this name, else the last of strings."""
    strings = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    return "text" if "text" in strings else next(reversed(strings), None)


# ---------------------------------------------------------------------------------------------- chosen records again


def read_chosen(url: str, rows: Sizes) -> Iterator[Any]:
    """Yield the records of ascending rows of a file: bytes of lines, tables, or the whole file."""
    if not len(rows):
        return
    kind = kind_of(url)
    if kind == "whole":
        yield files.read_bytes(url)
        return
    for first, count, take in _lines(url) if kind == "lines" else _tables(url):
        begin, end = np.searchsorted(rows, [first, first + count])
        if end > begin:
            yield take(rows[begin:end] - first)
        if first + count > rows[-1]:
            return


def _lines(url: str) -> Iterator[tuple[int, int, Callable[[Sizes], bytes]]]:
    for block in read_lines(StoredFile(url), compression_of(url.lower())):
        yield block.first_row, len(block.starts) - 1, partial(_picked, block)


def _picked(block: LineBlock, at: Sizes) -> bytes:
    return b"".join(block.data[block.starts[i] : block.starts[i + 1]].tobytes() for i in at)


def _tables(url: str) -> Iterator[tuple[int, int, Callable[[Sizes], pa.Table]]]:
    first = 0
    with files.open_read(url, scattered=True) as handle:
        for batch in pq.ParquetFile(handle).iter_batches():
            table = pa.Table.from_batches([batch])
            yield first, len(batch), table.take
            first += len(batch)
