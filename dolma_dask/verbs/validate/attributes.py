"""One attribute file beside its documents, for `validate`: compared to its end or to the first thing that breaks the alignment.

What is wrong with the values of a row stops nothing; a row that cannot be read ends the comparison, and then all such rows are listed.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from dolma_dask.dataset import Shard
from dolma_dask.errors import BadRecordError, DataError
from dolma_dask.formats import layout
from dolma_dask.formats.json.attributes import AttributeKind, guess_form, scan_attributes
from dolma_dask.formats.json.exact import LineError
from dolma_dask.io import files
from dolma_dask.io.attributes import sample_file
from dolma_dask.io.records import TOO_LARGE, Block, InputRecord, too_large
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    MAX_RECORD_BYTES,
    LineBlock,
    StoredFile,
    compression_of,
    read_lines,
)
from dolma_dask.reading import AttributeSource
from dolma_dask.reading.follower import Follower
from dolma_dask.text.kernels import Counts
from dolma_dask.verbs.validate.problems import Problem, Problems, add_error
from dolma_dask.verbs.validate.spans import check_column


class AttributeCheck:
    """Follows one attribute file beside the documents, until its end or the first thing that breaks the alignment.

    Parameters
    ----------
    root : str
        Of the dataset.
    shard : Shard
        Its documents.
    source : AttributeSource
        The file; without kinds where only the file itself can tell them.
    max_record_bytes : int
        Of documents; rows of attributes may always have `MAX_RECORD_BYTES`.
    problems : Problems
        Gets what is wrong.
    stack : ExitStack
        Closes the file.

    Attributes
    ----------
    is_open : bool
        Whether it is still followed.
    is_good : bool
        After `finish`: it belongs to the documents.
    """

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
        self.is_open, self.is_good, self.is_proved = True, False, False
        self._root = root
        self._path = source.info.path
        self._url = files.join(root, source.info.path)
        self._problems = problems
        self._row = 0
        self._input: InputRecord | None = None
        self._stored = StoredFile(
            self._url
        ).info  # raises if the file is gone: then there is nothing to check
        try:
            self.kinds = dict(source.kinds or sample_file(self._url))
            self._follower = Follower(
                root,
                shard,
                replace(source, kinds=self._asked),
                max_record_bytes=max(max_record_bytes, MAX_RECORD_BYTES),
                block_bytes=BLOCK_BYTES,
            )
        except DataError as error:
            self._fail(error)
        else:
            stack.callback(self._follower.close)

    @property
    def _asked(self) -> dict[str, AttributeKind]:
        """Document-level values of lines are read with their spans, whose ends are checked too; tables have no spans for them."""
        if layout.format_of(self._path) == "parquet":
            return self.kinds
        return {key: "spans" if kind == "document" else kind for key, kind in self.kinds.items()}

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
            check_column(key, self.kinds[key], column, lengths, (self._path, self._row), self._problems)
        self._row += block.num_rows

    def finish(self, ids_digest: str, content_digest: str) -> None:
        """Check that no row is left, and the digests."""
        if not self.is_open:
            return
        try:
            self._input = self._follower.finish(ids_digest, content_digest)
        except DataError as error:
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
            for row, offset, reason, expected in unreadable_rows(self._url, self._asked):
                found = f"{reason.replace('_', ' ')} at byte {offset}"
                self._problems.add("bad_attribute_row", Problem(self._path, row, found, expected))
        except DataError as other:
            add_error(self._problems, self._root, self._path, other)


def unreadable_rows(url: str, kinds: Mapping[str, AttributeKind]) -> Iterator[tuple[int, int, str, str]]:
    """Yield row, byte offset, reason and what was expected for every row of an attribute file that cannot be read."""
    stored = StoredFile(url)
    try:
        for lines in read_lines(stored, compression_of(url)):
            yield from _unreadable(lines, kinds)
    finally:
        stored.close()


def _unreadable(lines: LineBlock, kinds: Mapping[str, AttributeKind]) -> Iterator[tuple[int, int, str, str]]:
    if lines.oversize_bytes:
        expected = too_large(lines.oversize_bytes, MAX_RECORD_BYTES)
        yield lines.first_row, lines.byte_offset, TOO_LARGE, expected
        return
    batch = scan_attributes(lines.data, lines.starts, kinds, _form(lines))
    for row, error in batch.errors:
        yield lines.first_row + row, lines.byte_offset + int(lines.starts[row]), error.reason, error.expected


def _form(lines: LineBlock) -> Any:
    """Return the form of the first row that can be read."""
    for row in range(len(lines.starts) - 1):
        try:
            return guess_form(lines.data[lines.starts[row] : lines.starts[row + 1]].tobytes())
        except LineError:
            continue
    return "nested"
