"""The checks of one shard: each document record, and beside it every row of every attribute file.

One pass over the document file and its attribute files in lockstep. What is wrong with one attribute file stops neither the others nor
the documents. The identities of the documents are written as 16 bytes per row on the way, so that the documents need not be read
again to compare them with those of other shards. Memory: a few blocks per file, and the first problems of each kind.
"""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace

from dolma_dask.dataset import Shard
from dolma_dask.engine import Task, Unit, inputs_of
from dolma_dask.errors import DataError
from dolma_dask.formats import layout
from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.formats.documents import text_bytes
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.joined import NotJoinedError
from dolma_dask.io.publish import PublishedFile, publish
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import Record, canonical, work_key
from dolma_dask.reading.joined import is_joinable, read_joined
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.reading.sets import AttributeSource, shard_inputs
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import code_point_lengths
from dolma_dask.verbs.validate.attributes import AttributeCheck, are_sound, with_spans
from dolma_dask.verbs.validate.keys import row_keys
from dolma_dask.verbs.validate.problems import KINDS, Problem, Problems, add_error, shown

VERSION = 1
"""Raised whenever the checks of a shard find something else in the same files."""

COLUMNS = ("id", "text", "source", "added", "created", "metadata")


class Written(Struct, frozen=True):
    """A file as a journal knows it."""

    verb: str  # that wrote it
    bytes: int  # stored size
    checksum: str  # xxh3-128 of the stored bytes


class ShardWork(Struct, frozen=True):
    """One shard to check."""

    shard: Shard
    sources: tuple[AttributeSource, ...]  # without kinds where only the file itself can tell them
    written: Mapping[str, Written]  # the files by path, as journals know them


class ValidateStage(Struct, frozen=True):
    """The work of `validate` on one shard."""

    root: str  # of the dataset
    source: str | None  # of documents that lack the field
    keep: int  # problems per kind and shard that are kept in full
    max_record_bytes: int = MAX_RECORD_BYTES  # longer records are bad
    keys_folder: str = ""  # for identities, relative to the dataset
    verb: str = "validate"

    def task(self, work: ShardWork) -> Task:
        """Return the work on a shard; what journals say of its files belongs to its key."""
        params = {
            "source": self.source,
            **work.shard.params,
            "keep": self.keep,
            "max_record_bytes": self.max_record_bytes,
            "sources": [_known(source) for source in work.sources],
            # before, keys with values of several kinds were passed over; those of our own files have one each
            **({} if all(source.kinds for source in work.sources) else {"mixed": True}),
            "written": {path: asdict(known) for path, known in work.written.items()},
        }
        sets = ", ".join(sorted({source.name for source in work.sources}))
        path = layout.document_path(work.shard.path)
        # checks with other attribute sets do not replace each other
        unit = Unit(f"{path} and {sets}" if sets else path, work_key(self.verb, VERSION, params))
        return Task(
            work.shard.path, (unit,), inputs_of(self.root, shard_inputs(work.shard, work.sources)), work
        )

    def run_shard(self, task: Task) -> list[Record]:
        """Check one shard; see `dolma_dask.engine.Stage`."""
        check = ShardCheck(self, task.work)
        with self._keys(task) as keys:
            inputs = check.run(keys)
        return [_record(task, check, inputs, keys)]

    def _keys(self, task: Task) -> AbstractContextManager[PublishedFile]:
        """Open the file of a shard's identities, which is believed by its checksum alone."""
        return publish(files.join(self.root, f"{self.keys_folder}/{task.shard}.keys"), synced=False)

    def joins(self, task: Task) -> Hashable:
        """See `dolma_dask.engine.plan.JoiningStage`."""
        work: ShardWork = task.work
        return (is_joinable(self._read(work)) and all(source.kinds for source in work.sources)) or None

    def run_joined(self, tasks: Sequence[Task]) -> list[list[Record]]:
        """Check several shards as one; nothing may be wrong with any."""
        joined, inputs = read_joined([self._read(task.work) for task in tasks], self.max_record_bytes)
        batch = joined.rows.batch
        identities = row_keys(batch.column("id"), batch.column("source"))
        checks = [ShardCheck(self, task.work) for task in tasks]
        checks[0].check_joined(joined.rows)
        records = []
        for task, check, read, part in zip(tasks, checks, inputs, joined.parts, strict=True):
            check.tell(batch.slice(part.start, part.stop - part.start), read)
            if check.problems.total:
                raise NotJoinedError("something is wrong with one of them")
            with self._keys(task) as keys:
                keys.write(identities[part].tobytes())  # of no rows, they are no buffer
            records.append([_record(task, check, read, keys)])
        return records

    def _read(self, work: ShardWork) -> AlignedShard:
        """Return what is read of a shard, the columns of each attribute set behind its name."""
        sources = tuple(
            replace(source, kinds=with_spans(source.kinds), prefix=f"{source.name}/")
            for source in work.sources
        )
        return AlignedShard(self.root, work.shard, COLUMNS, sources, default_source=self.source)


def _record(task: Task, check: "ShardCheck", inputs: tuple[InputRecord, ...], keys: PublishedFile) -> Record:
    info = {
        "problems": check.problems.to_record(),
        "unproved": check.unproved,
        "kinds": check.kinds,
        "keys": keys.checksum,
    }
    counts = {**check.counts, "problems": check.problems.total}
    return task.record((), inputs, int(counts["documents_in"]), counts=counts, info=info)


def _known(source: AttributeSource) -> list[Any]:
    proof = source.proof
    digests = [proof.file.checksum, proof.ids_digest, proof.content_digest, proof.reads_text] if proof else []
    return [source.info.path, _as_json(source.kinds), digests, source.maker]


def _as_json(kinds: Mapping[str, AttributeKind]) -> msgspec.Raw:
    """Return the kinds of keys as they stand in keys of units; files of one run have one object for them."""
    known = _encoded.get(id(kinds))
    if known is None or known[0] is not kinds:
        if len(_encoded) >= _REMEMBERED:
            _encoded.clear()
        known = _encoded[id(kinds)] = kinds, msgspec.Raw(canonical(kinds).encode())
    return known[1]


_REMEMBERED = 256
"""Kinds that are remembered as JSON."""

_encoded: dict[int, tuple[Mapping[str, AttributeKind], msgspec.Raw]] = {}


class ShardCheck:
    """Reads a shard and its attribute files once and collects what is wrong."""

    def __init__(self, stage: ValidateStage, work: ShardWork) -> None:
        self.problems = Problems(stage.keep)
        self.counts: dict[str, float] = {
            "documents_in": 0,
            "text_bytes": 0,
            "bad_records": 0,
            "attribute_files": len(work.sources),
        }
        # attribute sets whose file belongs to the documents as far as its rows tell, and no journal proves it
        self.unproved: list[str] = []
        self.kinds: dict[str, dict[str, AttributeKind]] = {}  # set to key to kind, as readers take them
        self._stage = stage
        self._work = work
        self._path = layout.document_path(work.shard.path)

    def run(self, keys: PublishedFile) -> tuple[InputRecord, ...]:
        """Read everything, write identities to `keys`, and return the files as they were read."""
        stage = self._stage
        reader = DocumentFile(
            files.join(stage.root, self._path),
            COLUMNS,
            source=stage.source,
            ids_as_text=self._work.shard.ids_as_text,
            max_record_bytes=stage.max_record_bytes,
        )
        needs_digests = any(source.proof for source in self._work.sources)
        digests = DocumentDigests()
        with ExitStack() as stack:
            attributes = [
                AttributeCheck(
                    stage.root, self._work.shard, source, stage.max_record_bytes, self.problems, stack
                )
                for source in self._work.sources
            ]
            is_complete = self._read(reader, attributes, digests if needs_digests else None, keys)
            if is_complete:
                for one in attributes:
                    one.finish(digests.ids, digests.content)
        self.unproved = [one.name for one in attributes if one.is_good and not one.is_proved]
        self.kinds = {one.name: one.kinds for one in attributes}
        url, stored = reader.url, reader.stored
        checksum = stored.checksum if is_complete else files.checksum(url)
        document = InputRecord(self._path, stored.info.bytes, stored.info.stamp, checksum)
        inputs = (document, *(one.input() for one in attributes))
        for item in inputs:
            self._compare(item)
        return inputs

    def check_joined(self, block: Block) -> None:
        """Check rows of several shards as if they were of this one, with attributes whose columns stand behind the name of their set."""
        self._check_records(block)
        lengths = code_point_lengths(block.batch.column("text"))
        for source in self._work.sources:
            columns = {key: block.batch.column(f"{source.name}/{key}") for key in source.kinds}
            if not are_sound(columns, source.kinds, lengths):
                raise NotJoinedError("values of some attributes are wrong")

    def tell(self, batch: pa.RecordBatch, inputs: tuple[InputRecord, ...]) -> None:
        """Tell of rows that are as they should be, and of files that may be others than a journal says."""
        self.counts["documents_in"] = batch.num_rows
        self.counts["text_bytes"] = text_bytes(batch.column("text"))
        self.kinds = {source.name: dict(source.kinds) for source in self._work.sources}
        for item in inputs:
            self._compare(item)

    def _read(
        self,
        reader: DocumentFile,
        attributes: list[AttributeCheck],
        digests: DocumentDigests | None,
        keys: PublishedFile,
    ) -> bool:
        """Read all rows; tell whether the document file could be read to its end."""
        try:
            for block in reader:
                self._check_records(block)
                if digests is not None:
                    digests.update(block.batch)
                if block.num_rows:
                    keys.write(row_keys(block.batch.column("id"), block.batch.column("source")))
                if any(one.is_open for one in attributes):
                    lengths = code_point_lengths(pc.fill_null(block.batch.column("text"), ""))
                    for one in attributes:
                        one.take(block, lengths)
        except DataError as error:
            add_error(self.problems, self._stage.root, self._path, error)
            return False
        return True

    def _check_records(self, block: Block) -> None:
        ids, text, metadata = (block.batch.column(name) for name in ("id", "text", "metadata"))
        self.counts["documents_in"] += block.num_rows
        self.counts["bad_records"] += len(block.bad)
        self.counts["text_bytes"] += text_bytes(text)
        first = (
            Problem(
                self._path,
                bad.row,
                f"{bad.reason.replace('_', ' ')} at byte {bad.byte_offset}",
                bad.expected + bad.advice,
            )
            for bad in block.bad[: self.problems.keep]
        )
        self.problems.add_all("bad_record", first, len(block.bad))
        self._add_rows("empty_id", pc.equal(ids, ""), block, lambda row: "an empty id")
        if metadata.null_count < len(metadata):
            wrong = pc.invert(pc.starts_with(metadata, "{"))
            self._add_rows("bad_metadata", wrong, block, lambda row: shown(metadata[row].as_py()))

    def _add_rows(self, kind: str, mask: pa.BooleanArray, block: Block, found: Any) -> None:
        count = pc.sum(mask).as_py()
        if not count:
            return
        rows = np.flatnonzero(np.asarray(pc.fill_null(mask, False)))[: self.problems.keep].tolist()
        first = (Problem(self._path, block.first_row + row, found(row), KINDS[kind]) for row in rows)
        self.problems.add_all(kind, first, count)

    def _compare(self, item: InputRecord) -> None:
        """Compare a file with what a journal says was written there."""
        known = self._work.written.get(item.path)
        if known is not None and known.checksum != item.checksum:
            found = f"{item.bytes:,} bytes with checksum {item.checksum}"
            expected = f"the {known.bytes:,} bytes with checksum {known.checksum} that {known.verb} wrote"
            self.problems.add("journal_mismatch", item.path, found, expected=expected)
