"""Tables in text, CSV and TSV: rows of cells as strings, which stay as they are written. Read by Arrow, streamed."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, islice
from typing import Protocol, Self

import pyarrow as pa

from dolma_dask.errors import BadRecordError, CorruptFileError
from dolma_dask.formats.csv_quotes import QuoteScan
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
        self._quotes = QuoteScan(delimiter)
        self._torn = dict[int, int]()
        head = b""
        while len(head) < _HEAD_BYTES and (piece := next(pieces, b"")):
            head += piece
        self._pieces = self._scanned(chain([head], pieces))
        text = head.removeprefix(_BYTE_ORDER_MARK).decode(errors="replace")
        self._given: list[str] | None = None
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            self.names: list[str] = next(filter(None, rows), [])  # as in Arrow, empty lines are no rows
        except csv.Error as error:
            raise BadRecordError(
                f"{url}: no heading can be read ({error}); expected a first row with the names of the columns, and a quote that is closed. Is it a table?",
                url=url,
            ) from None

    def without_heading(self, names: Sequence[str]) -> Self:
        """Take the first row for one of cells, and name the columns."""
        self._given = list(names)
        return self

    def _scanned(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for number, piece in enumerate(pieces):
            self._torn.update(self._quotes.torn(piece if number else piece.removeprefix(_BYTE_ORDER_MARK)))
            yield piece

    def batches(
        self,
        columns: Sequence[str],
        block_bytes: int = 2 * _HEAD_BYTES,
        on_bad_row: Callable[[int, str, bytes], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns (large_string) of all rows.

        A row with another number of cells, or with text behind the quote that closes several lines, is left out and told to `on_bad_row`, with its number from 0, what was
        expected and its bytes; without that it is an error. Raises `BadRecordError`: that, or a row is longer than a block, or it or the heading not UTF-8. Raises `CorruptFileError`: a
        quote is never closed.
        """
        from pyarrow import csv as table

        skipped = set[int]()

        def refuse(row: InvalidRow) -> str:
            if on_bad_row is None:
                return "error"
            skipped.add(row.number - 1)
            on_bad_row(row.number - 1 - self._first, _expected(row), row.text.encode())
            return "skip"

        numbers = (row for row in count(self._first) if row not in skipped)
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
                rows = list(islice(numbers, batch.num_rows))
                yield self._whole(batch, rows, on_bad_row) if self._torn else batch
        except pa.ArrowKeyError:
            raise BadRecordError(
                f"{self._url}: the heading is not UTF8; expected names in UTF-8.", url=self._url
            ) from None
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
        if self._quotes.is_open:
            raise CorruptFileError(
                f"{self._url}: the last row begins a cell with a quote that is never closed; expected one at its end. Mend the file.",
                url=self._url,
            )

    @property
    def _first(self) -> int:
        """Number of the first row behind the heading."""
        return 0 if self._given else 1

    def _whole(
        self,
        batch: pa.RecordBatch,
        rows: Sequence[int],
        on_bad_row: Callable[[int, str, bytes], None] | None,
    ) -> pa.RecordBatch:
        """Return the rows of a batch, of these numbers, without those that are torn."""
        for index, row in enumerate(rows):
            if row in self._torn:
                expected = f"a cell that ends with its quote, found one of {self._torn[row]:,} lines and text behind it"
                if on_bad_row is None:
                    raise BadRecordError(
                        f"{self._url}, row {row - self._first}: {expected}. {_TORN}.", url=self._url
                    )
                cells = io.StringIO()
                csv.writer(cells, delimiter=self._delimiter).writerow(
                    batch.slice(index, 1).to_pylist()[0].values()
                )
                on_bad_row(row - self._first, f"{expected}; {_TORN}", cells.getvalue().encode())
        return batch.filter(pa.array([row not in self._torn for row in rows], pa.bool_()))


_TORN = "a quote before it is probably never closed, so that rows are lost in the cell, and not counted"


def _expected(row: InvalidRow) -> str:
    """Say how many cells a row should have, and that rows may be hidden in it: nobody counts them, since a quote may hold line ends."""
    said = f"{row.expected_columns} cells as in the heading, found {row.actual_columns}"
    lines = len(row.text.splitlines())
    if lines < 2:
        return said
    return f"{said} in {lines:,} lines that quotes hold together; if one of these is never closed, the rows behind it are lost with this one, and not counted"
