"""One attribute file beside its documents, for `validate`: rows compared until the alignment breaks, and every span and number checked.

What is wrong with the values of a row stops nothing; a row that cannot be read ends the comparison, and then all such rows are listed.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import cast

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from dolma_dask.dataset import Shard
from dolma_dask.errors import BadRecordError, DataError, StaleAttributesError
from dolma_dask.formats import layout
from dolma_dask.formats.json.attributes import AttributeKind, guess_form, scan_attributes
from dolma_dask.io import files
from dolma_dask.io.attributes import sample_keys
from dolma_dask.io.records import TOO_LARGE, Block, InputRecord, too_large
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    MAX_RECORD_BYTES,
    LineBlock,
    StoredFile,
    compression_of,
    read_lines,
)
from dolma_dask.reading.follower import Follower
from dolma_dask.reading.sets import AttributeSource
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import for_kernel, validity
from dolma_dask.text.kernels import Bools, Counts, Floats, kernel
from dolma_dask.verbs.validate.problems import KINDS, Problem, Problems, add_error

ONE_KIND = "values of one kind, since other stages know no column with values of several"

OUTSIDE, NOT_FINITE, SEVERAL = 0, 1, 2
_KINDS = ("span_outside_text", "not_finite", "not_document_level")


class AttributeCheck:
    """Follows one attribute file beside the documents, until its end or the first thing that breaks the alignment."""

    def __init__(
        self,
        root: str,
        shard: Shard,
        source: AttributeSource,
        max_record_bytes: int,
        problems: Problems,
        stack: ExitStack,
    ) -> None:
        self.name = source.name
        self.kinds: dict[str, AttributeKind] = {}
        self.is_open = True  # still followed
        self.is_good = self.is_proved = False  # after `finish`: it belongs to the documents
        self._root = root
        self._path = source.info.path
        self._url = files.join(root, source.info.path)
        self._ids_as_text = shard.ids_as_text
        self._problems = problems
        self._row = 0
        self._input: InputRecord | None = None
        self._stored = StoredFile(
            self._url
        ).info  # raises if the file is gone: then there is nothing to check
        try:
            self.kinds = dict(source.kinds) or self._sampled_kinds()
            self._follower = Follower(
                root,
                shard,
                replace(source, kinds=self._read_kinds),
                max_record_bytes=max(max_record_bytes, MAX_RECORD_BYTES),
                block_bytes=BLOCK_BYTES,
            )
        except DataError as error:
            self._fail(error)
        else:
            stack.callback(self._follower.close)

    def _sampled_kinds(self) -> dict[str, AttributeKind]:
        """Return the kinds of keys as the first rows show them; those of several kinds, which no reader finds, are a problem."""
        found = sample_keys(self._url, ids_as_text=self._ids_as_text)
        for key, values in found.mixed.items():
            self._problems.add("schema", self._path, f"key {key!r} is {values}", expected=ONE_KIND)
        return found.kinds

    @property
    def _read_kinds(self) -> dict[str, AttributeKind]:
        """Document-level values of lines are read with their spans, whose ends are checked too; tables have no spans for them."""
        if layout.format_of(self._path) == "parquet":
            return self.kinds
        return with_spans(self.kinds)

    def take(self, block: Block, lengths: Counts) -> None:
        """Compare the next rows, and check their values."""
        if not self.is_open:
            return
        try:
            columns = self._follower.take(block)
        except DataError as error:
            self._fail(error)
            return
        for key, column in columns.items():
            if pa.types.is_list(column.type):
                self._check_spans(key, column, lengths)
            elif pa.types.is_floating(column.type):
                self._check_numbers(key, column)
        self._row += block.num_rows

    def _check_spans(self, key: str, column: pa.Array, lengths: Counts) -> None:
        """Add what is wrong with the spans (n,) of the next rows, whose texts have `lengths` (n,) code points."""
        is_document, keep = self.kinds[key] == "document", self._problems.keep
        counts, rows, items = find_bad_spans(column, lengths, is_document=is_document, keep=keep)
        for code, count in enumerate(counts.tolist()):
            bad = zip(rows[code, :count].tolist(), items[code, :count].tolist(), strict=True)
            first = (self._bad_span(code, key, column, row, item, lengths) for row, item in bad)
            self._problems.add_all(_KINDS[code], first, count)

    def _bad_span(
        self, code: int, key: str, column: pa.Array, row: int, item: int, lengths: Counts
    ) -> Problem:
        start, end, score = cast(dict[str, float | None], column.values[item].as_py()).values()
        found = f"span [{start}, {end}, {score}] of {key}"
        expected = KINDS[_KINDS[code]]
        if code == OUTSIDE:
            expected = f"0 <= start <= end <= {lengths[row]}, the code points of the text"
        elif code == SEVERAL and len(column[row]) > 1:
            found = f"{len(column[row])} spans of {key}"
        return Problem(self._path, self._row + row, found, expected)

    def _check_numbers(self, key: str, column: pa.Array) -> None:
        """Add numbers that are not finite: JSON cannot hold them, a table may."""
        wrong = np.flatnonzero(~np.isfinite(np.asarray(pc.fill_null(column, 0.0), np.float64)))
        first = (
            Problem(self._path, self._row + row, f"{column[row].as_py()} in {key}", KINDS["not_finite"])
            for row in wrong[: self._problems.keep].tolist()
        )
        self._problems.add_all("not_finite", first, len(wrong))

    def finish(self, ids_digest: str, content_digest: str) -> None:
        """Check that no row is left, and the digests."""
        if not self.is_open:
            return
        try:
            self._input = self._follower.finish(ids_digest, content_digest)
        except DataError as error:
            # other bytes are a problem of their own: all files are compared with the journal
            is_of_rows = not isinstance(error, StaleAttributesError) or "row" in error.details
            if is_of_rows or self._follower.is_as_written:
                self._fail(error)
            return
        self.is_good, self.is_proved = True, self._follower.proved

    def input(self) -> InputRecord:
        """Return the file as it was read; hashed anew where it was not read to its end."""
        if self._input is None:
            info = self._stored
            self._input = InputRecord(self._path, info.bytes, info.stamp, files.checksum(self._url))
        return self._input

    def _fail(self, error: DataError) -> None:
        self.is_open = False
        if not isinstance(error, BadRecordError):
            add_error(self._problems, self._root, self._path, error)
            return
        try:
            for row, offset, reason, expected in unreadable_rows(
                self._url, self._read_kinds, self._ids_as_text
            ):
                found = f"{reason.replace('_', ' ')} at byte {offset}"
                self._problems.add("bad_attribute_row", self._path, found, row=row, expected=expected)
        except DataError as other:
            add_error(self._problems, self._root, self._path, other)


def with_spans(kinds: Mapping[str, AttributeKind]) -> dict[str, AttributeKind]:
    """Return the kinds as which lines are read."""
    return {key: "spans" if kind == "document" else kind for key, kind in kinds.items()}


def unreadable_rows(
    url: str, kinds: Mapping[str, AttributeKind], ids_as_text: bool
) -> Iterator[tuple[int, int, str, str]]:
    """Yield row, byte offset, reason and what was expected for every row of an attribute file that cannot be read."""
    stored = StoredFile(url)
    try:
        for lines in read_lines(stored, compression_of(url)):
            yield from _unreadable(lines, kinds, ids_as_text)
    finally:
        stored.close()


def _unreadable(
    lines: LineBlock, kinds: Mapping[str, AttributeKind], ids_as_text: bool
) -> Iterator[tuple[int, int, str, str]]:
    if lines.oversize_bytes:
        expected = too_large(lines.oversize_bytes, MAX_RECORD_BYTES)
        yield lines.first_row, lines.byte_offset, TOO_LARGE, expected
        return
    batch = scan_attributes(lines.data, lines.starts, kinds, guess_form(lines), ids_as_text=ids_as_text)
    for row, error in batch.errors:
        yield lines.first_row + row, lines.byte_offset + int(lines.starts[row]), error.reason, error.expected


# ------------------------------------------------------------------------------------------------ values


def are_sound(columns: Mapping[str, pa.Array], kinds: Mapping[str, AttributeKind], lengths: Counts) -> bool:
    """Tell whether nothing is wrong with the values of rows, whose texts have `lengths` (n,) code points."""
    return all(_is_sound(column, kinds[key] == "document", lengths) for key, column in columns.items())


def _is_sound(column: pa.Array, is_document: bool, lengths: Counts) -> bool:
    if pa.types.is_list(column.type):
        counts, _, _ = find_bad_spans(column, lengths, is_document=is_document, keep=1)
        return not counts.any()
    return not pa.types.is_floating(column.type) or bool(
        np.isfinite(np.asarray(pc.fill_null(column, 0.0), np.float64)).all()
    )


def find_bad_spans(
    column: pa.Array, lengths: Counts, *, is_document: bool, keep: int
) -> tuple[Counts, Counts, Counts]:
    """Find spans outside of their text, scores that are no finite numbers, and for a document-level key rows of other than one span from 0 on.

    One kernel over the buffers of the list column (n,): 1 ns per span; null rows are passed over. `lengths` (n,) are the code points of the
    texts. Returns the numbers of bad spans by `OUTSIDE`, `NOT_FINITE`, `SEVERAL`, (3,); of the first of them, (3, keep), the rows; and their
    indices among all spans.
    """
    counts, rows, items = np.zeros(3, np.int64), np.zeros((3, keep), np.int64), np.zeros((3, keep), np.int64)
    spans = column.values
    # what is missing in a table of another tool becomes a value that is wrong
    starts, ends = (np.asarray(_filled(spans.field(at), -1), np.int64) for at in (0, 1))
    scores = np.asarray(_filled(spans.field(2), np.nan), np.float64)
    given = np.asarray(column.offsets, np.int64), validity(column), starts, ends, scores, lengths
    _find_bad_spans(is_document, counts, rows, items, *map(for_kernel, given))
    return counts, rows, items


def _filled(column: pa.Array, instead: float) -> pa.Array:
    return pc.fill_null(column, instead) if column.null_count else column


@kernel
def _find_bad_spans(
    is_document: bool,
    counts: Counts,
    rows: Counts,
    items: Counts,
    offsets: Counts,
    valid: Bools,
    starts: Counts,
    ends: Counts,
    scores: Floats,
    lengths: Counts,
) -> None:
    keep = rows.shape[1]
    for row in range(lengths.size):
        if not valid[row]:
            continue
        first, stop, length = offsets[row], offsets[row + 1], lengths[row]
        if is_document and (stop - first > 1 or (stop > first and starts[first] != 0)):
            if counts[2] < keep:
                rows[2, counts[2]] = row
                items[2, counts[2]] = first
            counts[2] += 1
        for item in range(first, stop):
            if not 0 <= starts[item] <= ends[item] <= length:
                if counts[0] < keep:
                    rows[0, counts[0]] = row
                    items[0, counts[0]] = item
                counts[0] += 1
            if not -np.inf < scores[item] < np.inf:
                if counts[1] < keep:
                    rows[1, counts[1]] = row
                    items[1, counts[1]] = item
                counts[1] += 1
