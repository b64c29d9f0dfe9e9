"""Raw files of a shard as documents, and the files of documents that they become, cut into parts where that is wanted."""

import posixpath
from collections import Counter
from collections.abc import Iterator
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.engine import Input, Unit, inputs_of
from dolma_dask.formats import layout
from dolma_dask.formats.documents import RAW, text_bytes
from dolma_dask.functions.calls import UserFunction
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import Block, FileRecord, InputRecord
from dolma_dask.journal import Record
from dolma_dask.reading.tombstones import REMOVED, Tombstones
from dolma_dask.sinks.documents import open_writer
from dolma_dask.sinks.sink import DocumentRows, ShardFacts
from dolma_dask.sources import CONVERTER_VERSION, FieldMapping, RawShard, open_sources
from dolma_dask.sources.functions import FUNCTION_VERSION, documents_of
from dolma_dask.sources.inline import POST_SKIPPED, PRE_SKIPPED
from dolma_dask.sources.mapping import place_of
from dolma_dask.sources.naming import split_suffix
from dolma_dask.sources.pages import Pages
from dolma_dask.sources.plan import is_single
from dolma_dask.sources.text import own_fields

PASSED_NAMES = 40
"""Kinds of records without documents that the record of a shard names."""


class Conversion(Struct, frozen=True):
    """How raw files become documents; the same for all shards."""

    base: str  # the raw folder
    mapping: FieldMapping  # which field is what
    function: UserFunction | None = None  # in place of the mapping
    is_combined: bool = False  # records tell of which published files a shard was made
    encoding: str | None = None  # of the files' text; ``auto``: to be found; None: UTF-8
    skip: tuple[str, ...] = ()  # members of archives to leave out
    pages: Pages = Pages()  # how text is made of web pages
    removed: Tombstones = Tombstones()  # documents that were taken down

    @property
    def params(self) -> dict[str, Any]:
        """What decides the documents, besides the files."""
        params: dict[str, Any] = {"mapping": self.mapping.canonical(), "converter": CONVERTER_VERSION}
        if self.function is not None:
            params |= {"function": self.function.version, "function_version": FUNCTION_VERSION}
        if self.encoding is not None:
            params["encoding"] = self.encoding
        if self.pages.params:
            params["pages"] = self.pages.params
        return params | self.removed.params


class RawDocuments(Struct, frozen=True):
    """The documents of the raw files of one shard; see `dolma_dask.engine.documents.DocumentSource`."""

    conversion: Conversion
    shard: RawShard

    @property
    def name(self) -> str:
        """The shard."""
        return self.shard.path

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The raw files."""
        return inputs_of(self.conversion.base, self.shard.files)

    @property
    def params(self) -> dict[str, Any]:
        """What decides the documents, besides the bytes of the files."""
        mapping, paths = self.conversion.mapping, [info.path for info in self.shard.files]
        params = {**self.conversion.params, "files": paths}
        if "{place}" in mapping.generated_id:
            params["places"] = self._places
        if self.conversion.function is None and mapping != own_fields(mapping) and any(map(is_single, paths)):
            params["text_files"] = 2  # before, the fields of records were looked for in them
        if any(split_suffix(path).kind == "html" for path in paths):
            params["web_pages"] = 2  # before, they were not in all encodings as browsers mean them
        if self.shard.cut is not None:
            params["cut"] = (self.shard.cut.start, self.shard.cut.stop)
        if self.conversion.skip and any(path.lower().endswith(".tar") for path in paths):
            params["skip"] = self.conversion.skip
        return params

    @property
    def _places(self) -> list[str]:
        return [place_of(files.join(self.conversion.base, info.path)) for info in self.shard.files]

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield the documents with all of their fields."""
        names = ["documents_in", "documents_out", "text_bytes_out"]
        names += ["records_dropped", "records_split"] if self.conversion.function else []
        names += [REMOVED] if self.conversion.removed else []
        counts, inputs, encodings = dict.fromkeys(names, 0), list[InputRecord](), Counter[str]()
        passed = Counter[str]()
        for block in self._blocks(policy, inputs):
            encodings.update(block.encodings)
            passed.update(dict(block.passed))
            quarantine.admit(block)
            batch = self._not_removed(self._documents(block, counts), counts)
            counts["documents_in"] += block.num_rows
            counts["documents_out"] += batch.num_rows
            counts["text_bytes_out"] += text_bytes(batch.column("text"))
            yield DocumentRows(batch, block_lines=batch.column(RAW))
        skipped = quarantine.skipped
        left_out = {name: passed.pop(name) for name in (PRE_SKIPPED, POST_SKIPPED) if name in passed}
        facts.inputs = tuple(inputs)
        facts.counts = {
            **counts,
            "bad_records": quarantine.count,
            **({"skipped_members": skipped} if skipped else {}),
            **({"records_passed_over": passed.total()} if passed else {}),
            **{f"left_out_by_{name}": count for name, count in left_out.items()},
            "bytes_in": self.shard.bytes,
        }
        facts.info = {
            **({"skipped_members": quarantine.skipped_names} if skipped else {}),
            **({"places": self._places} if self.conversion.is_combined else {}),
            **({"encodings": dict(sorted(encodings.items()))} if encodings else {}),
            **({"passed_over": _commonest(passed)} if passed else {}),
        }

    def _blocks(self, policy: RecordPolicy, inputs: list[InputRecord]) -> Iterator[Block]:
        how = self.conversion
        sources = open_sources(
            how.base,
            self.shard.files,
            how.mapping,
            max_record_bytes=policy.max_record_bytes,
            function=how.function,
            encoding=how.encoding,
            skip=how.skip,
            pages=how.pages,
            cut=self.shard.cut,
        )
        for source in sources:
            yield from source.read(inputs)

    def _not_removed(self, batch: pa.RecordBatch, counts: dict[str, int]) -> pa.RecordBatch:
        if not self.conversion.removed:
            return batch
        gone = self.conversion.removed.find(batch.column("source"), batch.column("id"))
        counts[REMOVED] += int(np.count_nonzero(gone))
        return batch.filter(pa.array(~gone)) if gone.any() else batch

    def _documents(self, block: Block, counts: dict[str, int]) -> pa.RecordBatch:
        if self.conversion.function is None:
            return block.batch.filter(block.batch.column("id").is_valid()) if block.bad else block.batch
        sizes = block.batch.column("id").value_lengths().drop_null().to_numpy()
        counts["records_dropped"] += int((sizes == 0).sum())
        counts["records_split"] += int((sizes > 1).sum())
        return documents_of(block.batch)


def _commonest(passed: Counter[str]) -> dict[str, int]:
    """Return how often what was passed over, the rarest of it as one: media types may be called anything."""
    most = dict(sorted(passed.items(), key=lambda item: (-item[1], item[0]))[:PASSED_NAMES])
    rest = passed.total() - sum(most.values())
    return most | ({"others": rest} if rest else {})


class PartsOutput(Struct, frozen=True):
    """A file of documents for each shard; with `part_bytes`, a further part begins after so many bytes of JSON."""

    root: str
    part_bytes: int | None
    verb: ClassVar[str] = "convert"
    columns: ClassVar[tuple[str, ...]] = (RAW,)

    def open(self, unit: Unit, shard: str) -> "PartsSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return PartsSink(self.root, unit.name, self.part_bytes)


class PartsSink:
    """Writes lines to the unit's file and, each time `part_bytes` are reached, goes on in a further part."""

    def __init__(self, root: str, unit: str, part_bytes: int | None) -> None:
        self._root, self._unit, self._limit = root, unit, part_bytes
        self._size = 0
        self._records: list[FileRecord] = []

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)
        if kind is None:
            self._records.append(self._writer.record)
            self._remove_left_over()

    def _open(self) -> None:
        index = len(self._records)
        path = layout.part_path(self._unit, index) if index else self._unit
        self._writer = open_writer(self._root, path)
        self._writer.__enter__()
        self._size = 0

    def write(self, rows: DocumentRows) -> None:
        """See `dolma_dask.sinks.sink.Sink`."""
        lines = rows.lines
        assert lines is not None
        while self._limit is not None and len(lines):
            if self._size >= self._limit:
                self._writer.__exit__(None, None, None)
                self._records.append(self._writer.record)
                self._open()
            ends = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]
            stop = min(int(np.searchsorted(ends[1:], ends[0] + self._limit - self._size)) + 1, len(lines))
            self._writer.write(lines.slice(0, stop))
            self._size += int(ends[stop] - ends[0])
            lines = lines.slice(stop)
        self._writer.write(lines)

    def _remove_left_over(self) -> None:
        """Remove further parts that a killed run may have left: there may be fewer of them now."""
        if self._limit is None:
            return
        folder, written = posixpath.dirname(self._unit), {record.path for record in self._records}
        for info in files.list_files(files.join(self._root, folder)):
            path = f"{folder}/{info.path}"
            if layout.unit_of(path) == self._unit and path not in written:
                files.remove(files.join(self._root, path))

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        written = sum(item.bytes for item in self._records)
        rows = int(facts.counts["documents_out"])
        return facts.record(unit, (*self._records, *quarantined), rows, counts={"bytes_out": written})
