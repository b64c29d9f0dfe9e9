"""Read Parquet files in batches, every kind of damage named; pages are held against their checksums."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dolma_dask.errors import CorruptFileError
from dolma_dask.io.files import is_local, local_path, open_read
from dolma_dask.io.stored import WHOLE, Member, Section
from dolma_dask.metering import count_read

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def open_parquet(url: str) -> "pq.ParquetFile":
    """Open a Parquet file; checksums of pages are verified where it has them.

    Raises `CorruptFileError`: it is truncated, no Parquet file, or not there.
    """
    import pyarrow.parquet as pq

    try:
        if is_local(url):
            file = pq.ParquetFile(local_path(url), page_checksum_verification=True)
        else:
            source = open_read(url, scattered=True)  # what is needed of a row group is requested at once
            file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True)
        schema = file.schema_arrow.to_string(show_schema_metadata=False)
    except FileNotFoundError:
        raise CorruptFileError(f"{url}: no such file; expected the table that was listed.", url=url) from None
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


def batch_rows(file: "pq.ParquetFile", block_bytes: int) -> int:
    """Return how many rows of `file` make about `block_bytes`."""
    size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
    return max(1, int(block_bytes * file.metadata.num_rows / max(size, 1)))


def _stored_bytes(file: "pq.ParquetFile") -> int:
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    return sum(group.column(i).total_compressed_size for group in groups for i in range(group.num_columns))


def read_batches(
    url: str,
    file: "pq.ParquetFile",
    columns: Sequence[str] | None,
    block_bytes: int,
    section: Section = WHOLE,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an open Parquet file, or of a section of it, in batches of about `block_bytes`.

    Raises `CorruptFileError`: a page is damaged.
    """
    rows = batch_rows(file, block_bytes)
    stop = file.num_row_groups if section.stop_offset is None else section.stop_offset
    groups = list(range(section.start.offset, stop))
    stored, total = _stored_bytes(file), file.metadata.num_rows
    try:
        for batch in file.iter_batches(
            batch_size=rows, row_groups=groups, columns=columns, use_threads=False
        ):
            count_read(stored * batch.num_rows // total)
            yield batch
    except (pa.ArrowInvalid, OSError) as error:
        if getattr(error, "errno", None):
            raise
        raise CorruptFileError(
            f"{url}: damaged Parquet data ({_on_one_line(error)}); expected the pages that the footer promises. Fetch or write it again.",
            url=url,
        ) from error
