"""The checks of one shard: each document record, and beside it every row of every attribute file.

One pass over the document file and its attribute files in lockstep. What is wrong with one attribute file stops neither the others nor
the documents. The identities of the documents are written as 16 bytes per row on the way, so that nobody has to read the documents
again to compare them with those of other shards. Memory: a few blocks per file, and the first problems of each kind.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.alignment import AttributeSource, shard_inputs
from dolma_dask.alignment.follower import Follower
from dolma_dask.dataset import Shard
from dolma_dask.engine import Task, Unit, inputs_of
from dolma_dask.errors import (
    AlignmentError,
    BadRecordError,
    DataError,
    SchemaError,
    SourceChangedError,
    StaleAttributesError,
)
from dolma_dask.formats import layout
from dolma_dask.formats.digests import RowDigest
from dolma_dask.formats.documents import text_bytes
from dolma_dask.formats.json_attributes import AttributeKind, guess_form, scan_attributes
from dolma_dask.formats.json_exact import LineError
from dolma_dask.io import files
from dolma_dask.io.attributes import sample_file
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.publish import PublishedFile, publish
from dolma_dask.io.records import TOO_LARGE, Block, InputRecord, too_large
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    MAX_RECORD_BYTES,
    LineBlock,
    StoredFile,
    compression_of,
    read_lines,
)
from dolma_dask.journal import Record, work_key
from dolma_dask.stages.validation_keys import row_keys
from dolma_dask.stages.validation_problems import KINDS, WHOLE_FILE, Problem, Problems, shown
from dolma_dask.stages.validation_spans import check_column
from dolma_dask.text.kernels import Counts
from dolma_dask.text.lengths import code_point_lengths

VERSION = 1
"""Raised whenever the checks of a shard find something else in the same files."""

COLUMNS = ("id", "text", "source", "added", "created", "metadata")


@dataclass(frozen=True)
class Written:
    """A file as a journal knows it.

    Attributes
    ----------
    verb : str
        What wrote it.
    bytes : int
        Stored size.
    checksum : str
        xxh3-128 of the stored bytes.
    """

    verb: str
    bytes: int
    checksum: str


@dataclass(frozen=True)
class ShardWork:
    """What a worker needs to check one shard.

    Attributes
    ----------
    shard : Shard
        Its documents.
    sources : tuple of AttributeSource
        Its attribute files; without kinds where only the file itself can tell them.
    written : Mapping[str, Written]
        What journals know of these files, by path.
    """

    shard: Shard
    sources: tuple[AttributeSource, ...]
    written: Mapping[str, Written]


@dataclass(frozen=True)
class ValidateStage:
    """The work of `validate` on one shard.

    Attributes
    ----------
    root : str
        Of the dataset.
    source : str or None
        Source of documents that lack the field.
    keep : int
        Problems per kind and shard that are told in full.
    max_record_bytes : int
        Longer records are bad.
    keys_folder : str
        Where identities are written, relative to the dataset; empty: nowhere.
    """

    root: str
    source: str | None
    keep: int
    max_record_bytes: int = MAX_RECORD_BYTES
    keys_folder: str = ""
    verb: str = "validate"

    def task(self, work: ShardWork) -> Task:
        """Return the work on a shard; what journals say of its files belongs to its key."""
        params = {
            "source": self.source,
            "keep": self.keep,
            "max_record_bytes": self.max_record_bytes,
            "sources": [_known(source) for source in work.sources],
            "written": {path: asdict(known) for path, known in work.written.items()},
        }
        unit = Unit(layout.document_path(work.shard.path), work_key(self.verb, VERSION, params))
        return Task(
            work.shard.path, (unit,), inputs_of(self.root, shard_inputs(work.shard, work.sources)), work
        )

    def keys_path(self, shard: str) -> str:
        """Return where the identities of a shard are kept, relative to the dataset."""
        return f"{self.keys_folder}/{shard}.keys"

    def run_shard(self, task: Task) -> list[Record]:
        """Check one shard; see `dolma_dask.engine.Stage`."""
        work: ShardWork = task.work
        check = ShardCheck(self, work)
        with ExitStack() as stack:
            keys = None
            if self.keys_folder:
                keys = stack.enter_context(publish(files.join(self.root, self.keys_path(work.shard.path))))
            inputs = check.run(keys)
        info = {
            "problems": check.problems.to_record(),
            "unproved": check.unproved,
            "kinds": check.kinds,
            "keys": keys.checksum if keys else "",
        }
        unit = task.units[0]
        return [
            Record(
                unit=unit.name,
                shard=work.shard.path,
                key=unit.key,
                inputs=inputs,
                rows=int(check.counts["documents_in"]),
                counts={**check.counts, "problems": check.problems.total},
                info=info,
            )
        ]


def _known(source: AttributeSource) -> list[Any]:
    proof = source.proof
    digests = [proof.checksum, proof.ids_digest, proof.content_digest, proof.reads_text] if proof else []
    return [source.info.path, dict(source.kinds), digests, source.maker]


class ShardCheck:
    """Reads a shard and its attribute files once and collects what is wrong.

    Parameters
    ----------
    stage : ValidateStage
        How to read.
    work : ShardWork
        What to read.

    Attributes
    ----------
    problems : Problems
        What was found.
    counts : dict
        ``documents_in text_bytes bad_records attribute_files``.
    unproved : list of str
        Attribute sets whose file belongs to the documents as far as its rows tell, and no journal proves it.
    kinds : dict
        Set name to key to kind, as readers take them.
    """

    def __init__(self, stage: ValidateStage, work: ShardWork) -> None:
        self.problems = Problems(stage.keep)
        self.counts: dict[str, float] = {
            "documents_in": 0,
            "text_bytes": 0,
            "bad_records": 0,
            "attribute_files": len(work.sources),
        }
        self.unproved: list[str] = []
        self.kinds: dict[str, dict[str, AttributeKind]] = {}
        self._stage = stage
        self._work = work
        self._path = layout.document_path(work.shard.path)

    def run(self, keys: PublishedFile | None) -> tuple[InputRecord, ...]:
        """Read everything, write identities to `keys`, and return the files as they were read."""
        stage = self._stage
        reader = DocumentFile(
            files.join(stage.root, self._path),
            COLUMNS,
            source=stage.source,
            max_record_bytes=stage.max_record_bytes,
        )
        needs_digests = any(source.proof for source in self._work.sources)
        digests = RowDigest(), RowDigest()
        with ExitStack() as stack:
            attributes = [
                AttributeCheck(stage, self._work, source, self.problems, stack)
                for source in self._work.sources
            ]
            is_whole = self._read(reader, attributes, digests if needs_digests else None, keys)
            if is_whole:
                for one in attributes:
                    one.finish(*(digest.hexdigest() for digest in digests))
        self.unproved = [one.name for one in attributes if one.is_good and not one.is_proved]
        self.kinds = {one.name: one.kinds for one in attributes}
        url, stored = reader.url, reader.stored
        checksum = stored.checksum if is_whole else files.checksum(url)
        document = InputRecord(self._path, stored.info.bytes, stored.info.stamp, checksum)
        inputs = (document, *(one.input() for one in attributes))
        for item in inputs:
            self._compare(item)
        return inputs

    def _read(
        self,
        reader: DocumentFile,
        attributes: list["AttributeCheck"],
        digests: tuple[RowDigest, RowDigest] | None,
        keys: PublishedFile | None,
    ) -> bool:
        """Read all rows; tell whether the document file could be read to its end."""
        try:
            for block in reader:
                self._check_records(block)
                if digests is not None:
                    _digest(block, *digests)
                if keys is not None and block.num_rows:
                    keys.write(row_keys(block.batch.column("id"), block.batch.column("source")))
                if any(one.is_open for one in attributes):
                    lengths = code_point_lengths(pc.fill_null(block.batch.column("text"), ""))
                    for one in attributes:
                        one.take(block, lengths)
        except DataError as error:
            _add_error(self.problems, self._stage.root, self._path, error)
            return False
        return True

    def _check_records(self, block: Block) -> None:
        ids, text, metadata = (block.batch.column(name) for name in ("id", "text", "metadata"))
        self.counts["documents_in"] += block.num_rows
        self.counts["bad_records"] += len(block.bad)
        self.counts["text_bytes"] += text_bytes(text)
        told = (
            Problem(
                self._path, bad.row, f"{bad.reason.replace('_', ' ')} at byte {bad.byte_offset}", bad.expected
            )
            for bad in block.bad[: self.problems.keep]
        )
        self.problems.add_all("bad_record", told, len(block.bad))
        self._add_rows("empty_id", pc.equal(ids, ""), block, lambda row: "an empty id")
        if metadata.null_count < len(metadata):
            wrong = pc.invert(pc.starts_with(metadata, "{"))
            self._add_rows("bad_metadata", wrong, block, lambda row: shown(metadata[row].as_py()))

    def _add_rows(self, kind: str, mask: pa.BooleanArray, block: Block, found: Any) -> None:
        count = pc.sum(mask).as_py()
        if not count:
            return
        rows = np.flatnonzero(np.asarray(pc.fill_null(mask, False)))[: self.problems.keep].tolist()
        told = (Problem(self._path, block.first_row + row, found(row), KINDS[kind]) for row in rows)
        self.problems.add_all(kind, told, count)

    def _compare(self, item: InputRecord) -> None:
        """Compare a file with what a journal says was written there."""
        known = self._work.written.get(item.path)
        if known is not None and known.checksum != item.checksum:
            found = f"{item.bytes:,} bytes with checksum {item.checksum}"
            expected = f"the {known.bytes:,} bytes with checksum {known.checksum} that {known.verb} wrote"
            self.problems.add("journal_mismatch", Problem(item.path, WHOLE_FILE, found, expected))


class AttributeCheck:
    """Follows one attribute file beside the documents, until its end or the first thing that breaks the alignment.

    Parameters
    ----------
    stage, work : ValidateStage, ShardWork
        Where it is.
    source : AttributeSource
        The file.
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
        stage: ValidateStage,
        work: ShardWork,
        source: AttributeSource,
        problems: Problems,
        stack: ExitStack,
    ) -> None:
        self.name = source.name
        self.kinds: dict[str, AttributeKind] = {}
        self.is_open, self.is_good, self.is_proved = True, False, False
        self._root = stage.root
        self._path = source.info.path
        self._url = files.join(stage.root, source.info.path)
        self._problems = problems
        self._row = 0
        self._input: InputRecord | None = None
        self._stored = StoredFile(
            self._url
        ).info  # raises if the file is gone: then there is nothing to check
        try:
            self.kinds = dict(source.kinds or sample_file(self._url))
            self._follower = Follower(
                stage.root,
                work.shard,
                replace(source, kinds=self._asked),
                max_record_bytes=max(stage.max_record_bytes, MAX_RECORD_BYTES),
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
            _add_error(self._problems, self._root, self._path, error)
            return
        try:
            for row, offset, reason, expected in unreadable_rows(self._url, self._asked):
                found = f"{reason.replace('_', ' ')} at byte {offset}"
                self._problems.add("bad_attribute_row", Problem(self._path, row, found, expected))
        except DataError as other:
            _add_error(self._problems, self._root, self._path, other)


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


def _digest(block: Block, ids: RowDigest, content: RowDigest) -> None:
    source, identity, text = (block.batch.column(name) for name in ("source", "id", "text"))
    ids.update(source, identity)
    content.update(source, identity, text)


_KIND_OF: tuple[tuple[type[DataError], str], ...] = (
    (StaleAttributesError, "stale"),
    (AlignmentError, "misaligned"),
    (SchemaError, "schema"),
)


def _add_error(problems: Problems, root: str, path: str, error: DataError) -> None:
    """Turn an error of a reader into a problem.

    Raises
    ------
    SourceChangedError
        The file is being written: it has to be checked again.
    """
    if isinstance(error, SourceChangedError) or files.stat(files.join(root, path)) is None:
        raise error
    kind = next((kind for known, kind in _KIND_OF if isinstance(error, known)), "unreadable_file")
    row = error.details.get("row", WHOLE_FILE)
    found = str(error).replace(f"{root}/", "").rstrip(".")
    problems.add(kind, Problem(path, row if isinstance(row, int) else WHOLE_FILE, found, KINDS[kind]))
