"""Read Parquet files in batches, every kind of damage named; pages are held against their checksums."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from io import SEEK_SET, RawIOBase
from typing import TYPE_CHECKING

import pyarrow as pa

from dolma_dask.errors import CorruptFileError, DataError
from dolma_dask.io import late
from dolma_dask.io.files import is_local, local_path, open_read
from dolma_dask.io.parquet_pages import HEADER_BYTES, ColumnPages, column_pages
from dolma_dask.io.stored import WHOLE, Member, Section
from dolma_dask.io.stream import MAX_RECORD_BYTES

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_BUFFER_BYTES = 1 << 18
"""Stored bytes of a column that are read ahead."""

_BATCH_BYTES = 16 << 20
"""Most bytes of rows that are decoded at once, besides their pages."""

_TIMES_HELD = 4
"""Memory for a row group whose pages are large: stored, decompressed, decoded and in use."""


def open_parquet(url: str) -> "pq.ParquetFile":
    """Open a Parquet file; checksums of pages are verified where it has them.

    Raises `CorruptFileError`: it is truncated, no Parquet file, or not there.
    """
    try:
        file = late.opened(
            url, lambda: _open(local_path(url) if is_local(url) else open_read(url, scattered=True))
        )
        schema = file.schema_arrow.to_string(show_schema_metadata=False)
    except FileNotFoundError:
        raise CorruptFileError(
            f"{url}: no such file; expected the table that was listed.{late.waited(url)}", url=url
        ) from None
    except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as error:
        if getattr(error, "errno", None):
            raise
        raise CorruptFileError(
            f"{url}: not a whole Parquet file ({_on_one_line(error)}); expected 'PAR1' at both ends, as the suffix says. Fetch or write it again.",
            url=url,
        ) from error
    if "[ns" in schema:
        import pandas  # noqa: F401  pyarrow shows nanoseconds as its timestamps
    return file


def _open(source: object, metadata: "pq.FileMetaData | None" = None) -> "pq.ParquetFile":
    """Open a file whose columns are read page by page; else pyarrow would fetch whole row groups, and keep them."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        source,
        metadata=metadata,
        pre_buffer=False,
        buffer_size=_BUFFER_BYTES,
        page_checksum_verification=True,
    )


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def row_groups(url: str) -> tuple[tuple[Member, ...], int]:
    """Return where the row groups of a Parquet file start, with offsets in bytes before compression, and the rows of the file."""
    with open_parquet(url) as file:
        members, row, size = [], 0, 0
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            members.append(Member(number, row, size))
            row += group.num_rows
            size += group.total_byte_size
        return tuple(members), row


def read_batches(
    url: str,
    file: "pq.ParquetFile",
    columns: Sequence[str] | None,
    block_bytes: int,
    section: Section = WHOLE,
    *,
    max_bytes: int = MAX_RECORD_BYTES,
    mend: str = "Write it anew in smaller pages: dolma-dask convert {url} --to FOLDER --max-record-bytes {bytes}",
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an open Parquet file, or of a section of it, in batches of about `block_bytes`, without dictionaries.

    Memory is a few pages and blocks, whatever the row group and however values repeat. Raises `CorruptFileError`: a page is damaged;
    `DataError`: pages of a row group need more than `max_bytes` (at least `MAX_RECORD_BYTES`) at once; `mend` says what to do about it.
    """
    stop = file.num_row_groups if section.stop_offset is None else section.stop_offset
    try:
        with closing(_Stored(url)) as source:
            reader = file if is_local(url) else _open(source, metadata=file.metadata)
            numbers = _column_numbers(file, columns)
            for group in range(section.start.offset, stop):
                source.hold(file.metadata.row_group(group), numbers)
                pages = [_pages_of(source, file, group, number) for number in numbers]
                _check_held(url, group, pages, max(max_bytes, MAX_RECORD_BYTES), mend)
                rows = _batch_rows(file.metadata.row_group(group).num_rows, pages, block_bytes)
                batches = reader.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)
                yield from _blocks(batches, block_bytes)
    except (pa.ArrowInvalid, OSError) as error:
        if getattr(error, "errno", None):
            raise
        raise CorruptFileError(
            f"{url}: damaged Parquet data ({_on_one_line(error)}); expected the pages that the footer promises. Fetch or write it again.",
            url=url,
        ) from error


def _column_numbers(file: "pq.ParquetFile", columns: Sequence[str] | None) -> list[int]:
    """Return the numbers of the leaves of these columns."""
    paths = [file.metadata.schema.column(number).path for number in range(file.metadata.num_columns)]
    return [n for n, path in enumerate(paths) if columns is None or _is_below(path, columns)]


def _is_below(path: str, columns: Sequence[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in columns)


def _pages_of(source: RawIOBase, file: "pq.ParquetFile", group: int, column: int) -> ColumnPages:
    known = file.metadata.schema.column(column)  # the name beside the pages may be damaged
    is_repeated = known.max_repetition_level > 0
    return column_pages(source, file.metadata.row_group(group), column, known.path, is_repeated)


def _check_held(url: str, group: int, pages: Sequence[ColumnPages], max_bytes: int, mend: str) -> None:
    """Refuse what does not fit into a worker, before any of it is there."""
    held = sum(column.held for column in pages)
    if held <= max_bytes:
        return
    largest = max(pages, key=lambda column: column.held)
    raise DataError(
        f"{url}: pages of row group {group} need {held:,} bytes at once ({largest.held:,} of them those of column {largest.name!r}); "
        f"expected at most {max_bytes:,}. {mend.format(url=shlex.quote(url), bytes=held)}, where there are {_TIMES_HELD * held / 1e9:.1f} GB of "
        f"memory. Or read it as it is: --max-record-bytes {held} (max_record_bytes={held}).",
        url=url,
        row_group=group,
        bytes=held,
    )


def _batch_rows(rows: int, pages: Sequence[ColumnPages], block_bytes: int) -> int:
    """Return how many rows to read at once: about a block, and never more than `_BATCH_BYTES` besides the pages."""
    mean = sum(int(column.sizes.sum()) / max(rows, 1) + column.row_bytes for column in pages)
    most = max(1, min(rows, int(block_bytes / max(mean, 1))))
    while most > 1 and sum(column.bytes_of(most) for column in pages) > _BATCH_BYTES:
        most //= 2
    return most


def _blocks(batches: Iterator[pa.RecordBatch], block_bytes: int) -> Iterator[pa.RecordBatch]:
    """Put small batches together, and cut large ones."""
    parts, size = list[pa.RecordBatch](), 0
    for batch in map(_without_dictionaries, batches):
        for part in _cut(batch, 2 * block_bytes):
            parts.append(part)
            size += part.nbytes
            if size >= block_bytes:
                yield pa.concat_batches(parts) if len(parts) > 1 else parts[0]
                parts, size = [], 0
    if parts:
        yield pa.concat_batches(parts) if len(parts) > 1 else parts[0]


def _cut(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows < 2 or batch.nbytes <= max_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half), max_bytes)
    yield from _cut(batch.slice(half), max_bytes)


def _without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    for position, field in enumerate(batch.schema):
        if pa.types.is_dictionary(field.type):
            column = batch.column(position).dictionary_decode()
            batch = batch.set_column(position, field.with_type(column.type), column)
    return batch


class _Stored(RawIOBase):
    """The bytes of a file; in a store, those of a row group are fetched with few requests, if they are not too many."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._file = open_read(url, scattered=True)
        self._is_local = is_local(url)
        self._held: list[tuple[int, bytes]] = []
        self._at = 0

    def hold(self, group: "pq.RowGroupMetaData", columns: Sequence[int]) -> None:
        """Fetch these columns of a row group, neighbours together."""
        chunks = [group.column(number) for number in columns]
        self._held = []
        if self._is_local or sum(chunk.total_compressed_size for chunk in chunks) > MAX_RECORD_BYTES:
            return
        for first, stop in _joined(sorted(map(_extent, chunks))):
            self._file.seek(first)
            self._held.append((first, self._file.read(max(stop - first, 0) + HEADER_BYTES)))

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes from where the file is."""
        at = self._at
        held = (data[at - first : at - first + size] for first, data in self._held if first <= at)
        data = next((data for data in held if len(data) == size), None)
        if data is None:
            self._file.seek(at)
            data = self._file.read(size)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        self._at = offset if whence == SEEK_SET else self._file.seek(offset, whence)
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


def _extent(chunk: "pq.ColumnChunkMetaData") -> tuple[int, int]:
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    return start, start + chunk.total_compressed_size


def _joined(extents: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Put extents together that follow each other."""
    joined: list[tuple[int, int]] = []
    for first, stop in extents:
        if joined and first <= joined[-1][1] + HEADER_BYTES:
            joined[-1] = joined[-1][0], stop
        else:
            joined.append((first, stop))
    return joined
