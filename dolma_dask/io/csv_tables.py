"""Tables in text, CSV and TSV: rows of cells as strings, which stay as they are written. Read by Arrow, streamed."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Protocol, Self

import pyarrow as pa

from dolma_dask.errors import BadRecordError, CorruptFileError
from dolma_dask.io.stored import PieceReader

_HEAD_BYTES = 1 << 20
"""The heading is looked for in these."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class InvalidRow(Protocol):
    """A row with another number of cells than the heading, as Arrow tells of it."""

    expected_columns: int
    actual_columns: int
    number: int  # from 1, the heading counted
    text: str  # of all its lines


class CsvTable:
    """A table in text that is opened, with the names of its columns; `pieces` are its bytes in UTF-8."""

    def __init__(self, url: str, pieces: Iterator[bytes], delimiter: str) -> None:
        self._url = url
        self._delimiter = delimiter
        self._quotes = 0
        head = b""
        while len(head) < _HEAD_BYTES and (piece := next(pieces, b"")):
            head += piece
        self._pieces = self._counted(chain([head], pieces))
        text = head.removeprefix(_BYTE_ORDER_MARK).decode(errors="replace")
        self._given: list[str] | None = None
        self.names: list[str] = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])

    def without_heading(self, names: Sequence[str]) -> Self:
        """Take the first row for one of cells, and name the columns."""
        self._given = list(names)
        return self

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._quotes += piece.count(b'"')
            yield piece

    def batches(
        self,
        columns: Sequence[str],
        block_bytes: int = 2 * _HEAD_BYTES,
        on_bad_row: Callable[[int, str, bytes], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns (large_string) of all rows.

        A row with another number of cells is left out and told to `on_bad_row`, with its number from 0, what was expected and its bytes; without that it is an error. Raises
        `BadRecordError`: that, or a row is longer than a block, or not UTF-8. Raises `CorruptFileError`: a quote is never closed.
        """
        from pyarrow import csv as table

        def refuse(row: InvalidRow) -> str:
            if on_bad_row is None:
                return "error"
            number = row.number - (1 if self._given else 2)
            on_bad_row(number, _expected(row), row.text.encode())
            return "skip"

        last = ""
        try:
            reader = table.open_csv(
                pa.PythonFile(PieceReader(self._pieces), mode="r"),
                read_options=table.ReadOptions(
                    use_threads=False, block_size=block_bytes, column_names=self._given
                ),
                parse_options=table.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=refuse
                ),
                convert_options=table.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.large_string()),
                    include_columns=list(columns),
                    strings_can_be_null=False,
                ),
            )
            for batch in reader:
                if batch.num_rows and batch.num_columns:
                    last = batch.column(batch.num_columns - 1)[-1].as_py()
                yield batch
        except pa.ArrowInvalid as error:
            if "straddl" in str(error):
                raise BadRecordError(
                    f"{self._url}: a row is longer than the {block_bytes:,} bytes that are parsed at a time; expected shorter ones, whatever "
                    "max_record_bytes is, or a quote that is closed. Write the table as JSON lines or Parquet, if that is its text.",
                    url=self._url,
                ) from error
            raise BadRecordError(
                f"{self._url}: {' '.join(str(error).split())}; expected rows as the heading says, in UTF-8, of at most {block_bytes:,} bytes.",
                url=self._url,
            ) from error
        if self._quotes % 2 and "\n" in last:
            raise CorruptFileError(
                f"{self._url}: the last row begins a cell with a quote that is never closed; expected one at its end. Mend the file.",
                url=self._url,
            )


def _expected(row: InvalidRow) -> str:
    """Say how many cells a row should have, and that rows may be hidden in it: nobody counts them, since a quote may hold line ends."""
    said = f"{row.expected_columns} cells as in the heading, found {row.actual_columns}"
    lines = len(row.text.splitlines())
    if lines < 2:
        return said
    return f"{said} in {lines:,} lines that quotes hold together; if one of these is never closed, the rows behind it are lost with this one, and not counted"
